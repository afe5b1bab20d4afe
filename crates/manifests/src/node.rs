//! The daemon set that runs on every node: address upgrade, CNI installation and preparation of mounts before it, then
//! `calico-node`, and flannel beside it in canal.

use crate::NAMESPACE;
use crate::flows;
use crate::objects::Object;
use crate::options::{Like, Options};
use crate::parts::{
    Asks, Container, Probe, Variable, config, field, host_path, mount, pull_secrets, read_only, shared, text,
    with_extra,
};
use serde_json::{Value, json};

/// The daemon set.
#[must_use]
pub fn daemon_set(options: &Options) -> Object {
    let like = options.like;
    let name = like.node_name();
    let labels = json!({"k8s-app": name});
    let strategy = match options.on_delete {
        true => json!({"type": "OnDelete"}),
        false => {
            let most =
                options.max_unavailable.parse::<u32>().map_or(json!(options.max_unavailable), Value::from);
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}})
        }
    };
    let mut before = Vec::new();
    if like.has_ipam() && like != Like::CalicoEtcd {
        before.push(upgrade_ipam(options));
    }
    before.push(install_cni(options));
    before.push(bootstrap(options));
    let mut containers = vec![calico_node(options)];
    if like == Like::Canal {
        containers.push(flannel(options));
    }
    let values =
        |list: &[Container]| list.iter().map(|container| container.value(options)).collect::<Vec<_>>();
    let mut pod = json!({
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "hostNetwork": true,
        // Runs on every node, regardless of taints.
        "tolerations": [
            {"effect": "NoSchedule", "operator": "Exists"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"effect": "NoExecute", "operator": "Exists"},
        ],
        "serviceAccountName": name,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
        "priorityClassName": "system-node-critical",
        "initContainers": values(&before),
        "containers": values(&containers),
        "volumes": volumes(options),
    });
    if let Some(address) = &options.goldmane_address {
        pod["hostAliases"] = flows::alias(address);
    }
    pull_secrets(&mut pod, options);
    Object::new(
        "The CNI plugins, policy and routes of every node.",
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": strategy,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
    )
}

fn upgrade_ipam(options: &Options) -> Container {
    let map = options.like.config_map();
    Container {
        name: "upgrade-ipam",
        image: options.image("cni"),
        command: vec!["/opt/cni/bin/calico-ipam", "-upgrade"],
        takes_endpoint: true,
        variables: vec![
            field("KUBERNETES_NODE_NAME", "spec.nodeName"),
            config("CALICO_NETWORKING_BACKEND", map, "calico_backend"),
        ],
        mounts: vec![
            mount("host-local-net-dir", "/var/lib/cni/networks"),
            mount("cni-bin-dir", "/host/opt/cni/bin"),
        ],
        is_privileged: true,
        ..Container::default()
    }
}

fn install_cni(options: &Options) -> Container {
    let like = options.like;
    let map = like.config_map();
    let mut variables = Vec::new();
    if like == Like::Canal {
        variables.push(field("CALICO_CNI_SERVICE_ACCOUNT", "spec.serviceAccountName"));
    }
    let file = if like == Like::Canal { "10-canal.conflist" } else { "10-calico.conflist" };
    variables.push(text("CNI_CONF_NAME", file));
    variables.push(config("CNI_NETWORK_CONFIG", map, "cni_network_config"));
    // The installer writes the path of the kubeconfig as the host sees it.
    if options.cni_conf_dir != "/etc/cni/net.d" {
        variables.push(text("CNI_NET_DIR", options.cni_conf_dir.clone()));
    }
    if like == Like::CalicoEtcd {
        variables.push(config("ETCD_ENDPOINTS", map, "etcd_endpoints"));
    } else {
        variables.push(field("KUBERNETES_NODE_NAME", "spec.nodeName"));
    }
    if like != Like::CalicoPolicyOnly {
        variables.push(config("CNI_MTU", map, "veth_mtu"));
    }
    variables.push(text("SLEEP", "false"));
    let mut mounts =
        vec![mount("cni-bin-dir", "/host/opt/cni/bin"), mount("cni-net-dir", "/host/etc/cni/net.d")];
    if like == Like::CalicoEtcd {
        mounts.push(mount("etcd-certs", "/calico-secrets"));
    }
    Container {
        name: "install-cni",
        image: options.image("cni"),
        command: vec!["/opt/cni/bin/install"],
        takes_endpoint: true,
        variables,
        mounts,
        is_privileged: true,
        ..Container::default()
    }
}

/// Creates the mounts that must exist on the host; the node starts even if this fails.
fn bootstrap(options: &Options) -> Container {
    Container {
        name: "ebpf-bootstrap",
        image: options.image("node"),
        command: vec!["calico-node", "-init", "-best-effort"],
        mounts: vec![
            shared("sys-fs", "/sys/fs"),
            shared("var-run-calico", "/var/run/calico"),
            read_only("nodeproc", "/nodeproc"),
        ],
        is_privileged: true,
        ..Container::default()
    }
}

const PERIOD: u32 = 10;

fn calico_node(options: &Options) -> Container {
    let like = options.like;
    let has_bird = like.backend() == "bird";
    let live: &'static [&'static str] = match has_bird {
        true => &["/bin/calico-node", "-felix-live", "-bird-live"],
        false => &["/bin/calico-node", "-felix-live"],
    };
    let ready = match (like, has_bird) {
        (Like::Canal, _) => Asks::Http { path: "/readiness", port: 9099 },
        (_, true) => Asks::Program(&["/bin/calico-node", "-felix-ready", "-bird-ready"]),
        _ => Asks::Program(&["/bin/calico-node", "-felix-ready"]),
    };
    let mut mounts = vec![
        mount("cni-net-dir", "/host/etc/cni/net.d"),
        read_only("lib-modules", "/lib/modules"),
        mount("xtables-lock", "/run/xtables.lock"),
        mount("var-run-calico", "/var/run/calico"),
        mount("var-lib-calico", "/var/lib/calico"),
        mount("policysync", "/var/run/nodeagent"),
        mount("bpffs", "/sys/fs/bpf"),
        read_only("sys-kernel-security", "/sys/kernel/security"),
        read_only("cni-log-dir", "/var/log/calico/cni"),
    ];
    if like == Like::CalicoEtcd {
        mounts.push(mount("etcd-certs", "/calico-secrets"));
    }
    if options.goldmane {
        mounts.push(flows::CERTIFICATES);
    }
    let shutdown = json!({"preStop": {"exec": {"command": ["/bin/calico-node", "-shutdown"]}}});
    Container {
        name: "calico-node",
        image: options.image("node"),
        takes_endpoint: true,
        variables: with_extra(node_variables(options), &options.node_variables),
        mounts,
        is_privileged: true,
        requests: vec![("cpu", options.node_cpu.clone())],
        liveness: Some(Probe {
            asks: Asks::Program(live),
            period: PERIOD,
            delay: 10,
            failures: 6,
            timeout: 10,
        }),
        readiness: Some(Probe { asks: ready, period: PERIOD, delay: 0, failures: 0, timeout: 10 }),
        more: [("lifecycle".to_owned(), shutdown)].into_iter().chain(metrics_port(options, 9091)).collect(),
        ..Container::default()
    }
}

/// The port on which monitors find figures, if they are served.
pub(crate) fn metrics_port(options: &Options, port: u16) -> Option<(String, Value)> {
    options.metrics.then(|| ("ports".to_owned(), json!([metrics_entry(port)])))
}

/// A port named `metrics`.
pub(crate) fn metrics_entry(port: u16) -> Value {
    json!({"containerPort": port, "name": "metrics", "protocol": "TCP"})
}

fn node_variables(options: &Options) -> Vec<Variable> {
    let like = options.like;
    let map = like.config_map();
    let mut variables = Vec::new();
    if like == Like::CalicoEtcd {
        variables.extend([
            config("ETCD_ENDPOINTS", map, "etcd_endpoints"),
            config("ETCD_CA_CERT_FILE", map, "etcd_ca"),
            config("ETCD_KEY_FILE", map, "etcd_key"),
            config("ETCD_CERT_FILE", map, "etcd_cert"),
            field("CALICO_K8S_NODE_REF", "spec.nodeName"),
        ]);
    } else {
        variables.push(text("DATASTORE_TYPE", "kubernetes"));
        if !like.has_ipam() {
            variables.push(text("USE_POD_CIDR", "true"));
        }
        if options.typha {
            variables.push(config("FELIX_TYPHAK8SSERVICENAME", map, "typha_service_name"));
        }
        variables.push(text("WAIT_FOR_DATASTORE", "true"));
        variables.push(field("NODENAME", "spec.nodeName"));
    }
    match like {
        Like::CalicoPolicyOnly => variables.extend([
            text("CALICO_NETWORKING_BACKEND", "none"),
            text("CLUSTER_TYPE", api::words::KUBERNETES),
            text("CALICO_MANAGE_CNI", "false"),
        ]),
        Like::Canal => variables.extend([
            field("CALICO_CNI_SERVICE_ACCOUNT", "spec.serviceAccountName"),
            text("CALICO_NETWORKING_BACKEND", "none"),
            text("CLUSTER_TYPE", "k8s,canal"),
            text("FELIX_IPTABLESREFRESHINTERVAL", "60"),
            text("IP", ""),
        ]),
        _ => variables.extend(pool_variables(options)),
    }
    variables.extend([
        // Logs go to standard output only, for `kubectl logs`.
        text("CALICO_DISABLE_FILE_LOGGING", "true"),
        text("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT"),
        text("FELIX_IPV6SUPPORT", options.ipv6.to_string()),
        text("FELIX_HEALTHENABLED", "true"),
    ]);
    if options.metrics {
        variables.push(text("FELIX_PROMETHEUSMETRICSENABLED", "true"));
    }
    if options.goldmane {
        variables.extend(flows::node_variables());
    }
    variables
}

fn pool_variables(options: &Options) -> Vec<Variable> {
    let map = options.like.config_map();
    let encapsulation = options.encapsulation();
    let mut variables = vec![
        config("CALICO_NETWORKING_BACKEND", map, "calico_backend"),
        text("CLUSTER_TYPE", "k8s,bgp"),
        text("IP", if options.ipv4 { "autodetect" } else { "none" }),
        text("CALICO_IPV4POOL_IPIP", encapsulation.ipip),
        text("CALICO_IPV4POOL_VXLAN", encapsulation.vxlan),
        text(
            "CALICO_IPV6POOL_VXLAN",
            if options.like == Like::CalicoVxlan { "CrossSubnet" } else { "Never" },
        ),
        config("FELIX_IPINIPMTU", map, "veth_mtu"),
        config("FELIX_VXLANMTU", map, "veth_mtu"),
        config("FELIX_WIREGUARDMTU", map, "veth_mtu"),
    ];
    if let Some(method) = &options.autodetection {
        variables.push(text("IP_AUTODETECTION_METHOD", method.clone()));
    }
    if !options.ipv4 {
        // Routers are identified by an IPv4 address, which these nodes do not have.
        variables.extend([text("CALICO_IPV4POOL_CIDR", "none"), text("CALICO_ROUTER_ID", "hash")]);
    } else if let Some(cidr) = &options.ipv4_pool {
        variables.push(text("CALICO_IPV4POOL_CIDR", cidr.clone()));
    }
    if options.ipv6 {
        variables.push(text("IP6", "autodetect"));
        if let Some(cidr) = &options.ipv6_pool {
            variables.push(text("CALICO_IPV6POOL_CIDR", cidr.clone()));
        }
    }
    variables
}

fn flannel(options: &Options) -> Container {
    let map = options.like.config_map();
    Container {
        name: "kube-flannel",
        image: options.flannel_image.clone(),
        command: vec!["/opt/bin/flanneld", "--ip-masq", "--kube-subnet-mgr"],
        variables: vec![
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            config("FLANNELD_IFACE", map, "canal_iface"),
            config("FLANNELD_IP_MASQ", map, "masquerade"),
        ],
        mounts: vec![mount("xtables-lock", "/run/xtables.lock"), mount("flannel-cfg", "/etc/kube-flannel/")],
        is_privileged: true,
        ..Container::default()
    }
}

fn volumes(options: &Options) -> Vec<Value> {
    let like = options.like;
    let mut volumes = vec![
        host_path("lib-modules", "/lib/modules", ""),
        host_path("var-run-calico", "/var/run/calico", "DirectoryOrCreate"),
        host_path("var-lib-calico", "/var/lib/calico", "DirectoryOrCreate"),
        host_path("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
        host_path("sys-fs", "/sys/fs/", "DirectoryOrCreate"),
        host_path("bpffs", "/sys/fs/bpf", "Directory"),
        host_path("sys-kernel-security", "/sys/kernel/security", ""),
        host_path("nodeproc", "/proc", ""),
        host_path("cni-bin-dir", &options.cni_bin_dir, "DirectoryOrCreate"),
        host_path("cni-net-dir", &options.cni_conf_dir, ""),
        host_path("cni-log-dir", "/var/log/calico/cni", ""),
        host_path("policysync", "/var/run/nodeagent", "DirectoryOrCreate"),
    ];
    match like {
        Like::CalicoEtcd => volumes.push(
            json!({"name": "etcd-certs", "secret": {"secretName": "calico-etcd-secrets", "defaultMode": 0o400}}),
        ),
        Like::Canal => volumes.push(json!({"name": "flannel-cfg", "configMap": {"name": like.config_map()}})),
        Like::CalicoPolicyOnly => {}
        _ => volumes.push(host_path("host-local-net-dir", "/var/lib/cni/networks", "")),
    }
    if options.goldmane {
        volumes.push(flows::volume());
    }
    volumes
}
