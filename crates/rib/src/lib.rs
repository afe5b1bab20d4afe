//! The routing tables of a BGP speaker.
//!
//! ```text
//! UPDATE of a peer ─► loops, filters ─► paths of the prefix ─► best path ─┬─► the kernel's route
//! the host's routes ──────────────────►        │                          └─► each peer's announcement
//! blocks, services of the intent ─────►        │
//! next hops: looked up in the host's routes ───┘
//! ```
//!
//! [`Rib`] takes changes and computes the consequences, prefix by prefix: only changed kernel routes and announcements
//! reach the [`Sink`]. The state of a peer or the kernel is never stored: before and after are computed from the paths,
//! so the cost of a change is that of its prefix, however large the table is, and nothing is stored twice. After any
//! history, the sum of all changes given to a sink is a function of the current state alone.
//!
//! No IO, clock or async; no sending, timers and retries, which are the speaker's; no ADD-PATH towards peers.

mod by_peer;
mod difference;
mod export;
mod filter;
mod host;
mod import;
mod kernel;
mod part;
mod peer;
mod policy;
mod prefix;
mod query;
mod rib;
mod route;
mod select;
mod slots;
mod store;
mod table;
mod updates;
mod view;

#[cfg(test)]
mod tests;

pub use host::{HostRoute, HostRouteKind};
pub use kernel::{Hop, KernelRoute, KernelTarget, Link, PROTOCOL};
pub use peer::{Counts, Ends, Export, Import, Peer, Relation};
pub use policy::Policy;
pub use query::{Destination, Query, Shown, ShownHop};
pub use rib::{Identity, Memory, PeerChange, Rib};
pub use route::{
    Announcement, BgpRoute, Interface, InterfaceName, Mark, Moment, PeerId, Route, Slot, Source,
};

use ipnet::IpNet;
use std::sync::Arc;

/// The local preference of routes that have none.
pub const DEFAULT_LOCAL_PREFERENCE: u32 = 100;

/// Executes the consequences of a change.
pub trait Sink {
    /// Sets or removes the kernel's route to a prefix.
    fn kernel(&mut self, prefix: IpNet, route: Option<&KernelRoute>);

    /// Sets a peer's announcement of a prefix, or withdraws it. Equal announcements of one operation are the same
    /// value, so a sender may group prefixes by its address.
    fn export(&mut self, peer: PeerId, prefix: IpNet, announcement: Option<&Arc<Announcement>>);
}

/// Collected consequences of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes for the kernel, in order.
    pub kernel: Vec<(IpNet, Option<KernelRoute>)>,
    /// Changes for peers, in order.
    pub exports: Vec<(PeerId, IpNet, Option<Arc<Announcement>>)>,
}

impl Sink for Changes {
    fn kernel(&mut self, prefix: IpNet, route: Option<&KernelRoute>) {
        self.kernel.push((prefix, route.cloned()));
    }

    fn export(&mut self, peer: PeerId, prefix: IpNet, announcement: Option<&Arc<Announcement>>) {
        self.exports.push((peer, prefix, announcement.cloned()));
    }
}
