//! Routes: everything known about a path, stored once however many prefixes share it.
//!
//! A path of a prefix takes 20 bytes: the number of its route, its sender, and its time. The routes of a cluster differ
//! in few properties, so there are few sets of attributes; if every route differs, the cost is that of a set per route.

use crate::store::RouteId;
use bgp::Priority;
use bgp_wire::{Asn, Attributes, NextHop, PathId, RouterId};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// A session, numbered by the speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A time in seconds by the speaker's clock. Only displayed, never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u32);

/// The name of an interface: short, so copies need no shared reference.
pub type InterfaceName = smol_str::SmolStr;

/// An interface of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
}

/// Attributes and next hop: as received and filtered, or as sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// The attributes.
    pub attributes: Attributes,
    /// The next hop.
    pub next_hop: NextHop,
}

/// A route of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// A peer announced it.
    Bgp(BgpRoute),
    /// From the intent: a block of this node, or a service. Has no target by itself.
    Originated,
    /// From the intent: a peer that is reached through a gateway.
    Gateway {
        /// The gateway.
        via: IpAddr,
        /// The gateway's slot in the list of next hops.
        slot: Slot,
    },
    /// The network of an interface.
    Direct(Interface),
    /// In the host's table, created by another program.
    Host {
        /// The gateway.
        gateway: Option<IpAddr>,
        /// The interface; `None` for a route without a target.
        interface: Option<Interface>,
        /// The kernel's metric, if it has one.
        metric: Option<u32>,
    },
}

/// The slot of a next hop in the list of next hops. It is derived from the next hop, so it is ignored in comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot(pub(crate) u32);

impl PartialEq for Slot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Slot {}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A route that a peer announced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BgpRoute {
    /// As received, after filters. The local preference is always set.
    pub announcement: Announcement,
    /// The link, for a next hop that is only valid there.
    pub link: Option<Interface>,
    /// The next hop's slot in the list of next hops.
    pub slot: Slot,
}

impl BgpRoute {
    /// The local preference.
    #[must_use]
    pub fn local_preference(&self) -> u32 {
        self.announcement.attributes.local_pref.unwrap_or(crate::DEFAULT_LOCAL_PREFERENCE)
    }

    /// The priority that corresponds to the local preference.
    #[must_use]
    pub fn priority(&self) -> Priority {
        Priority::of_local_preference(self.local_preference())
    }

    /// The AS from which this one received the route.
    #[must_use]
    pub fn neighbor_as(&self) -> Option<Asn> {
        self.announcement.attributes.as_path.first()
    }
}

impl Route {
    /// The preference of the route's kind, as in BIRD. A BGP route with a priority above normal is equal to routes of
    /// the intent.
    #[must_use]
    pub fn preference(&self, normal: Priority) -> u32 {
        match self {
            Self::Direct(_) => 240,
            Self::Originated | Self::Gateway { .. } => 200,
            Self::Bgp(route) if route.priority() < normal => Priority::OVERRIDE_PREFERENCE,
            Self::Bgp(_) => 100,
            Self::Host { .. } => 10,
        }
    }

    /// The slot of its next hop, if it has one.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Bgp(route) => Some(route.slot.0),
            Self::Gateway { slot, .. } => Some(slot.0),
            Self::Originated | Self::Direct(_) | Self::Host { .. } => None,
        }
    }

    /// The BGP route, if it is one.
    #[must_use]
    pub fn as_bgp(&self) -> Option<&BgpRoute> {
        match self {
            Self::Bgp(route) => Some(route),
            _ => None,
        }
    }
}

/// The source of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A session, and the id of the path.
    Peer(PeerId, PathId),
    /// The intent: blocks and services.
    Originated,
    /// From the intent: peers that are reached through a gateway.
    Gateway,
    /// The interfaces.
    Direct,
    /// The host's table.
    Host,
}

impl Source {
    /// The session.
    #[must_use]
    pub fn peer(self) -> Option<PeerId> {
        match self {
            Self::Peer(peer, _) => Some(peer),
            _ => None,
        }
    }
}

/// One path of a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) route: RouteId,
    /// The session; for local sources one of the highest numbers.
    sender: u32,
    path_id: u32,
    pub(crate) since: Moment,
    pub(crate) marks: Marks,
}

/// The numbers of senders that are not sessions.
const ORIGINATED: u32 = u32::MAX;
const GATEWAY: u32 = u32::MAX - 1;
const DIRECT: u32 = u32::MAX - 2;
const HOST: u32 = u32::MAX - 3;

impl Path {
    pub(crate) fn new(source: Source, route: RouteId, since: Moment) -> Self {
        let (sender, path_id) = Self::numbers(source);
        Self { route, sender, path_id, since, marks: Marks::default() }
    }

    fn numbers(source: Source) -> (u32, u32) {
        match source {
            Source::Peer(peer, path) => (peer.0, path.0),
            Source::Originated => (ORIGINATED, 0),
            Source::Gateway => (GATEWAY, 0),
            Source::Direct => (DIRECT, 0),
            Source::Host => (HOST, 0),
        }
    }

    pub(crate) fn source(&self) -> Source {
        match self.sender {
            ORIGINATED => Source::Originated,
            GATEWAY => Source::Gateway,
            DIRECT => Source::Direct,
            HOST => Source::Host,
            peer => Source::Peer(PeerId(peer), PathId(self.path_id)),
        }
    }

    pub(crate) fn is_from(&self, source: Source) -> bool {
        (self.sender, self.path_id) == Self::numbers(source)
    }

    pub(crate) fn is_of_peer(&self, peer: PeerId) -> bool {
        self.sender == peer.0
    }
}

/// Marks of unconfirmed routes: from before the peer's restart, and from before a refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

/// Why routes of a peer must be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The peer restarts (RFC 4724).
    Restart,
    /// The peer sends everything again (RFC 7313).
    Refresh,
}

impl Marks {
    fn bit(mark: Mark) -> u8 {
        match mark {
            Mark::Restart => 1,
            Mark::Refresh => 2,
        }
    }

    pub(crate) fn set(&mut self, mark: Mark) {
        self.0 |= Self::bit(mark);
    }

    pub(crate) fn has(self, mark: Mark) -> bool {
        self.0 & Self::bit(mark) != 0
    }
}

/// The identifier that breaks ties: the originator within this AS, or else the sender.
pub(crate) fn originator(route: &BgpRoute, sender: RouterId) -> RouterId {
    route.announcement.attributes.originator_id.unwrap_or(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_small() {
        assert_eq!(size_of::<Path>(), 20);
    }

    #[test]
    fn sources_survive_packing() {
        let route = crate::store::Store::default().keep(Route::Originated, |_| {});
        for source in [
            Source::Peer(PeerId(7), PathId(3)),
            Source::Originated,
            Source::Gateway,
            Source::Direct,
            Source::Host,
        ] {
            let path = Path::new(source, route, Moment(1));
            assert_eq!(path.source(), source);
            assert!(path.is_from(source));
        }
    }
}
