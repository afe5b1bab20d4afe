//! The config map: the backend, the MTU, and the CNI configuration that the installer completes on each node; and, if
//! Calico's data is in an etcd, the secret with its certificates.

use crate::NAMESPACE;
use crate::objects::Object;
use crate::options::{Like, Options};
use serde_json::{Value, json};

/// The config map.
#[must_use]
pub fn config_map(options: &Options) -> Object {
    let like = options.like;
    let mut data = json!({
        "typha_service_name": if options.typha { "calico-typha" } else { "none" },
        "veth_mtu": options.mtu.to_string(),
        "cni_network_config": network_config(options),
    });
    match like {
        Like::Canal => {
            data["canal_iface"] = json!("");
            data["masquerade"] = json!("true");
            data["net-conf.json"] = json!(flannel_config(options));
        }
        Like::CalicoPolicyOnly => {}
        _ => data["calico_backend"] = json!(like.backend()),
    }
    if like == Like::CalicoEtcd {
        let file = |text: &str, name: &str| {
            if text.is_empty() { String::new() } else { format!("/calico-secrets/{name}") }
        };
        data["etcd_endpoints"] = json!(options.etcd.endpoints);
        data["etcd_ca"] = json!(file(&options.etcd.ca, "etcd-ca"));
        data["etcd_cert"] = json!(file(&options.etcd.cert, "etcd-cert"));
        data["etcd_key"] = json!(file(&options.etcd.key, "etcd-key"));
    }
    Object::new(
        "What every node's pod reads at its start.",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": like.config_map(), "namespace": NAMESPACE},
            "data": data,
        }),
    )
}

/// The API's address, for when its service cannot be used; every container takes it as variables.
#[must_use]
pub fn endpoint(options: &Options) -> Option<Object> {
    let host = options.api_host.as_ref()?;
    Some(Object::new(
        "Where the Kubernetes API is, without kube-proxy's help.",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kubernetes-services-endpoint", "namespace": NAMESPACE},
            "data": {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": options.api_port.to_string()},
        }),
    ))
}

/// The certificates for etcd.
#[must_use]
pub fn etcd_secret(options: &Options) -> Object {
    let mut data = json!({});
    for (name, text) in
        [("etcd-ca", &options.etcd.ca), ("etcd-cert", &options.etcd.cert), ("etcd-key", &options.etcd.key)]
    {
        if !text.is_empty() {
            data[name] = json!(text);
        }
    }
    Object::new(
        "Certificates for etcd, where it wants some.",
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "calico-etcd-secrets", "namespace": NAMESPACE},
            "data": data,
        }),
    )
}

/// The CNI configuration. Words between underscores are filled in by the installer; one of them is a number, so this is
/// not valid JSON yet.
fn network_config(options: &Options) -> String {
    let like = options.like;
    let mut plugin = json!({
        "type": "calico",
        "log_level": "info",
        "log_file_path": "/var/log/calico/cni/cni.log",
        "mtu": "__CNI_MTU__",
        "ipam": {"type": "calico-ipam"},
        "policy": {"type": "k8s"},
        "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"},
    });
    if like == Like::CalicoEtcd {
        for (name, word) in [
            ("etcd_endpoints", "__ETCD_ENDPOINTS__"),
            ("etcd_key_file", "__ETCD_KEY_FILE__"),
            ("etcd_cert_file", "__ETCD_CERT_FILE__"),
            ("etcd_ca_cert_file", "__ETCD_CA_CERT_FILE__"),
        ] {
            plugin[name] = json!(word);
        }
    } else {
        plugin["datastore_type"] = json!("kubernetes");
        plugin["nodename"] = json!("__KUBERNETES_NODE_NAME__");
    }
    if like == Like::CalicoPolicyOnly {
        plugin["mtu"] = json!(1500);
    }
    if !like.has_ipam() {
        plugin["ipam"] = json!({"type": "host-local", "subnet": "usePodCidr"});
    } else if options.ipv6 {
        let ipv4 = options.ipv4.to_string();
        plugin["ipam"] = json!({"type": "calico-ipam", "assign_ipv4": ipv4, "assign_ipv6": "true"});
    }
    let list = json!({
        "name": "k8s-pod-network",
        "cniVersion": "1.0.0",
        "plugins": [plugin, {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}],
    });
    pretty(&list).replace("\"__CNI_MTU__\"", "__CNI_MTU__")
}

fn flannel_config(options: &Options) -> String {
    pretty(&json!({"Network": options.flannel_network, "Backend": {"Type": "vxlan"}}))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
