//! Where addresses are and how packets reach them: routes, tunnels, hosts, pools, services.

use crate::NodeName;
use api::{IPIPMode, IPPoolAllowedUse, VXLANMode};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is at a destination: any combination of these. The numbers are those of Felix's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTypes(pub u32);

impl RouteTypes {
    /// Nothing but facts about the range, such as its pool.
    pub const CIDR_INFO: Self = Self(0);
    /// A workload on another host.
    pub const REMOTE_WORKLOAD: Self = Self(1);
    /// Another host.
    pub const REMOTE_HOST: Self = Self(2);
    /// A workload on this host.
    pub const LOCAL_WORKLOAD: Self = Self(4);
    /// This host.
    pub const LOCAL_HOST: Self = Self(8);
    /// The tunnel device of another host.
    pub const REMOTE_TUNNEL: Self = Self(16);
    /// The tunnel device of this host.
    pub const LOCAL_TUNNEL: Self = Self(32);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for RouteTypes {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for RouteTypes {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// How packets travel to a destination's pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPoolType {
    /// The destination is in no pool.
    #[default]
    None,
    /// Without encapsulation.
    NoEncap,
    /// Encapsulated in VXLAN.
    Vxlan,
    /// Encapsulated in IP in IP.
    Ipip,
}

/// The tunnels for which an address is the device's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelType {
    /// IP in IP.
    pub ipip: bool,
    /// VXLAN.
    pub vxlan: bool,
    /// WireGuard.
    pub wireguard: bool,
}

/// The owner of a range of addresses, and how packets get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The range.
    pub dst: IpNet,
    /// What is at the destination.
    pub types: RouteTypes,
    /// How packets to its pool travel.
    pub ip_pool_type: IpPoolType,
    /// The node that has it.
    pub dst_node_name: Option<NodeName>,
    /// That node's address.
    pub dst_node_ip: Option<IpAddr>,
    /// Whether that node is in this node's subnet.
    pub same_subnet: bool,
    /// Whether packets that leave the cluster from here get the node's address.
    pub nat_outgoing: bool,
    /// Whether it belongs to a local workload.
    pub local_workload: bool,
    /// The tunnels for which it is the device's address.
    pub tunnel_type: TunnelType,
    /// Whether it was taken from another node's block.
    pub borrowed: bool,
}

/// The VXLAN devices of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VxlanTunnelEndpoint {
    /// The IPv4 device's hardware address; empty if there is no device.
    pub mac: String,
    /// The IPv4 device's address.
    pub ipv4: Option<Ipv4Addr>,
    /// The node's IPv4 address.
    pub parent_device_ipv4: Option<Ipv4Addr>,
    /// The IPv6 device's hardware address; empty if there is no device.
    pub mac_v6: String,
    /// The IPv6 device's address.
    pub ipv6: Option<Ipv6Addr>,
    /// The node's IPv6 address.
    pub parent_device_ipv6: Option<Ipv6Addr>,
}

/// A WireGuard peer for IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireguardEndpoint {
    /// Its public key.
    pub public_key: String,
    /// The address of its device.
    pub interface_ipv4: Option<Ipv4Addr>,
}

/// A WireGuard peer for IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireguardEndpointV6 {
    /// Its public key.
    pub public_key: String,
    /// The address of its device.
    pub interface_ipv6: Option<Ipv6Addr>,
}

/// What is known about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMetadata {
    /// Its IPv4 address, with its network if that is known: `10.0.0.1/24`; empty if there is none.
    pub ipv4_addr: String,
    /// Its IPv6 address, with its network if that is known; empty if there is none.
    pub ipv6_addr: String,
    /// Its AS number; empty for the default.
    pub as_number: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// An address pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpamPool {
    /// The range.
    pub cidr: IpNet,
    /// Whether packets that leave the cluster get the node's address.
    pub masquerade: bool,
    /// When packets between nodes are encapsulated in IP in IP.
    pub ipip_mode: IPIPMode,
    /// When packets between nodes are encapsulated in VXLAN.
    pub vxlan_mode: VXLANMode,
    /// What its addresses may be used for.
    pub allowed_uses: Vec<IPPoolAllowedUse>,
}

/// The kinds of encapsulation that the pools require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encapsulation {
    /// IP in IP.
    pub ipip: bool,
    /// VXLAN between IPv4 hosts.
    pub vxlan: bool,
    /// VXLAN between IPv6 hosts.
    pub vxlan_v6: bool,
    /// Some pool is routed without encapsulation.
    pub no_encap: bool,
}

/// The BGP settings that matter to the dataplane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalBgpConfig {
    /// The ranges of cluster addresses.
    pub service_cluster_cidrs: Vec<String>,
    /// The ranges of external addresses.
    pub service_external_cidrs: Vec<String>,
    /// The ranges of load balancers' addresses.
    pub service_loadbalancer_cidrs: Vec<String>,
    /// The IPv4 address that workloads peer with.
    pub local_workload_peering_ip_v4: String,
    /// The IPv6 address that workloads peer with.
    pub local_workload_peering_ip_v6: String,
}

/// A Kubernetes service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its type.
    pub service_type: String,
    /// Its cluster addresses.
    pub cluster_ips: Vec<String>,
    /// The load balancer address that was requested.
    pub loadbalancer_ip: String,
    /// Its external addresses.
    pub external_ips: Vec<String>,
    /// The load balancer addresses that were assigned.
    pub loadbalancer_ingress_ips: Vec<String>,
    /// Its ports: protocol, port, node port.
    pub ports: Vec<(String, i32, i32)>,
}
