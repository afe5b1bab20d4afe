//! Objects that are passed on whole, because some component needs all their fields, along with the fields that are
//! parsed.
//!
//! A field that cannot be read is missing among the parsed fields; it was reported when the entry was created.

use api::scalars::Network;
use selector::Selector;
use std::net::IpAddr;

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// As it is stored.
    pub object: api::Node,
    /// Its addresses.
    pub addresses: NodeAddresses,
}

/// The addresses in a node's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// The addresses for BGP; present when the object has at least one, readable or not.
    pub bgp: Option<BgpAddresses>,
    /// The addresses that Kubernetes lists.
    pub listed: Vec<ListedAddress>,
    /// The address of the IP-in-IP device.
    pub ipip: Option<IpAddr>,
    /// The addresses of the VXLAN devices.
    pub vxlan: Vec<IpAddr>,
    /// The addresses of the WireGuard devices.
    pub wireguard: Vec<IpAddr>,
}

/// A node's addresses for BGP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BgpAddresses {
    /// The IPv4 address.
    pub ipv4: Option<BgpAddress>,
    /// The IPv6 address.
    pub ipv6: Option<BgpAddress>,
}

/// An address for BGP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BgpAddress {
    /// The address with its network.
    pub network: Network,
    /// Whether a prefix length was written. Without one, nothing is known about the subnet.
    pub has_length: bool,
}

/// An address that Kubernetes lists for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAddress {
    /// The kind of address, such as [`api::INTERNAL_IP`].
    pub address_type: String,
    /// The address with its network.
    pub network: Network,
}

/// A BGP peer.
#[derive(Clone, Debug, PartialEq)]
pub struct BgpPeer {
    /// As it is stored.
    pub object: api::BGPPeer,
    /// The nodes that it applies to, unless it names one.
    pub nodes: Option<Selector>,
    /// The workloads that it applies to.
    pub local_workloads: Option<Selector>,
}

/// A virtual machine that moves from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveMigration {
    /// As it is stored.
    pub object: api::LiveMigration,
    /// The endpoints that it moves to.
    pub target: Option<Selector>,
}
