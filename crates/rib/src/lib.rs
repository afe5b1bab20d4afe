//! The routing tables of a BGP speaker.
//!
//! ```text
//! UPDATE of a peer ─► loops, filters ─► paths of the prefix ─► best path ─┬─► the kernel's route
//! the host's routes ──────────────────►        │                          └─► each peer's announcement
//! blocks, services of the intent ─────►        │
//! next hops: looked up in the host's routes ───┘
//! ```
//!
//! [`Rib`] takes changes and says what follows, prefix by prefix: only the kernel routes and announcements that differ from
//! before reach the [`Sink`]. What a peer or the kernel has is never stored: before and after are computed from the paths,
//! so a change costs what its prefix costs, however large the table is, and nothing is kept twice. After any history the
//! sum of what a sink was given is a function of the current state alone.
//!
//! What it refuses: IO, clock, async; sending, timers and retries, which are the speaker's; ADD-PATH towards peers.

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

/// Who carries out what follows from a change.
pub trait Sink {
    /// The kernel's route to a prefix is from now on this one, or none.
    fn kernel(&mut self, prefix: IpNet, route: Option<&KernelRoute>);

    /// A peer's announcement of a prefix is from now on this one, or it is withdrawn. Equal announcements of one operation
    /// are one value, so a sender may group prefixes by its address.
    fn export(&mut self, peer: PeerId, prefix: IpNet, announcement: Option<&Arc<Announcement>>);
}

/// What follows from changes, collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// For the kernel, in the order of the changes.
    pub kernel: Vec<(IpNet, Option<KernelRoute>)>,
    /// For peers, in the order of the changes.
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
