//! The reasons why a lab is impossible, one sentence each.

use crate::called::count;

/// The reason why a lab is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TopologyError {
    /// An invalid name.
    #[error(
        "'{name}' cannot be the name of a {what}: use 1 to {longest} lower-case letters, digits and dashes"
    )]
    Name {
        /// The kind of object.
        what: &'static str,
        /// The name.
        name: String,
        /// The maximum length.
        longest: usize,
    },
    /// A duplicate name.
    #[error("there are two {what}s named '{name}'")]
    Twice {
        /// The kind of object.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A number out of range.
    #[error("{count} {what}: a lab has {least} to {most}")]
    Count {
        /// The kind of object.
        what: &'static str,
        /// The requested number.
        count: usize,
        /// The minimum.
        least: usize,
        /// The maximum.
        most: usize,
    },
    /// More subnets than nodes.
    #[error("{subnets} subnets for {}: each subnet needs a node", count(*nodes, "node"))]
    EmptySubnet {
        /// The number of subnets.
        subnets: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// A subnet that does not exist.
    #[error("node '{node}' should be in subnet {subnet}, but the lab has subnets 0 to {last}")]
    NoSubnet {
        /// The node.
        node: String,
        /// The requested subnet.
        subnet: usize,
        /// The number of the last subnet.
        last: usize,
    },
    /// A node that does not exist.
    #[error("pod '{pod}' should be on node '{node}', but the lab has {nodes}")]
    NoNode {
        /// The pod.
        pod: String,
        /// The requested node.
        node: String,
        /// The existing nodes.
        nodes: String,
    },
    /// IP in IP carries IPv4 only.
    #[error("IP in IP carries IPv4 only: choose --encap vxlan for IPv6")]
    IpipWithV6,
    /// An invalid pool.
    #[error("'{0}' is not an IPv4 range for pods, such as 172.16.0.0/16")]
    PodCidr(String),
    /// An invalid range for a node's pods.
    #[error("'{1}' is not a range for the pods of node '{0}'")]
    NodePodCidr(String, String),
    /// A pool that overlaps the nodes' addresses.
    #[error("the range {pods} for pods overlaps the nodes' own addresses in {nodes}")]
    PodCidrInUse {
        /// The pool.
        pods: String,
        /// The range of nodes.
        nodes: String,
    },
    /// An invalid range for nodes.
    #[error(
        "'{range}' is not an IPv4 range for nodes in {}: each takes a /24, as in 10.65.0.0/16",
        count(*subnets, "subnet")
    )]
    NodeCidr {
        /// The range.
        range: String,
        /// How many subnets it must contain.
        subnets: usize,
    },
    /// A prefix that a node's address cannot have.
    #[error("a node's address cannot be a /{0}: its subnet is a /24, and alone it is a /32")]
    NodePrefix(u8),
    /// An unusable MTU.
    #[error("an MTU of {0} does not work: choose one from 1280 to 9216")]
    Mtu(u32),
    /// An invalid range for services.
    #[error("'{0}' is not a range for services, such as 10.96.0.0/16 (with 12 to 30 bits for IPv4)")]
    ServiceCidr(String),
    /// Blocks that do not fit.
    #[error("blocks of /{block} do not fit the pool {pool}: choose a block size from {least} to 32")]
    BlockSize {
        /// The block size.
        block: u8,
        /// The pool.
        pool: String,
        /// The minimum size.
        least: u8,
    },
    /// BGP where the lab cannot set it up.
    #[error("--bgp needs the embedded datastore or etcd: routers of racks are not nodes of Kubernetes")]
    BgpOnKubernetes,
    /// Too many Typhas.
    #[error("{0} Typhas are too many: a lab has at most 20")]
    Typhas(usize),
    /// Goldmane together with Typha would need certificates of Typha's authority.
    #[error("flows and Typhas cannot be combined yet: leave --flows or --typha out")]
    FlowsWithTypha,
    /// A name that the lab itself needs.
    #[error("a node cannot be called '{0}': this is the name of a rack's router")]
    RouterName(String),
    /// An invalid port.
    #[error("pod '{0}' cannot answer on port 0")]
    Port(String),
    /// A text that is not a label.
    #[error("'{0}' is not a label: write NAME=VALUE")]
    Label(String),
    /// A label that Kubernetes would not accept.
    #[error("'{label}' is not a label: {reason}")]
    BadLabel {
        /// The label.
        label: String,
        /// The reason, in one sentence.
        reason: String,
    },
    /// A file with mistakes.
    #[error("{0}")]
    File(String),
}
