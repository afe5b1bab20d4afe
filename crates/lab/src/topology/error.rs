//! What is impossible about a lab, one sentence each.

use crate::called::count;

/// What is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TopologyError {
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
    #[error("there are two {what}s named '{name}'")]
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
    #[error("{subnets} subnets for {}: each subnet needs a node", count(*nodes, "node"))]
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
    #[error("'{0}' is not an IPv4 range for pods, such as 172.16.0.0/16")]
    PodCidr(String),
    /// A node's range that is none.
    #[error("'{1}' is not a range for the pods of node '{0}'")]
    NodePodCidr(String, String),
    /// A pool in the way of the nodes.
    #[error("the range {pods} for pods overlaps the nodes' own addresses in {nodes}")]
    PodCidrInUse {
        /// The pool.
        pods: String,
        /// The range of nodes.
        nodes: String,
    },
    /// A range for nodes that is none.
    #[error(
        "'{range}' is not an IPv4 range for nodes in {}: each takes a /24, as in 10.65.0.0/16",
        count(*subnets, "subnet")
    )]
    NodeCidr {
        /// The range.
        range: String,
        /// How many subnets it must hold.
        subnets: usize,
    },
    /// A prefix that a node's address cannot have.
    #[error("a node's address cannot be a /{0}: its subnet is a /24, and alone it is a /32")]
    NodePrefix(u8),
    /// An MTU that does not work.
    #[error("an MTU of {0} does not work: choose one from 1280 to 9216")]
    Mtu(u32),
    /// A range for services that is none.
    #[error("'{0}' is not a range for services, such as 10.96.0.0/16 (with 12 to 30 bits for IPv4)")]
    ServiceCidr(String),
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
    /// BGP where the lab cannot set it up.
    #[error("--bgp needs the embedded datastore or etcd: routers of racks are not nodes of Kubernetes")]
    BgpOnKubernetes,
    /// Too many Typhas.
    #[error("{0} Typhas are too many: a lab has at most 20")]
    Typhas(usize),
    /// Goldmane beside Typha would need certificates of Typha's authority.
    #[error("flows and Typhas cannot be in one lab yet: leave --flows or --typha out")]
    FlowsWithTypha,
    /// A name that the lab needs.
    #[error("a node cannot be called '{0}': the router of a rack is")]
    RouterName(String),
    /// A port that is none.
    #[error("pod '{0}' cannot answer on port 0")]
    Port(String),
    /// A label that is none.
    #[error("'{0}' is not a label: write NAME=VALUE")]
    Label(String),
    /// A label that Kubernetes would not take.
    #[error("'{label}' is not a label: {reason}")]
    BadLabel {
        /// The label.
        label: String,
        /// The reason, in one sentence.
        reason: String,
    },
    /// A file that cannot be understood.
    #[error("{0}")]
    File(String),
}
