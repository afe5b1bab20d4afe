//! Where addresses are, and how to get there: routes, tunnels, hosts, pools, services.

use crate::NodeName;
use api::{IPIPMode, IPPoolAllowedUse, VXLANMode};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is at a destination; several at once are possible. The numbers are those of Felix's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTypes(pub u32);

impl RouteTypes {
    /// Only what is known about the range, such as its pool.
    pub const CIDR_INFO: Self = Self(0);
    /// A workload of another host.
    pub const REMOTE_WORKLOAD: Self = Self(1);
    /// Another host.
    pub const REMOTE_HOST: Self = Self(2);
    /// A workload of this host.
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

/// How packets to the pool of a destination travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPoolType {
    /// There is no pool.
    #[default]
    None,
    /// As they are.
    NoEncap,
    /// In VXLAN.
    Vxlan,
    /// In IP in IP.
    Ipip,
}

/// Which tunnels an address is the device address of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelType {
    /// IP in IP.
    pub ipip: bool,
    /// VXLAN.
    pub vxlan: bool,
    /// WireGuard.
    pub wireguard: bool,
}

/// Where a range of addresses is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The range.
    pub dst: IpNet,
    /// What is there.
    pub types: RouteTypes,
    /// How packets to its pool travel.
    pub ip_pool_type: IpPoolType,
    /// The node that has it.
    pub dst_node_name: Option<NodeName>,
    /// That node's address.
    pub dst_node_ip: Option<IpAddr>,
    /// Whether that node is in this node's subnet.
    pub same_subnet: bool,
    /// Whether packets from it to the outside get the node's address.
    pub nat_outgoing: bool,
    /// Whether a local workload has it.
    pub local_workload: bool,
    /// Which tunnels' device address it is.
    pub tunnel_type: TunnelType,
    /// Whether it was taken from a block of another node.
    pub borrowed: bool,
}

/// The VXLAN devices of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VxlanTunnelEndpoint {
    /// The device's hardware address; empty for none.
    pub mac: String,
    /// The device's address.
    pub ipv4: Option<Ipv4Addr>,
    /// The node's address.
    pub parent_device_ipv4: Option<Ipv4Addr>,
    /// The IPv6 device's hardware address; empty for none.
    pub mac_v6: String,
    /// The IPv6 device's address.
    pub ipv6: Option<Ipv6Addr>,
    /// The node's IPv6 address.
    pub parent_device_ipv6: Option<Ipv6Addr>,
}

/// A WireGuard peer, IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireguardEndpoint {
    /// Its public key.
    pub public_key: String,
    /// The address of its device.
    pub interface_ipv4: Option<Ipv4Addr>,
}

/// A WireGuard peer, IPv6.
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
    /// Its address, perhaps with its network: `10.0.0.1/24`; empty for none.
    pub ipv4_addr: String,
    /// Its IPv6 address, as above.
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
    /// Whether packets to the outside get the node's address.
    pub masquerade: bool,
    /// When packets between nodes are put into IP in IP.
    pub ipip_mode: IPIPMode,
    /// When packets between nodes are put into VXLAN.
    pub vxlan_mode: VXLANMode,
    /// What its addresses may be used for.
    pub allowed_uses: Vec<IPPoolAllowedUse>,
}

/// Which kinds of encapsulation the pools ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encapsulation {
    /// IP in IP.
    pub ipip: bool,
    /// VXLAN between IPv4 hosts.
    pub vxlan: bool,
    /// VXLAN between IPv6 hosts.
    pub vxlan_v6: bool,
    /// None: some pool is routed as it is.
    pub no_encap: bool,
}

/// The settings of BGP that matter to the dataplane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalBgpConfig {
    /// The ranges of cluster addresses.
    pub service_cluster_cidrs: Vec<String>,
    /// The ranges of external addresses.
    pub service_external_cidrs: Vec<String>,
    /// The ranges of load balancers' addresses.
    pub service_loadbalancer_cidrs: Vec<String>,
    /// The address that workloads peer with.
    pub local_workload_peering_ip_v4: String,
    /// The same for IPv6.
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
    /// The load balancer address that was asked for.
    pub loadbalancer_ip: String,
    /// Its external addresses.
    pub external_ips: Vec<String>,
    /// The load balancer addresses that it got.
    pub loadbalancer_ingress_ips: Vec<String>,
    /// Its ports: protocol, port, node port.
    pub ports: Vec<(String, i32, i32)>,
}
