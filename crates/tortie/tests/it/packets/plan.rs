//! The contents of a site, as values: hosts, pods, networks, and the objects that describe them to Calico.

use super::yaml;
use anyhow::{Context as _, Result};
use api::Resource;
use datastore::Backend;
use ipam::{AssignIp, IntendedUse, Ipam};
use serde_json::{Value, json};
use std::sync::Arc;

/// The packet filter and its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Nftables,
    IptablesNft,
    IptablesLegacy,
    /// eBPF programs, with nftables for the remaining netfilter rules.
    Ebpf,
    /// eBPF programs, with iptables for the remaining netfilter rules.
    EbpfIptables,
}

impl Flavour {
    pub(crate) fn variables(self) -> Vec<(&'static str, &'static str)> {
        let filter = match self {
            Self::Nftables | Self::Ebpf => {
                [("FELIX_NFTABLESMODE", "Enabled"), ("FELIX_IPTABLESBACKEND", "auto")]
            }
            Self::IptablesNft | Self::EbpfIptables => {
                [("FELIX_NFTABLESMODE", "Disabled"), ("FELIX_IPTABLESBACKEND", "nft")]
            }
            Self::IptablesLegacy => [("FELIX_NFTABLESMODE", "Disabled"), ("FELIX_IPTABLESBACKEND", "legacy")],
        };
        // The map of connections allocates its memory up front.
        let programs = [("FELIX_BPFENABLED", "true"), ("FELIX_BPFMAPSIZECONNTRACK", "8192")];
        filter.into_iter().chain(programs.into_iter().filter(|_| self.has_programs())).collect()
    }

    /// Whether eBPF programs judge packets.
    pub(crate) fn has_programs(self) -> bool {
        matches!(self, Self::Ebpf | Self::EbpfIptables)
    }
}

/// A network of hosts, and its router.
#[derive(Clone, Debug)]
pub(crate) struct LanPlan {
    pub(crate) name: String,
    pub(crate) gateway_v4: String,
    pub(crate) gateway_v6: String,
}

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    pub(crate) name: String,
    pub(crate) lan: String,
    /// The IPv4 address with its prefix length.
    pub(crate) v4: String,
    pub(crate) v6: String,
    /// The addresses of its tunnel devices.
    pub(crate) tunnel: Option<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct PodPlan {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) interface: String,
    pub(crate) v4: String,
    pub(crate) v6: String,
}

/// A site.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) lans: Vec<LanPlan>,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) pods: Vec<PodPlan>,
    /// Addresses behind the router: name, IPv4, IPv6.
    pub(crate) outside: Vec<(String, String, String)>,
    pub(crate) vxlan: bool,
    /// Whether hardware addresses are configured statically, because random policy may deny neighbour discovery.
    pub(crate) static_neighbours: bool,
    /// Objects of all of the above, as YAML.
    pub(crate) objects: String,
}

/// Pods: name, host, namespace, number, labels, ports, service account.
type PodRow =
    (&'static str, usize, &'static str, u8, &'static [(&'static str, &'static str)], Value, &'static str);

fn pod_rows() -> Vec<PodRow> {
    let http = |port: u16| json!([{"name": "http", "protocol": "TCP", "port": port}]);
    let ports = json!([
        {"name": "http", "protocol": "TCP", "port": 80},
        {"name": "dns", "protocol": "UDP", "port": 53},
    ]);
    vec![
        ("a", 1, "red", 2, &[("app", "web")], ports, "sa1"),
        ("b", 1, "red", 3, &[("app", "client")], json!([]), "sa2"),
        ("c", 1, "blue", 4, &[("app", "client")], json!([]), "sa1"),
        ("d", 2, "red", 2, &[("app", "client")], json!([]), "sa1"),
        ("e", 2, "blue", 3, &[("app", "web"), ("tier", "back")], http(8080), ""),
    ]
}

impl Plan {
    /// Hosts in different subnets, joined by VXLAN: `n1` with pods `a`, `b` (namespace `red`) and `c` (`blue`), `n2`
    /// with `d` (`red`) and `e` (`blue`). `third` adds `n3` in the subnet of the first.
    pub(crate) fn two_subnets(third: bool) -> Self {
        let lan = |number: u8| LanPlan {
            name: format!("lan{number}"),
            gateway_v4: format!("10.65.{number}.254/24"),
            gateway_v6: format!("fd00:65:{number}::254/64"),
        };
        let node = |number: u8, lan: u8| NodePlan {
            name: format!("n{number}"),
            lan: format!("lan{lan}"),
            v4: format!("10.65.{lan}.{number}/24"),
            v6: format!("fd00:65:{lan}::{number}/64"),
            tunnel: Some((format!("172.20.{number}.0"), format!("fd00:20::{number}:0"))),
        };
        let mut nodes = vec![node(1, 1), node(2, 2)];
        nodes.extend(third.then(|| node(3, 1)));
        let mut rows = pod_rows();
        if third {
            rows.push(("f", 3, "red", 2, &[("app", "client")], json!([]), ""));
        }
        let pods: Vec<PodPlan> = rows
            .iter()
            .map(|(name, node, namespace, number, ..)| PodPlan {
                name: (*name).to_owned(),
                node: format!("n{node}"),
                interface: model::names::interface_name("cali", namespace, name),
                v4: format!("172.20.{node}.{number}"),
                v6: format!("fd00:20::{node}:{number}"),
            })
            .collect();
        let mut objects = include_str!("cases/base.yaml").to_owned();
        for node in &nodes {
            let (tunnel_v4, tunnel_v6) = node.tunnel.clone().unwrap_or_default();
            let object = json!({
                "apiVersion": "projectcalico.org/v3",
                "kind": "Node",
                "metadata": {"name": node.name},
                "spec": {
                    "bgp": {"ipv4Address": node.v4, "ipv6Address": node.v6},
                    "ipv4VXLANTunnelAddr": tunnel_v4,
                    "ipv6VXLANTunnelAddr": tunnel_v6,
                },
            });
            objects += &format!("\n---\n{object}");
        }
        for ((_, _, namespace, _, labels, ports, account), pod) in rows.iter().zip(&pods) {
            let labels: Vec<(&str, &str)> = labels.to_vec();
            objects += &format!("\n---\n{}", endpoint(pod, namespace, &labels, ports, account));
        }
        let outside = |number: u8| {
            (format!("o{number}"), format!("203.0.113.{number}"), format!("2001:db8:113::{number}"))
        };
        Self {
            lans: vec![lan(1), lan(2)],
            nodes,
            pods,
            outside: vec![outside(1), outside(2)],
            vxlan: true,
            static_neighbours: false,
            objects,
        }
    }

    /// The objects that describe the site.
    pub(crate) fn resources(&self) -> Result<Vec<Resource>> {
        yaml::documents(&self.objects).into_iter().map(resource).collect()
    }

    /// Assigns every address of the plan in IPAM, which gives the hosts their blocks.
    pub(crate) async fn assign_addresses(&self, backend: &Arc<dyn Backend>) -> Result<()> {
        if !self.vxlan {
            return Ok(());
        }
        let ipam = Ipam::new(Arc::clone(backend));
        let mut wishes = Vec::new();
        for node in &self.nodes {
            for address in node.tunnel.iter().flat_map(|(v4, v6)| [v4, v6]) {
                wishes.push((address.clone(), node.name.clone(), IntendedUse::Tunnel));
            }
        }
        for pod in &self.pods {
            for address in [&pod.v4, &pod.v6] {
                wishes.push((address.clone(), pod.node.clone(), IntendedUse::Workload));
            }
        }
        for (address, node, intended_use) in wishes {
            let handle = Some(format!("test.{address}").into());
            let wish = AssignIp {
                handle,
                intended_use: Some(intended_use),
                ..AssignIp::new(address.parse()?, node.clone())
            };
            ipam.assign_ip(&wish).await.with_context(|| format!("{address} on {node}"))?;
        }
        Ok(())
    }
}

/// The object for a pod's interface.
pub(crate) fn endpoint(
    pod: &PodPlan,
    namespace: &str,
    labels: &[(&str, &str)],
    ports: &Value,
    account: &str,
) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let mut profiles = vec![format!("kns.{namespace}")];
    if !account.is_empty() {
        profiles.push(format!("ksa.{namespace}.{account}"));
    }
    json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "WorkloadEndpoint",
        "metadata": {"namespace": namespace, "labels": labels},
        "spec": {
            "orchestrator": "k8s",
            "node": pod.node,
            "pod": pod.name,
            "endpoint": "eth0",
            "serviceAccountName": account,
            "interfaceName": pod.interface,
            "ipNetworks": [format!("{}/32", pod.v4), format!("{}/128", pod.v6)],
            "profiles": profiles,
            "ports": ports,
        },
    })
}

/// Converts an object of a fixture to the stored resource. Kubernetes' policies are converted as its controller does.
pub(crate) fn resource(value: Value) -> Result<Resource> {
    let text = value.to_string();
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version.starts_with("networking.k8s.io/") {
        let policy: api::kubernetes::NetworkPolicy =
            serde_json::from_value(value).with_context(|| text.clone())?;
        let converted = model::kubernetes::network_policy::kubernetes_network_policy(&policy)?;
        anyhow::ensure!(converted.problems.is_empty(), "{text}: {:?}", converted.problems);
        let Some(Resource::KubernetesNetworkPolicy(object)) = converted.pair.as_resource() else {
            anyhow::bail!("{text}: not converted");
        };
        let name = format!("knp.default.{}", object.metadata.name);
        return Ok(api::NetworkPolicy::new(&object.metadata.namespace, &name, object.spec.0.clone()).into());
    }
    // Read as strictly as users' files: a fixture must not contain an unknown field.
    let mut documents = api::document::read("fixture", text.as_bytes(), api::document::Checks::Structure)
        .map_err(|errors| anyhow::anyhow!("{text}: {errors:?}"))?;
    let mut resource = documents.pop().with_context(|| format!("{text}: no object"))?.resource;
    resource.set_defaults();
    Ok(resource)
}
