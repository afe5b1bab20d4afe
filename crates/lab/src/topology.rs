//! The shape of a lab: nodes, subnets, pods, encapsulation, packet filter, datastore, IP versions.
//!
//! Pure: takes flags and a file, returns a complete and valid plan, or a one-sentence error. Addresses follow from
//! positions, so the same plan always gives the same lab.

mod error;
mod nets;
mod wish;

pub(crate) use error::TopologyError;
pub(crate) use wish::{Bgp, Dataplane, Datastore, Encap, Families, NodeWish, PodWish, Wish};

use api::scalars::names::{check_label_value, check_qualified_name};
use ipnet::{IpNet, Ipv4Net};
use nets::{net, optional_net};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As many as one machine can run; a larger number is a mistake.
const MOST_NODES: usize = 32;
const MOST_SUBNETS: usize = 16;
const MOST_PODS: usize = 200;
/// With this limit, paths of sockets in the lab's folder stay below the kernel's limit.
const LONGEST_NAME: usize = 24;

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its name.
    pub name: String,
    /// The number of its subnet.
    pub subnet: usize,
    /// Its IPv4 address with its subnet's prefix, if the lab has IPv4.
    #[serde(with = "optional_net")]
    pub v4: Option<IpNet>,
    /// Its IPv6 address with its subnet's prefix, if the lab has IPv6.
    #[serde(with = "optional_net")]
    pub v6: Option<IpNet>,
    /// The range that Kubernetes assigns to it for its pods.
    #[serde(with = "optional_net")]
    pub pod_cidr: Option<IpNet>,
    /// Variables of this node, in addition to those of all nodes.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A pod of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The ports it answers on.
    pub ports: Vec<u16>,
}

impl Pod {
    /// `NAMESPACE/NAME`.
    #[must_use]
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Topology {
    /// The lab's name.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The number of subnets.
    pub subnets: usize,
    /// The initial pods.
    pub pods: Vec<Pod>,
    /// How packets are sent between nodes.
    pub encap: Encap,
    /// How routes get from node to node.
    #[serde(default)]
    pub bgp: Bgp,
    /// The number of Typhas between the datastore and the nodes.
    #[serde(default)]
    pub typhas: usize,
    /// Whether nodes log flows, to a Goldmane at the router.
    #[serde(default)]
    pub flows: bool,
    /// The packet filter.
    pub dataplane: Dataplane,
    /// The datastore.
    pub datastore: Datastore,
    /// The versions of IP.
    pub families: Families,
    /// The range of pods' IPv4 addresses.
    #[serde(with = "net")]
    pub pod_cidr: IpNet,
    /// The prefix length of its blocks.
    pub block_size: u8,
    /// The range of nodes' IPv4 addresses.
    #[serde(with = "net")]
    pub node_cidr: IpNet,
    /// The MTU between nodes, unless it is the kernel's choice.
    pub mtu: Option<u32>,
    /// The range of Kubernetes' services.
    #[serde(with = "optional_net")]
    pub service_cidr: Option<IpNet>,
    /// Variables of all nodes, in addition to the lab's own.
    pub node_environment: BTreeMap<String, String>,
}

/// The names, namespaces and labels of pods that are not named explicitly.
const CAST: [(&str, &str, &str); 6] = [
    ("shop", "frontend", "front"),
    ("shop", "cart", "middle"),
    ("shop", "database", "back"),
    ("billing", "ledger", "back"),
    ("billing", "report", "front"),
    ("ops", "monitor", "tools"),
];

/// The default ports of pods.
pub(crate) const USUAL_PORTS: [u16; 2] = [80, 8080];

/// More Typhas than any lab needs.
const MOST_TYPHAS: usize = 20;
/// The default range of nodes.
const NODE_RANGE: &str = "10.65.0.0/16";
/// The prefix length of a subnet.
const SUBNET_PREFIX: u8 = 24;
/// From the minimum of IPv6 to more than any real network has.
const MTUS: std::ops::RangeInclusive<u32> = 1280..=9216;

/// Creates the plan.
///
/// # Errors
/// When the wish is impossible.
pub(crate) fn plan(name: &str, wish: &Wish) -> Result<Topology, TopologyError> {
    check_name("lab", name, LONGEST_NAME)?;
    let families = wish.family.unwrap_or_default();
    let bgp = wish.bgp.unwrap_or_default();
    // With BGP no tunnels are needed.
    let encap = wish.encap.unwrap_or(if bgp.is_spoken() { Encap::None } else { Encap::default() });
    if bgp.is_spoken() && wish.datastore == Some(Datastore::Kubernetes) {
        return Err(TopologyError::BgpOnKubernetes);
    }
    if encap == Encap::Ipip && families.has_v6() {
        return Err(TopologyError::IpipWithV6);
    }
    let (nodes, subnets, node_cidr) = plan_nodes(wish, families)?;
    if let Some(name) = (0..subnets)
        .map(rack_router)
        .find(|name| bgp.is_spoken() && nodes.iter().any(|node| node.name == *name))
    {
        return Err(TopologyError::RouterName(name));
    }
    let pods = plan_pods(wish, &nodes)?;
    let text = wish.pod_cidr.as_deref().unwrap_or("172.16.0.0/16");
    let pod_cidr: IpNet = text.parse().map_err(|_| TopologyError::PodCidr(text.to_owned()))?;
    if pod_cidr.addr().is_ipv6() || pod_cidr.trunc() != pod_cidr {
        return Err(TopologyError::PodCidr(text.to_owned()));
    }
    if pod_cidr.contains(&node_cidr) || node_cidr.contains(&pod_cidr) {
        return Err(TopologyError::PodCidrInUse { pods: text.to_owned(), nodes: node_cidr.to_string() });
    }
    let block_size = wish.block_size.unwrap_or(26);
    let least = pod_cidr.prefix_len().max(20);
    if !(least..=32).contains(&block_size) {
        return Err(TopologyError::BlockSize { block: block_size, pool: text.to_owned(), least });
    }
    if let Some(mtu) = wish.mtu.filter(|mtu| !MTUS.contains(mtu)) {
        return Err(TopologyError::Mtu(mtu));
    }
    let typhas = wish.typhas.unwrap_or_default();
    if typhas > MOST_TYPHAS {
        return Err(TopologyError::Typhas(typhas));
    }
    let flows = wish.flows.unwrap_or_default();
    if flows && typhas > 0 {
        return Err(TopologyError::FlowsWithTypha);
    }
    let service_cidr = wish.service_cidr.as_deref().map(service_range).transpose()?;
    Ok(Topology {
        name: name.to_owned(),
        nodes,
        subnets,
        pods,
        encap,
        bgp,
        typhas,
        flows,
        dataplane: wish.dataplane.unwrap_or_default(),
        datastore: wish.datastore.unwrap_or_default(),
        families,
        pod_cidr,
        block_size,
        node_cidr,
        mtu: wish.mtu,
        service_cidr,
        node_environment: wish.node_environment.clone(),
    })
}

/// A range that kube-apiserver accepts for services.
fn service_range(text: &str) -> Result<IpNet, TopologyError> {
    let range: Option<IpNet> = text.parse().ok().filter(|range: &IpNet| range.trunc() == *range);
    range
        .filter(|range| {
            (range.max_prefix_len() - 20..=range.max_prefix_len() - 2).contains(&range.prefix_len())
        })
        .ok_or_else(|| TopologyError::ServiceCidr(text.to_owned()))
}

/// The range of nodes, if it is large enough for the subnets.
fn node_range(wish: &Wish, subnets: usize) -> Result<Ipv4Net, TopologyError> {
    let text = wish.node_cidr.as_deref().unwrap_or(NODE_RANGE);
    let wrong = || TopologyError::NodeCidr { range: text.to_owned(), subnets };
    let range: Ipv4Net = text.parse().map_err(|_| wrong())?;
    let fits = range.trunc() == range
        && (8..=SUBNET_PREFIX).contains(&range.prefix_len())
        && subnets <= 1 << (SUBNET_PREFIX - range.prefix_len());
    if fits { Ok(range) } else { Err(wrong()) }
}

fn plan_nodes(wish: &Wish, families: Families) -> Result<(Vec<Node>, usize, IpNet), TopologyError> {
    let numbered = |count: usize| {
        (1..=count).map(|number| NodeWish { name: format!("node{number}"), ..NodeWish::default() })
    };
    let wanted: Vec<NodeWish> = if wish.nodes.is_empty() {
        let count = wish.node_count.unwrap_or(3);
        check_count("nodes", count, 1, MOST_NODES)?;
        numbered(count).collect()
    } else {
        check_count("nodes", wish.nodes.len(), 1, MOST_NODES)?;
        wish.nodes.clone()
    };
    let listed = wanted.iter().filter_map(|node| node.subnet).max().map(|last| last.saturating_add(1));
    let subnets = wish.subnets.or(listed).unwrap_or_else(|| wanted.len().min(2));
    check_count("subnets", subnets, 1, MOST_SUBNETS)?;
    if subnets > wanted.len() {
        return Err(TopologyError::EmptySubnet { subnets, nodes: wanted.len() });
    }
    let range = node_range(wish, subnets)?;
    let prefix = wish.node_prefix.unwrap_or(SUBNET_PREFIX);
    if ![SUBNET_PREFIX, 32].contains(&prefix) {
        return Err(TopologyError::NodePrefix(prefix));
    }
    let mut names = BTreeSet::new();
    let mut nodes = Vec::with_capacity(wanted.len());
    for (index, node) in wanted.iter().enumerate() {
        check_name("node", &node.name, 63)?;
        if !names.insert(&node.name) {
            return Err(TopologyError::Twice { what: "node", name: node.name.clone() });
        }
        let subnet = node.subnet.unwrap_or(index * subnets / wanted.len());
        if subnet >= subnets {
            return Err(TopologyError::NoSubnet { node: node.name.clone(), subnet, last: subnets - 1 });
        }
        let pod_cidr = node.pod_cidr.as_ref().map(|text| {
            text.parse::<IpNet>().map_err(|_| TopologyError::NodePodCidr(node.name.clone(), text.clone()))
        });
        nodes.push(Node {
            name: node.name.clone(),
            pod_cidr: pod_cidr.transpose()?,
            environment: node.environment.clone(),
            subnet,
            v4: families.has_v4().then(|| {
                IpNet::new_assert(subnet_address_v4(IpNet::V4(range), subnet, index + 1).addr(), prefix)
            }),
            v6: families.has_v6().then(|| subnet_address_v6(subnet, index + 1)),
        });
    }
    Ok((nodes, subnets, IpNet::V4(range)))
}

fn plan_pods(wish: &Wish, nodes: &[Node]) -> Result<Vec<Pod>, TopologyError> {
    let wanted: Vec<PodWish> = if wish.pods.is_empty() {
        let count = wish.pod_count.unwrap_or(CAST.len());
        check_count("pods", count, 0, MOST_PODS)?;
        (0..count).map(cast).collect()
    } else {
        check_count("pods", wish.pods.len(), 0, MOST_PODS)?;
        wish.pods.clone()
    };
    let mut names = BTreeSet::new();
    let mut pods = Vec::with_capacity(wanted.len());
    for (index, pod) in wanted.iter().enumerate() {
        let pod = plan_pod(pod, nodes, index)?;
        if !names.insert(pod.full_name()) {
            return Err(TopologyError::Twice { what: "pod", name: pod.full_name() });
        }
        pods.push(pod);
    }
    Ok(pods)
}

/// Completes one pod; `index` selects its node if it names none.
///
/// # Errors
/// When the wish is impossible.
pub(crate) fn plan_pod(wish: &PodWish, nodes: &[Node], index: usize) -> Result<Pod, TopologyError> {
    let namespace = wish.namespace.clone().unwrap_or_else(|| "default".to_owned());
    check_name("namespace", &namespace, 63)?;
    check_name("pod", &wish.name, 63)?;
    let node = match &wish.node {
        Some(name) => nodes.iter().find(|node| node.name == *name).ok_or_else(|| TopologyError::NoNode {
            pod: wish.name.clone(),
            node: name.clone(),
            nodes: nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", "),
        })?,
        None => &nodes[index % nodes.len()],
    };
    let ports = if wish.ports.is_empty() { USUAL_PORTS.to_vec() } else { wish.ports.clone() };
    if ports.contains(&0) {
        return Err(TopologyError::Port(wish.name.clone()));
    }
    for (name, value) in &wish.labels {
        check_label(name, value)?;
    }
    let ports: BTreeSet<u16> = ports.into_iter().collect();
    Ok(Pod {
        namespace,
        name: wish.name.clone(),
        node: node.name.clone(),
        labels: wish.labels.clone(),
        ports: ports.into_iter().collect(),
    })
}

fn cast(index: usize) -> PodWish {
    let (namespace, app, tier) = CAST[index % CAST.len()];
    let round = index / CAST.len();
    let name = if round == 0 { app.to_owned() } else { format!("{app}-{}", round + 1) };
    PodWish {
        name,
        namespace: Some(namespace.to_owned()),
        labels: [("app", app), ("tier", tier)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..PodWish::default()
    }
}

/// Parses labels in the form of the command line: `a=b,c=d`.
///
/// # Errors
/// When a part is not a label.
pub(crate) fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, TopologyError> {
    text.split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(TopologyError::Label(pair.to_owned())),
        })
        .collect()
}

/// Checks that Kubernetes and Calico would accept a label.
fn check_label(name: &str, value: &str) -> Result<(), TopologyError> {
    let wrong = |reason: String| TopologyError::BadLabel { label: format!("{name}={value}"), reason };
    check_qualified_name(name).map_err(wrong)?;
    check_label_value(value).map_err(|reason| wrong(reason.to_owned()))
}

/// The address of host `number` in an IPv4 subnet of the nodes' range.
#[must_use]
pub(crate) fn subnet_address_v4(range: IpNet, subnet: usize, number: usize) -> IpNet {
    let start = match range {
        IpNet::V4(range) => range.network().to_bits(),
        // Never planned: the range of nodes is IPv4.
        IpNet::V6(_) => 0,
    };
    let offset = u32::try_from(subnet * 256 + number).unwrap_or(u32::MAX);
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::from_bits(start.wrapping_add(offset))), SUBNET_PREFIX)
}

/// The address of host `number` in an IPv6 subnet.
#[must_use]
pub(crate) fn subnet_address_v6(subnet: usize, number: usize) -> IpNet {
    let word = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    let address = Ipv6Addr::new(0xfd65, 0, 0, word(subnet), 0, 0, 0, word(number));
    IpNet::new_assert(IpAddr::V6(address), 64)
}

/// The router's number in every subnet.
pub(crate) const ROUTER: usize = 254;

/// The network between the routers of racks.
const BACKBONE: &str = "192.0.2.0/24";

/// The name of the router of a rack.
#[must_use]
pub(crate) fn rack_router(subnet: usize) -> String {
    format!("tor{}", subnet + 1)
}

impl Topology {
    /// The router's addresses in a subnet.
    #[must_use]
    pub(crate) fn router_addresses(&self, subnet: usize) -> Vec<IpNet> {
        let mut addresses = Vec::new();
        if self.families.has_v4() {
            addresses.push(subnet_address_v4(self.node_cidr, subnet, ROUTER));
        }
        if self.families.has_v6() {
            addresses.push(subnet_address_v6(subnet, ROUTER));
        }
        addresses
    }

    /// The addresses of host `number` on the backbone, which the routers of racks and the lab's router share.
    #[must_use]
    pub(crate) fn backbone_addresses(&self, number: usize) -> Vec<IpNet> {
        let mut addresses = Vec::new();
        if let (true, Ok(range)) = (self.families.has_v4(), BACKBONE.parse()) {
            addresses.push(subnet_address_v4(range, 0, number));
        }
        if self.families.has_v6() {
            addresses.push(subnet_address_v6(0xffff, number));
        }
        addresses
    }

    /// The racks, by subnet, if there are BGP speakers.
    pub(crate) fn racks(&self) -> std::ops::Range<usize> {
        if self.bgp.is_spoken() { 0..self.subnets } else { 0..0 }
    }

    /// The AS number of a rack.
    #[must_use]
    pub(crate) fn rack_as(&self, subnet: usize) -> u32 {
        64601 + u32::try_from(subnet).unwrap_or_default()
    }

    /// The address of the lab's servers: the router's in the first subnet, or on the backbone of racks.
    #[must_use]
    pub(crate) fn server_address(&self) -> IpAddr {
        if let (true, Some(address)) = (self.bgp.is_spoken(), self.backbone_addresses(ROUTER).first()) {
            return address.addr();
        }
        if self.families.has_v4() {
            subnet_address_v4(self.node_cidr, 0, ROUTER).addr()
        } else {
            subnet_address_v6(0, ROUTER).addr()
        }
    }

    /// Whether nodes maintain the CNI plugin's configuration, and so need the machine's folders for it.
    #[must_use]
    pub(crate) fn manages_cni(&self) -> bool {
        self.node_environment.get("CALICO_MANAGE_CNI").is_some_and(|value| value == "true")
    }

    /// The node of this name.
    #[must_use]
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

fn check_count(what: &'static str, count: usize, least: usize, most: usize) -> Result<(), TopologyError> {
    if (least..=most).contains(&count) {
        Ok(())
    } else {
        Err(TopologyError::Count { what, count, least, most })
    }
}

/// Names become parts of device names, folders and resources; this is the strictest of their rules.
fn check_name(what: &'static str, name: &str, longest: usize) -> Result<(), TopologyError> {
    let fits = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    if !name.is_empty()
        && name.len() <= longest
        && name.chars().all(fits)
        && !name.starts_with('-')
        && !name.ends_with('-')
    {
        Ok(())
    } else {
        Err(TopologyError::Name { what, name: name.to_owned(), longest })
    }
}

/// Checks that a lab could have this name.
///
/// # Errors
/// When the name is not allowed.
pub(crate) fn check_lab_name(name: &str) -> Result<(), TopologyError> {
    check_name("lab", name, LONGEST_NAME)
}

#[cfg(test)]
mod tests;
