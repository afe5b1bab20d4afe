//! Which learned routes go to the kernel, and how. They go to the main table, with the family's normal priority as metric
//! or what their local preference says.
//!
//! For each route, in this order; the first answer holds: inside [`Kernel::services`]: no. Learned by BGP with its next hop
//! in [`Kernel::wireguard`]: no. Inside a pool of [`Kernel::pools`]: as [`PoolRoutes::programmer`] says. Any other: yes.

use crate::values::Prefix;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Which learned routes go to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Service networks: whatever is learned about them, this node's proxy handles them. In order.
    pub services: Vec<Prefix>,
    /// Nodes that are reached through WireGuard: Felix makes the routes to what is behind them.
    pub wireguard: BTreeSet<IpAddr>,
    /// Pools, in order. Pools do not overlap.
    pub pools: Vec<PoolRoutes>,
    /// The network of the node's address, which tells near next hops from far ones.
    pub subnet: Option<Prefix>,
}

impl Kernel {
    /// The kernel's table.
    pub const TABLE: u32 = 254;

    /// Who makes the route to this network, as far as its pool decides.
    #[must_use]
    pub fn programmer(&self, route: Prefix) -> Programmer {
        let pool = self.pools.iter().find(|pool| pool.prefix.contains(route));
        pool.map_or(Programmer::Bgp(Encapsulation::None), |pool| pool.programmer)
    }
}

/// Who makes the routes to the blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRoutes {
    /// The pool.
    pub prefix: Prefix,
    /// Who makes the routes.
    pub programmer: Programmer,
}

/// Who makes a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programmer {
    /// Felix, because the pool uses VXLAN.
    FelixVxlan,
    /// Felix, because `programClusterRoutes` says so.
    Felix,
    /// The BGP backend.
    Bgp(Encapsulation),
}

/// How packets to another node of a pool travel when the BGP backend makes the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// As they are.
    None,
    /// In IP in IP, over `tunl0`.
    IpIp,
    /// In IP in IP, but as they are to a next hop in the node's own network ([`Kernel::subnet`]).
    IpIpCrossSubnet,
}
