//! The wish for a lab: its choices, and a whole lab as described by flags or a file.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How packets of pods are sent between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Encap {
    /// Unencapsulated; the router between the subnets has routes to pods.
    None,
    /// In VXLAN, always.
    #[default]
    Vxlan,
    /// In IP in IP, always.
    Ipip,
    /// In VXLAN, only between subnets.
    CrossSubnet,
}

/// How routes get from node to node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bgp {
    /// Without BGP: Felix, or the router.
    #[default]
    None,
    /// This program's own speaker, on every node and on every rack's router.
    Native,
    /// BIRD, on every node and on every rack's router.
    Bird,
}

impl Bgp {
    /// Whether there are BGP speakers; then each subnet is a rack with a router of its own.
    #[must_use]
    pub(crate) fn is_spoken(self) -> bool {
        self != Self::None
    }
}

/// The packet filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dataplane {
    /// iptables, through `iptables-restore`.
    Iptables,
    /// nftables, through netlink.
    #[default]
    Nftables,
    /// eBPF programs on interfaces, together with nftables.
    Ebpf,
}

/// Where the data is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Datastore {
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
pub(crate) enum Families {
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
    pub(crate) fn has_v4(self) -> bool {
        self != Self::V6
    }

    /// Whether IPv6 is in it.
    #[must_use]
    pub(crate) fn has_v6(self) -> bool {
        self != Self::V4
    }
}

/// The wish, from flags or a topology file. Everything has a default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Wish {
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
    /// How packets are sent between nodes.
    pub encap: Option<Encap>,
    /// How routes get from node to node.
    pub bgp: Option<Bgp>,
    /// How many Typhas to put between the datastore and the nodes.
    pub typhas: Option<usize>,
    /// Whether nodes log flows, to a Goldmane at the router.
    pub flows: Option<bool>,
    /// The packet filter.
    pub dataplane: Option<Dataplane>,
    /// Where the data is stored.
    pub datastore: Option<Datastore>,
    /// The versions of IP.
    pub family: Option<Families>,
    /// The range of pods' IPv4 addresses.
    pub pod_cidr: Option<String>,
    /// The prefix length of its blocks.
    pub block_size: Option<u8>,
    /// The range of nodes' IPv4 addresses: each subnet is a /24 of it.
    pub node_cidr: Option<String>,
    /// The prefix length of a node's IPv4 address on its device: 24, or 32 if even neighbours are reached through the
    /// router.
    pub node_prefix: Option<u8>,
    /// The MTU of the network between nodes.
    pub mtu: Option<u32>,
    /// The range of Kubernetes' services.
    pub service_cidr: Option<String>,
    /// Variables of all nodes, in addition to the lab's own.
    pub node_environment: BTreeMap<String, String>,
}

/// A node of a topology file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NodeWish {
    /// Its name.
    pub name: String,
    /// The number of its subnet, from 0.
    #[serde(default)]
    pub subnet: Option<usize>,
    /// The range that Kubernetes assigns to the node for its pods.
    #[serde(default)]
    pub pod_cidr: Option<String>,
    /// Variables of this node, in addition to those of all nodes.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A pod of a topology file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PodWish {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Its node; nodes in turn if empty.
    #[serde(default)]
    pub node: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The ports it answers on, TCP and UDP.
    #[serde(default)]
    pub ports: Vec<u16>,
}
