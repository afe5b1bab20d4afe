//! What can be asked for: the choices, and a whole lab as flags or a file name it.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How packets of pods travel between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Encap {
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

/// Who carries routes between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bgp {
    /// Nobody speaks BGP: Felix, or the router.
    #[default]
    None,
    /// This program's own speaker, on every node and on every rack's router.
    Native,
    /// BIRD, on every node and on every rack's router.
    Bird,
}

impl Bgp {
    /// Whether anybody speaks BGP; each subnet is a rack with a router of its own then.
    #[must_use]
    pub(crate) fn is_spoken(self) -> bool {
        self != Self::None
    }
}

/// The packet filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dataplane {
    /// Through `iptables-restore`.
    Iptables,
    /// Through netlink.
    #[default]
    Nftables,
    /// eBPF programs on interfaces, with nftables beside them.
    Ebpf,
}

/// Where the data live.
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

/// What was asked for: flags, or a topology file. Everything that is left out has a default.
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
    /// How packets travel between nodes.
    pub encap: Option<Encap>,
    /// Who carries routes between nodes.
    pub bgp: Option<Bgp>,
    /// How many Typhas stand between the datastore and the nodes.
    pub typhas: Option<usize>,
    /// Whether nodes log flows, to a Goldmane at the router.
    pub flows: Option<bool>,
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
    /// The range of nodes' IPv4 addresses: each subnet is a /24 of it.
    pub node_cidr: Option<String>,
    /// The prefix length of a node's IPv4 address on its device: 24, or 32 where even neighbours are reached by the router.
    pub node_prefix: Option<u8>,
    /// The MTU of the network between nodes.
    pub mtu: Option<u32>,
    /// The range of Kubernetes' services.
    pub service_cidr: Option<String>,
    /// Variables of every node, on top of the lab's own.
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
    /// The range that Kubernetes gives the node for its pods.
    #[serde(default)]
    pub pod_cidr: Option<String>,
    /// Variables of this node, on top of every node's.
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
