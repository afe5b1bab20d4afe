//! What a node announces.
//!
//! For each route and session, in this order; the first answer holds:
//!
//! 1. The route's priority is settled: of a route learned by BGP, its local preference; of others, the kernel's metric, or
//!    the family's normal priority where there is none. It is sent as local preference within the AS.
//! 2. The export filters of the session.
//! 3. Routes inside [`Export::withheld`]: no.
//! 4. Within the AS: routes over an interface in [`Export::tunnels`]: no. Every node makes its own.
//! 5. Routes over an interface in [`Export::local`]: no.
//! 6. Communities are added ([`Export::communities`]).
//! 7. The node's own blocks ([`Export::own_block`]).
//! 8. Routes inside [`Export::services`]: yes.
//! 9. On a route reflector, routes inside [`Export::reflected`]: yes.
//! 10. Routes inside [`Export::pools`]: yes.
//! 11. No.
//!
//! [`Export::originated`] are the routes that exist because the intent says so, whatever the kernel has.

use crate::values::{Community, InterfacePattern, Prefix, Priority};
use std::net::IpAddr;

/// What a node announces in one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The pools that are not announced (`disableBGPExport`), in order.
    pub withheld: Vec<Prefix>,
    /// The interfaces of tunnels whose routes Felix makes on each node.
    pub tunnels: Vec<InterfacePattern>,
    /// The interfaces of routes that never leave the node.
    pub local: Vec<InterfacePattern>,
    /// Communities by network. Every rule that the route lies in adds its own.
    pub communities: Vec<CommunityRule>,
    /// The blocks of this node, in order.
    pub blocks: Vec<OwnBlock>,
    /// Service networks and addresses that this node announces, in order. They are announced though no route to them is
    /// in the kernel.
    pub services: Vec<Prefix>,
    /// Load balancer networks that a route reflector passes on, as configured; empty on other nodes.
    pub reflected_load_balancers: Vec<Prefix>,
    /// External service networks that a route reflector passes on, as configured; empty on other nodes.
    pub reflected_externals: Vec<Prefix>,
    /// The pools that are announced, in order.
    pub pools: Vec<Prefix>,
    /// Routes to peers that are reached by a gateway (`reachableBy`): for the kernel, not announced by themselves.
    pub gateways: Vec<Gateway>,
}

impl Export {
    /// The networks that this node announces whatever the kernel has: its blocks but those of one address, and its
    /// services. They lead nowhere on this node by themselves (blackholes).
    pub fn originated(&self) -> impl Iterator<Item = Prefix> {
        let blocks = self.blocks.iter().map(|block| block.prefix).filter(|prefix| !prefix.is_host());
        blocks.chain(self.services.iter().copied())
    }

    /// What the node's blocks say about a route: yes to a block itself and to a route inside that is preferred to
    /// ordinary ones; no to any other route inside; nothing about routes outside all blocks, or in a block that is being
    /// given up.
    #[must_use]
    pub fn own_block(&self, route: Prefix, priority: Priority, normal: Priority) -> Option<bool> {
        let block = self.blocks.iter().find(|block| block.is_confirmed() && block.prefix.contains(route))?;
        Some(block.prefix == route || priority < normal)
    }

    /// Networks that a route reflector passes on.
    pub fn reflected(&self) -> impl Iterator<Item = Prefix> {
        self.reflected_load_balancers.iter().chain(&self.reflected_externals).copied()
    }
}

/// Communities of the routes in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommunityRule {
    /// The network.
    pub prefix: Prefix,
    /// What its routes carry, sorted by their text, each once.
    pub communities: Vec<Community>,
}

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnBlock {
    /// Its network.
    pub prefix: Prefix,
    /// Whether it is the node's for good.
    pub state: BlockState,
}

impl OwnBlock {
    /// Whether routes inside are hidden behind the block.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        matches!(self.state, BlockState::Confirmed | BlockState::Implicit)
    }
}

/// How far the claim of a block is. Blocks whose claim is pending are not in the intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Claimed.
    Confirmed,
    /// Claimed by a release that wrote no state.
    Implicit,
    /// Being given up, or in a state of a newer release: the route stays, routes inside are not hidden by it.
    Other(String),
}

/// A route to a peer that is reached by a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The peer.
    pub peer: IpAddr,
    /// The gateway.
    pub via: IpAddr,
    /// Whose peer it is.
    pub scope: GatewayScope,
}

/// Whose peer is reached by a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatewayScope {
    /// All nodes'.
    Global,
    /// Some nodes'.
    Node,
}
