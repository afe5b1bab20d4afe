//! What a lab is to look like: nodes, subnets, pods, encapsulation, packet filter, datastore, IP versions.
//!
//! Pure: flags and a file go in, a complete and possible plan comes out, or one sentence that says what is impossible.
//! Addresses follow from positions, so the same plan always gives the same lab. It refuses to touch the kernel.

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As many as one machine can show; more is a mistake in a number.
const MOST_NODES: usize = 32;
const MOST_SUBNETS: usize = 16;
const MOST_PODS: usize = 200;
/// With this, paths of sockets in the lab's folder stay below the kernel's limit.
const LONGEST_NAME: usize = 24;

/// How packets of pods travel between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Encap {
    /// As they are; the router between the subnets knows the pods.
    None,
    /// In VXLAN, always.
    #[default]
    Vxlan,
    /// In IP in IP, always.
    Ipip,
    /// In VXLAN, only between subnets.
    CrossSubnet,
}

/// The packet filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Dataplane {
    /// Through `iptables-restore`.
    Iptables,
    /// Through netlink.
    #[default]
    Nftables,
}

/// Where the data live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Datastore {
    /// This program's own store.
    #[default]
    Embedded,
    /// An etcd server.
    Etcd,
    /// A kube-apiserver, on this program's own store.
    Kubernetes,
}

/// The versions of IP that pods and nodes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Families {
    /// IPv4 only.
    #[default]
    #[serde(rename = "ipv4")]
    #[value(name = "ipv4")]
    V4,
    /// IPv6 only.
    #[serde(rename = "ipv6")]
    #[value(name = "ipv6")]
    V6,
    /// Both.
    #[serde(rename = "dual-stack")]
    #[value(name = "dual-stack")]
    Dual,
}

impl Families {
    /// Whether IPv4 is in it.
    #[must_use]
    pub fn has_v4(self) -> bool {
        self != Self::V6
    }

    /// Whether IPv6 is in it.
    #[must_use]
    pub fn has_v6(self) -> bool {
        self != Self::V4
    }
}

/// What was asked for: flags, or a topology file. Everything that is left out has a default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Wish {
    /// The nodes; `node_count` of them if none are listed.
    pub nodes: Vec<NodeWish>,
    /// How many nodes.
    pub node_count: Option<usize>,
    /// The pods; `pod_count` of them if none are listed.
    pub pods: Vec<PodWish>,
    /// How many pods.
    pub pod_count: Option<usize>,
    /// How many subnets the nodes are in.
    pub subnets: Option<usize>,
    /// How packets travel between nodes.
    pub encap: Option<Encap>,
    /// The packet filter.
    pub dataplane: Option<Dataplane>,
    /// Where the data live.
    pub datastore: Option<Datastore>,
    /// The versions of IP.
    pub family: Option<Families>,
    /// The range of pods' IPv4 addresses.
    pub pod_cidr: Option<String>,
    /// The prefix length of its blocks.
    pub block_size: Option<u8>,
    /// Variables of every node, on top of the lab's own.
    pub node_environment: BTreeMap<String, String>,
}

/// A node of a topology file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeWish {
    /// Its name.
    pub name: String,
    /// The number of its subnet, from 0.
    #[serde(default)]
    pub subnet: Option<usize>,
    /// The range that Kubernetes gives the node for its pods.
    #[serde(default)]
    pub pod_cidr: Option<String>,
}

/// A pod of a topology file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodWish {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Its node; the next one in turn if none.
    #[serde(default)]
    pub node: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The ports it answers on, TCP and UDP.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The number of its subnet.
    pub subnet: usize,
    /// Its IPv4 address with its subnet's prefix, where the lab has IPv4.
    #[serde(with = "optional_net")]
    pub v4: Option<IpNet>,
    /// Its IPv6 address with its subnet's prefix, where the lab has IPv6.
    #[serde(with = "optional_net")]
    pub v6: Option<IpNet>,
    /// The range that Kubernetes gives it for its pods.
    #[serde(with = "optional_net")]
    pub pod_cidr: Option<IpNet>,
}

/// A pod of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
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
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The lab's name.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// How many subnets.
    pub subnets: usize,
    /// The pods to begin with.
    pub pods: Vec<Pod>,
    /// How packets travel between nodes.
    pub encap: Encap,
    /// The packet filter.
    pub dataplane: Dataplane,
    /// Where the data live.
    pub datastore: Datastore,
    /// The versions of IP.
    pub families: Families,
    /// The range of pods' IPv4 addresses.
    #[serde(with = "net")]
    pub pod_cidr: IpNet,
    /// The prefix length of its blocks.
    pub block_size: u8,
    /// Variables of every node, on top of the lab's own.
    pub node_environment: BTreeMap<String, String>,
}

/// What is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A name that nothing can have.
    #[error(
        "'{name}' cannot be the name of a {what}: use 1 to {longest} lower-case letters, digits and dashes"
    )]
    Name {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
        /// How long it may be.
        longest: usize,
    },
    /// Something twice.
    #[error("there are two {what}s with the name '{name}'")]
    Twice {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A number out of range.
    #[error("{count} {what}: a lab has {least} to {most}")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        count: usize,
        /// The least.
        least: usize,
        /// The most.
        most: usize,
    },
    /// More subnets than nodes.
    #[error("{subnets} subnets for {nodes} node(s): each subnet needs a node")]
    EmptySubnet {
        /// Subnets.
        subnets: usize,
        /// Nodes.
        nodes: usize,
    },
    /// A subnet that is not there.
    #[error("node '{node}' is to be in subnet {subnet}, and the lab has subnets 0 to {last}")]
    NoSubnet {
        /// The node.
        node: String,
        /// The subnet.
        subnet: usize,
        /// The last one.
        last: usize,
    },
    /// A node that is not there.
    #[error("pod '{pod}' is to be on node '{node}', and the lab has {nodes}")]
    NoNode {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
        /// The nodes.
        nodes: String,
    },
    /// IP in IP carries IPv4 only.
    #[error("IP in IP carries IPv4 only: choose --encap vxlan for IPv6")]
    IpipWithV6,
    /// A pool that is none.
    #[error("'{0}' is no IPv4 range for pods, such as 172.16.0.0/16")]
    PodCidr(String),
    /// A node's range that is none.
    #[error("'{1}' is no range for the pods of node '{0}'")]
    NodePodCidr(String, String),
    /// A pool in the way of the nodes.
    #[error("the range {0} for pods overlaps the nodes' own addresses in 10.65.0.0/16")]
    PodCidrInUse(String),
    /// Blocks that do not fit.
    #[error("blocks of /{block} do not fit the pool {pool}: choose a block size from {least} to 32")]
    BlockSize {
        /// The block size.
        block: u8,
        /// The pool.
        pool: String,
        /// The least one.
        least: u8,
    },
    /// A port that is none.
    #[error("pod '{0}' cannot answer on port 0")]
    Port(String),
    /// A label that is none.
    #[error("'{0}' is no label: write NAME=VALUE")]
    Label(String),
    /// A file that cannot be understood.
    #[error("the topology file cannot be understood: {0}")]
    File(String),
}

/// What the pods that nobody names are called, in which namespace, with which labels.
const CAST: [(&str, &str, &str); 6] = [
    ("shop", "frontend", "front"),
    ("shop", "cart", "middle"),
    ("shop", "database", "back"),
    ("billing", "ledger", "back"),
    ("billing", "report", "front"),
    ("ops", "monitor", "tools"),
];

/// The ports of pods that name none.
pub const USUAL_PORTS: [u16; 2] = [80, 8080];

const NODE_RANGE: IpNet = IpNet::V4(ipnet::Ipv4Net::new_assert(Ipv4Addr::new(10, 65, 0, 0), 16));

/// Makes the plan.
///
/// # Errors
/// What is impossible.
pub fn plan(name: &str, wish: &Wish) -> Result<Topology, TopologyError> {
    check_name("lab", name, LONGEST_NAME)?;
    let families = wish.family.unwrap_or_default();
    let encap = wish.encap.unwrap_or_default();
    if encap == Encap::Ipip && families.has_v6() {
        return Err(TopologyError::IpipWithV6);
    }
    let (nodes, subnets) = plan_nodes(wish, families)?;
    let pods = plan_pods(wish, &nodes)?;
    let text = wish.pod_cidr.as_deref().unwrap_or("172.16.0.0/16");
    let pod_cidr: IpNet = text.parse().map_err(|_| TopologyError::PodCidr(text.to_owned()))?;
    if pod_cidr.addr().is_ipv6() || pod_cidr.trunc() != pod_cidr {
        return Err(TopologyError::PodCidr(text.to_owned()));
    }
    if pod_cidr.contains(&NODE_RANGE) || NODE_RANGE.contains(&pod_cidr) {
        return Err(TopologyError::PodCidrInUse(text.to_owned()));
    }
    let block_size = wish.block_size.unwrap_or(26);
    let least = pod_cidr.prefix_len().max(20);
    if !(least..=32).contains(&block_size) {
        return Err(TopologyError::BlockSize { block: block_size, pool: text.to_owned(), least });
    }
    Ok(Topology {
        name: name.to_owned(),
        nodes,
        subnets,
        pods,
        encap,
        dataplane: wish.dataplane.unwrap_or_default(),
        datastore: wish.datastore.unwrap_or_default(),
        families,
        pod_cidr,
        block_size,
        node_environment: wish.node_environment.clone(),
    })
}

fn plan_nodes(wish: &Wish, families: Families) -> Result<(Vec<Node>, usize), TopologyError> {
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
            subnet,
            v4: families.has_v4().then(|| subnet_address_v4(subnet, index + 1)),
            v6: families.has_v6().then(|| subnet_address_v6(subnet, index + 1)),
        });
    }
    Ok((nodes, subnets))
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

/// Completes one pod; `index` says whose turn it is among the nodes.
///
/// # Errors
/// What is impossible about it.
pub fn plan_pod(wish: &PodWish, nodes: &[Node], index: usize) -> Result<Pod, TopologyError> {
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

/// Labels as they stand on a command line: `a=b,c=d`.
///
/// # Errors
/// What is no label.
pub fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, TopologyError> {
    text.split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(TopologyError::Label(pair.to_owned())),
        })
        .collect()
}

/// The address of host `number` in an IPv4 subnet.
#[must_use]
pub fn subnet_address_v4(subnet: usize, number: usize) -> IpNet {
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let address = Ipv4Addr::new(10, 65, byte(subnet), byte(number));
    IpNet::new_assert(IpAddr::V4(address), 24)
}

/// The address of host `number` in an IPv6 subnet.
#[must_use]
pub fn subnet_address_v6(subnet: usize, number: usize) -> IpNet {
    let word = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    let address = Ipv6Addr::new(0xfd65, 0, 0, word(subnet), 0, 0, 0, word(number));
    IpNet::new_assert(IpAddr::V6(address), 64)
}

/// The router's number in every subnet.
pub const ROUTER: usize = 254;

impl Topology {
    /// The router's addresses in a subnet.
    #[must_use]
    pub fn router_addresses(&self, subnet: usize) -> Vec<IpNet> {
        let mut addresses = Vec::new();
        if self.families.has_v4() {
            addresses.push(subnet_address_v4(subnet, ROUTER));
        }
        if self.families.has_v6() {
            addresses.push(subnet_address_v6(subnet, ROUTER));
        }
        addresses
    }

    /// Where servers of the lab listen: the router's address in the first subnet.
    #[must_use]
    pub fn server_address(&self) -> IpAddr {
        if self.families.has_v4() {
            subnet_address_v4(0, ROUTER).addr()
        } else {
            subnet_address_v6(0, ROUTER).addr()
        }
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
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

/// Names become parts of device names, folders and resources: the narrowest rule of them all.
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

/// Whether a lab could have this name.
///
/// # Errors
/// When not.
pub fn check_lab_name(name: &str) -> Result<(), TopologyError> {
    check_name("lab", name, LONGEST_NAME)
}

/// Networks in JSON are text.
mod net {
    use ipnet::IpNet;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(net: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(net)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The same where there may be none.
mod optional_net {
    use ipnet::IpNet;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(net: &Option<IpNet>, serializer: S) -> Result<S::Ok, S::Error> {
        net.map(|net| net.to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpNet>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests;
