//! The learned routes for the kernel. They are in the main table, with the family's normal priority as metric or the
//! one derived from their local preference.
//!
//! For each route, the first of these that decides is final: inside [`Kernel::services`]: no. Learned by BGP with its
//! next hop in [`Kernel::wireguard`]: no. Inside a pool of [`Kernel::pools`]: according to [`PoolRoutes::programmer`].
//! Any other: yes.

use crate::values::Prefix;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The learned routes for the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Service networks, in order: their learned routes are ignored, because this node's proxy handles them.
    pub services: Vec<Prefix>,
    /// Nodes that are reached through WireGuard: Felix programs the routes to their workloads.
    pub wireguard: BTreeSet<IpAddr>,
    /// Pools, in order. Pools do not overlap.
    pub pools: Vec<PoolRoutes>,
    /// The network of the node's address, which distinguishes near next hops from far ones.
    pub subnet: Option<Prefix>,
}

impl Kernel {
    /// The kernel's main table.
    pub const TABLE: u32 = 254;

    /// The programmer of the route to this network, as far as its pool decides.
    #[must_use]
    pub fn programmer(&self, route: Prefix) -> Programmer {
        let pool = self.pools.iter().find(|pool| pool.prefix.contains(route));
        pool.map_or(Programmer::Bgp(Encapsulation::None), |pool| pool.programmer)
    }
}

/// The programmer of the routes to the blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRoutes {
    /// The pool.
    pub prefix: Prefix,
    /// The programmer of the routes.
    pub programmer: Programmer,
}

/// The program that creates a route in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programmer {
    /// Felix, because the pool uses VXLAN.
    FelixVxlan,
    /// Felix, because of `programClusterRoutes`.
    Felix,
    /// The BGP backend.
    Bgp(Encapsulation),
}

/// How packets travel to other nodes of a pool when the BGP backend programs the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// Not encapsulated.
    None,
    /// In IP in IP, over `tunl0`.
    IpIp,
    /// In IP in IP, but not encapsulated to a next hop in the node's own network ([`Kernel::subnet`]).
    IpIpCrossSubnet,
}
