//! Every setting of manifests: a row with its key, its meaning and its parser.
//!
//! Refuses unusable values; the message names what is expected.

use super::{Encapsulation, Options};
use ipnet::IpNet;
use std::fmt::Write as _;

/// A row in the table of settings.
pub struct Setting {
    /// The key, in Helm's notation.
    pub key: &'static str,
    /// What it means.
    pub doc: &'static str,
    pub(super) set: fn(&mut Options, &str) -> Result<(), String>,
}

/// Every setting.
pub static SETTINGS: &[Setting] = &[
    Setting {
        key: "apiServer.caBundle",
        doc: "The authority that signed the API server's certificate, in base64.",
        set: |options, value| {
            options.apiserver_authority = Some(value.to_owned());
            Ok(())
        },
    },
    Setting {
        key: "apiServer.enabled",
        doc: "Whether the aggregated API server runs; its certificate is in the secret `calico-apiserver/calico-apiserver-certs`.",
        set: |options, value| truth(value).map(|answer| options.apiserver = answer),
    },
    Setting {
        key: "cni.binDir",
        doc: "Where the host keeps CNI plugins (`/opt/cni/bin`).",
        set: |options, value| folder(value).map(|path| options.cni_bin_dir = path),
    },
    Setting {
        key: "cni.confDir",
        doc: "Where the host keeps CNI configurations (`/etc/cni/net.d`).",
        set: |options, value| folder(value).map(|path| options.cni_conf_dir = path),
    },
    Setting {
        key: "encapsulation",
        doc: "The encapsulation of the IPv4 default pool: `IPIP`, `IPIPCrossSubnet`, `VXLAN`, `VXLANCrossSubnet` or `None`.",
        set: |options, value| encapsulation(value).map(|found| options.encapsulation = Some(found)),
    },
    Setting {
        key: "etcd.endpoints",
        doc: "The endpoints of the etcd, for `calico-etcd`.",
        set: |options, value| {
            value.clone_into(&mut options.etcd.endpoints);
            Ok(())
        },
    },
    Setting {
        key: "etcd.tls.ca",
        doc: "Its certificate authority, in base64.",
        set: |options, value| {
            value.clone_into(&mut options.etcd.ca);
            Ok(())
        },
    },
    Setting {
        key: "etcd.tls.crt",
        doc: "The client certificate for it, in base64.",
        set: |options, value| {
            value.clone_into(&mut options.etcd.cert);
            Ok(())
        },
    },
    Setting {
        key: "etcd.tls.key",
        doc: "The client key for it, in base64.",
        set: |options, value| {
            value.clone_into(&mut options.etcd.key);
            Ok(())
        },
    },
    Setting {
        key: "flannel.image",
        doc: "flannel's image in `canal`.",
        set: |options, value| {
            value.clone_into(&mut options.flannel_image);
            Ok(())
        },
    },
    Setting {
        key: "flannel.network",
        doc: "flannel's range of pod addresses in `canal` (`10.244.0.0/16`).",
        set: |options, value| range(value, true).map(|cidr| options.flannel_network = cidr),
    },
    Setting {
        key: "goldmane.clusterIP",
        doc: "An address in the service range for Goldmane, where nodes reach it.",
        set: |options, value| address(value).map(|found| options.goldmane_address = Some(found)),
    },
    Setting {
        key: "goldmane.enabled",
        doc: "Whether Goldmane collects flows; its certificate (for `goldmane.kube-system.svc`), shown by nodes too, is in the secret \
              `kube-system/goldmane-tls` (`tls.crt`, `tls.key`, `ca.crt`).",
        set: |options, value| truth(value).map(|answer| options.goldmane = answer),
    },
    Setting {
        key: "imagePullPolicy",
        doc: "`Always`, `IfNotPresent` (the default) or `Never`.",
        set: |options, value| {
            one_of(value, &["Always", "IfNotPresent", "Never"]).map(|policy| options.pull_policy = policy)
        },
    },
    Setting {
        key: "imagePullSecrets",
        doc: "Names of secrets, separated by commas.",
        set: |options, value| {
            options.pull_secrets =
                value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            Ok(())
        },
    },
    Setting {
        key: "includeCRDs",
        doc: "Whether the custom resource definitions are among the objects.",
        set: |options, value| truth(value).map(|answer| options.crds = answer),
    },
    Setting {
        key: "ipAutodetectionMethod",
        doc: "How the node's address is detected, as `IP_AUTODETECTION_METHOD`.",
        set: |options, value| {
            options.autodetection = Some(value.to_owned());
            Ok(())
        },
    },
    Setting {
        key: "ipv4",
        doc: "Whether pods have IPv4 addresses; `false` with `ipv6=true` for an IPv6-only cluster.",
        set: |options, value| truth(value).map(|answer| options.ipv4 = answer),
    },
    Setting {
        key: "ipv4Pool.cidr",
        doc: "The range of the IPv4 default pool; unless set, kubeadm's or `192.168.0.0/16`.",
        set: |options, value| range(value, true).map(|cidr| options.ipv4_pool = Some(cidr)),
    },
    Setting {
        key: "ipv6",
        doc: "Whether pods have IPv6 addresses.",
        set: |options, value| truth(value).map(|answer| options.ipv6 = answer),
    },
    Setting {
        key: "ipv6Pool.cidr",
        doc: "The range of the IPv6 default pool.",
        set: |options, value| range(value, false).map(|cidr| options.ipv6_pool = Some(cidr)),
    },
    Setting {
        key: "kubernetesServiceEndpoint.host",
        doc: "The API's address, if its service cannot be used.",
        set: |options, value| {
            options.api_host = Some(value.to_owned());
            Ok(())
        },
    },
    Setting {
        key: "kubernetesServiceEndpoint.port",
        doc: "Its port (443).",
        set: |options, value| number(value).map(|port| options.api_port = port),
    },
    Setting {
        key: "metrics",
        doc: "Whether Felix and Typha serve figures for Prometheus (9091 and 9093).",
        set: |options, value| truth(value).map(|answer| options.metrics = answer),
    },
    Setting {
        key: "mtu",
        doc: "The MTU of pods and tunnels; 0 for what fits the node.",
        set: |options, value| number(value).map(|mtu| options.mtu = mtu),
    },
    Setting {
        key: "node.cpu",
        doc: "The CPU request of each node's pod (`250m`).",
        set: |options, value| {
            value.clone_into(&mut options.node_cpu);
            Ok(())
        },
    },
    Setting {
        key: "typha.enabled",
        doc: "Whether Typha runs between the API and the nodes.",
        set: |options, value| truth(value).map(|answer| options.typha = answer),
    },
    Setting {
        key: "typha.replicas",
        doc: "The number of Typha's replicas.",
        set: |options, value| number(value).map(|count| options.typha_replicas = count),
    },
    Setting {
        key: "updateStrategy.maxUnavailable",
        doc: "How many nodes are updated at a time (1, or a share such as `10%`).",
        set: |options, value| {
            value.clone_into(&mut options.max_unavailable);
            Ok(())
        },
    },
    Setting {
        key: "updateStrategy.type",
        doc: "`RollingUpdate` (the default), or `OnDelete`.",
        set: |options, value| {
            one_of(value, &["RollingUpdate", "OnDelete"]).map(|kind| options.on_delete = kind == "OnDelete")
        },
    },
    Setting {
        key: "useV3CRDs",
        doc: "Whether the definitions are those of `projectcalico.org/v3`, with Calico's admission policies and webhooks; the webhooks' \
              certificate is in the secret `kube-system/calico-webhooks-tls`.",
        set: |options, value| truth(value).map(|answer| options.v3_definitions = answer),
    },
    Setting {
        key: "webhooks.caBundle",
        doc: "The authority that signed the webhooks' certificate, in base64.",
        set: |options, value| {
            options.webhooks_authority = Some(value.to_owned());
            Ok(())
        },
    },
    Setting {
        key: "whisker.enabled",
        doc: "Whether the page that shows Goldmane's flows runs (`kubectl -n kube-system port-forward deployment/whisker 8081`).",
        set: |options, value| truth(value).map(|answer| options.whisker = answer),
    },
];

/// The settings as a reference table.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from("| Key | Meaning |\n| --- | --- |\n");
    for setting in SETTINGS {
        // Writing to a string does not fail.
        let _ = writeln!(page, "| `{}` | {} |", setting.key, setting.doc);
    }
    for (key, component) in [
        ("node.env.NAME", "`calico-node`: [node.md](node.md), [felix.md](felix.md)"),
        ("typha.env.NAME", "Typha: [typha.md](typha.md)"),
        ("kubeControllers.env.NAME", "kube-controllers: [kube-controllers.md](kube-controllers.md)"),
    ] {
        let _ = writeln!(page, "| `{key}` | A variable of {component}. |");
    }
    page
}

fn folder(value: &str) -> Result<String, String> {
    if value.starts_with('/') { Ok(value.to_owned()) } else { Err("a path begins with /".to_owned()) }
}

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| "expected a number".to_owned())
}

fn one_of(value: &str, known: &[&str]) -> Result<String, String> {
    match known.contains(&value) {
        true => Ok(value.to_owned()),
        false => Err(format!("expected one of {}", known.join(", "))),
    }
}

fn address(value: &str) -> Result<String, String> {
    let found: std::net::IpAddr = value.parse().map_err(|_| "expected an address".to_owned())?;
    Ok(found.to_string())
}

fn range(value: &str, is_ipv4: bool) -> Result<String, String> {
    let version = if is_ipv4 { "IPv4" } else { "IPv6" };
    let net: IpNet = value.parse().map_err(|_| format!("expected an {version} range"))?;
    if net.addr().is_ipv4() != is_ipv4 {
        return Err(format!("expected an {version} range"));
    }
    if net.trunc() != net {
        return Err(format!("it has bits outside its prefix; did you mean {}?", net.trunc()));
    }
    Ok(net.to_string())
}

fn encapsulation(value: &str) -> Result<Encapsulation, String> {
    let (ipip, vxlan) = match value {
        "IPIP" => ("Always", "Never"),
        "IPIPCrossSubnet" => ("CrossSubnet", "Never"),
        "VXLAN" => ("Never", "Always"),
        "VXLANCrossSubnet" => ("Never", "CrossSubnet"),
        "None" => ("Never", "Never"),
        _ => return Err("expected one of IPIP, IPIPCrossSubnet, VXLAN, VXLANCrossSubnet, None".to_owned()),
    };
    Ok(Encapsulation { ipip, vxlan })
}
