//! The routes that a node announces.
//!
//! For each route and session, the first of these that decides is final:
//!
//! 1. The route's priority is determined: for a route learned by BGP from its local preference; for others it is the
//!    kernel's metric, or the family's normal priority if there is none. It is sent as local preference within the AS.
//! 2. The export filters of the session.
//! 3. Routes inside [`Export::withheld`]: no.
//! 4. Within the AS: routes over an interface in [`Export::tunnels`]: no. Every node creates its own.
//! 5. Routes over an interface in [`Export::local`]: no.
//! 6. Communities are added ([`Export::communities`]).
//! 7. The node's own blocks ([`Export::own_block`]).
//! 8. Routes inside [`Export::services`]: yes.
//! 9. On a route reflector, routes inside [`Export::reflected`]: yes.
//! 10. Routes inside [`Export::pools`]: yes.
//! 11. No.
//!
//! [`Export::originated`] are routes that exist because of the intent, whatever is in the kernel.

use crate::values::{Community, InterfacePattern, Prefix, Priority};
use std::net::IpAddr;

/// The routes that a node announces in one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The pools that are not announced (`disableBGPExport`), in order.
    pub withheld: Vec<Prefix>,
    /// The interfaces of tunnels whose routes Felix programs on each node.
    pub tunnels: Vec<InterfacePattern>,
    /// The interfaces of routes that are never announced.
    pub local: Vec<InterfacePattern>,
    /// Communities by network. A route gets those of every rule that contains it.
    pub communities: Vec<CommunityRule>,
    /// The blocks of this node, in order.
    pub blocks: Vec<OwnBlock>,
    /// Service networks and addresses that this node announces, in order. They are announced even without a route in
    /// the kernel.
    pub services: Vec<Prefix>,
    /// Load balancer networks that a route reflector passes on, as configured; empty on other nodes.
    pub reflected_load_balancers: Vec<Prefix>,
    /// External service networks that a route reflector passes on, as configured; empty on other nodes.
    pub reflected_externals: Vec<Prefix>,
    /// The pools that are announced, in order.
    pub pools: Vec<Prefix>,
    /// Routes to peers that are reached through a gateway (`reachableBy`): for the kernel, not announced themselves.
    pub gateways: Vec<Gateway>,
}

impl Export {
    /// The networks that this node announces independently of the kernel: its blocks except those of a single address,
    /// and its services. On this node they are blackholes.
    pub fn originated(&self) -> impl Iterator<Item = Prefix> {
        let blocks = self.blocks.iter().map(|block| block.prefix).filter(|prefix| !prefix.is_host());
        blocks.chain(self.services.iter().copied())
    }

    /// The decision of the node's blocks about a route: yes for a block itself and for a route inside with more than
    /// normal priority; no for any other route inside; `None` for routes outside all blocks, or in a block that is
    /// being released.
    #[must_use]
    pub fn own_block(&self, route: Prefix, priority: Priority, normal: Priority) -> Option<bool> {
        let block = self.blocks.iter().find(|block| block.is_confirmed() && block.prefix.contains(route))?;
        Some(block.prefix == route || priority < normal)
    }

    /// The networks that a route reflector passes on.
    pub fn reflected(&self) -> impl Iterator<Item = Prefix> {
        self.reflected_load_balancers.iter().chain(&self.reflected_externals).copied()
    }
}

/// Communities of the routes in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommunityRule {
    /// The network.
    pub prefix: Prefix,
    /// The communities of its routes, sorted by their text, without duplicates.
    pub communities: Vec<Community>,
}

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnBlock {
    /// Its network.
    pub prefix: Prefix,
    /// The state of the node's claim.
    pub state: BlockState,
}

impl OwnBlock {
    /// Whether routes inside are hidden behind the block.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        matches!(self.state, BlockState::Confirmed | BlockState::Implicit)
    }
}

/// The state of the claim on a block. Blocks whose claim is pending are not in the intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Claimed.
    Confirmed,
    /// Claimed by a release that did not record a state.
    Implicit,
    /// Being released, or in a state of a newer release: the route remains, but routes inside are not hidden by it.
    Other(String),
}

/// A route to a peer that is reached through a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The peer.
    pub peer: IpAddr,
    /// The gateway.
    pub via: IpAddr,
    /// The nodes that have the peer.
    pub scope: GatewayScope,
}

/// The nodes that have a peer behind a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatewayScope {
    /// All nodes.
    Global,
    /// Some nodes.
    Node,
}
