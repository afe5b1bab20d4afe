//! Routes, neighbours, forwarding entries, tunnel devices and link addresses: the desired state, the actual state, and
//! the difference as one batch of netlink operations.
//!
//! - [`RouteTable`]: the routes of one table; where several parts of Felix want one destination, [`RouteClass`]
//!   decides.
//! - [`Ownership`]: decides which of the routes found in the kernel are ours.
//! - [`TunnelNeighbours`]: neighbours and forwarding entries of a VXLAN device.
//! - [`device`]: the tunnel devices themselves.
//! - [`LinkAddresses`]: addresses of workloads' interfaces, for BGP with the workload.
//!
//! Nothing here decides where packets should go, and no route is touched that is not recognisably ours.

mod addresses;
mod connections;
mod desired;
pub mod device;
mod neighbours;
mod ownership;
mod table;

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;

pub use addresses::LinkAddresses;
pub use connections::{Background, ConnectionCleanup};
pub use desired::{PlaceChange, RouteChanges};
pub use neighbours::{TunnelNeighbours, TunnelPeer};
pub use ownership::{Ownership, PROTOCOL_BIRD, PROTOCOL_BOOT, PROTOCOL_CALICO};
pub use table::{RouteTable, TableSettings};

use ipnet::IpNet;
use messages::InterfaceName;
use netlink::MacAddress;
use std::net::IpAddr;
use std::time::Duration;

/// The purpose of a route. Where several routes want the same destination, the first in this order gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteClass {
    /// To a workload of this host.
    LocalWorkload,
    /// To a service, for the host's own packets: by the device where eBPF programs choose a backend.
    Service,
    /// By the WireGuard device, or past it; in a table of its own.
    Wireguard,
    /// To a node of the same subnet, in a pool with VXLAN.
    VxlanSameSubnet,
    /// By the VXLAN device.
    VxlanTunnel,
    /// To a node of the same subnet, in a pool with IP in IP.
    IpipSameSubnet,
    /// By the IP in IP device.
    IpipTunnel,
    /// To a node, in a pool without encapsulation.
    NoEncap,
    /// Drops packets to addresses of our blocks that no workload has. Pools with VXLAN.
    BlackholeVxlan,
    /// Drops packets to addresses of our blocks that no workload has. Pools with IP in IP.
    BlackholeIpip,
    /// Drops packets to addresses of our blocks that no workload has. Pools without encapsulation.
    BlackholeNoEncap,
}

impl RouteClass {
    /// All classes, in order of preference.
    pub const ALL: [Self; 11] = [
        Self::LocalWorkload,
        Self::Service,
        Self::Wireguard,
        Self::VxlanSameSubnet,
        Self::VxlanTunnel,
        Self::IpipSameSubnet,
        Self::IpipTunnel,
        Self::NoEncap,
        Self::BlackholeVxlan,
        Self::BlackholeIpip,
        Self::BlackholeNoEncap,
    ];

    /// Whether packets on such a route leave the host.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        use RouteClass::{IpipSameSubnet, IpipTunnel, NoEncap, VxlanSameSubnet, VxlanTunnel};
        matches!(self, VxlanSameSubnet | VxlanTunnel | IpipSameSubnet | IpipTunnel | NoEncap)
    }
}

/// The name of a route's device; `None` for routes that drop.
pub type Device = Option<InterfaceName>;

/// The identity of a route within its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// The network whose packets take it.
    pub destination: IpNet,
    /// The preference: lower wins. 0 is the kernel's default.
    pub metric: u32,
}

impl RouteKey {
    /// A destination with the kernel's default preference.
    #[must_use]
    pub fn new(destination: IpNet) -> Self {
        Self { destination: destination.trunc(), metric: 0 }
    }
}

/// What should happen to packets for a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The way.
    pub way: Way,
    /// The protocol number; `None` for the table's default.
    pub protocol: Option<u8>,
    /// The largest packet; `None` for the device's MTU.
    pub mtu: Option<u32>,
    /// The hardware address of the neighbour, where it is known.
    pub mac: Option<MacAddress>,
    /// The preferred source address; `None` for the table's.
    pub source: Option<IpAddr>,
}

/// The way of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The destination is directly on the device.
    Direct,
    /// By a gateway that counts as reachable on the device whatever its address.
    Gateway(IpAddr),
    /// Nowhere: packets are dropped.
    Blackhole,
    /// Not by this table: the lookup continues in the next.
    Throw,
}

impl Target {
    /// A target with defaults.
    #[must_use]
    pub const fn new(way: Way) -> Self {
        Self { way, protocol: None, mtu: None, mac: None, source: None }
    }
}

/// The result of bringing the kernel to the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What failed and will be retried, as text.
    pub failures: Vec<String>,
    /// When to call again even if nothing changes.
    pub again_in: Option<Duration>,
}

impl Outcome {
    /// Whether everything is as desired.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn failed(error: &impl ToString) -> Self {
        Self { failures: vec![error.to_string()], again_in: None }
    }
}
