//! What is known about a route, kept once however many prefixes share it.
//!
//! A path of a prefix is 20 bytes: the number of what is said about the route, its sender, and since when. A cluster's routes differ in few things, so the sets are few; where every route differs, a set is what it costs.

use crate::store::RouteId;
use bgp::Priority;
use bgp_wire::{Asn, Attributes, NextHop, PathId, RouterId};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// A session, numbered by the speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A moment in seconds, by the speaker's clock. Only shown, never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u32);

/// The name of an interface: short, so a copy of it is no shared reference.
pub type InterfaceName = smol_str::SmolStr;

/// An interface of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
}

/// Attributes and next hop, as a peer sent them and filters left them, or as they are sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// What is said about the route.
    pub attributes: Attributes,
    /// Where packets go.
    pub next_hop: NextHop,
}

/// What is known about a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// A peer announced it.
    Bgp(BgpRoute),
    /// The intent has it: a block of this node, or a service. It leads nowhere by itself.
    Originated,
    /// The intent has it: a peer that is reached by a gateway.
    Gateway {
        /// The gateway.
        via: IpAddr,
        /// Where the gateway is in the list of next hops.
        slot: Slot,
    },
    /// A network of an interface.
    Direct(Interface),
    /// The host's table has it, and another program made it.
    Host {
        /// By which neighbour.
        gateway: Option<IpAddr>,
        /// By which interface; nothing for one that leads nowhere.
        interface: Option<Interface>,
        /// The kernel's metric, if it has one.
        metric: Option<u32>,
    },
}

/// The place of a next hop in the list of next hops. It follows from the next hop, so it plays no part in comparisons.
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
    /// As received, after filters. The local preference is always there.
    pub announcement: Announcement,
    /// The link of a next hop that is only known there.
    pub link: Option<Interface>,
    /// Where its next hop is in the list of next hops.
    pub slot: Slot,
}

impl BgpRoute {
    /// The local preference.
    #[must_use]
    pub fn local_preference(&self) -> u32 {
        self.announcement.attributes.local_pref.unwrap_or(crate::DEFAULT_LOCAL_PREFERENCE)
    }

    /// The priority that the local preference says.
    #[must_use]
    pub fn priority(&self) -> Priority {
        Priority::of_local_preference(self.local_preference())
    }

    /// The system that sent the route into this one.
    #[must_use]
    pub fn neighbor_as(&self) -> Option<Asn> {
        self.announcement.attributes.as_path.first()
    }
}

impl Route {
    /// How much the kind of route is preferred, as BIRD has it. A route of BGP with a priority above the ordinary one
    /// counts as much as what the intent has.
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

    /// Where its next hop is in the list of next hops.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Bgp(route) => Some(route.slot.0),
            Self::Gateway { slot, .. } => Some(slot.0),
            Self::Originated | Self::Direct(_) | Self::Host { .. } => None,
        }
    }

    /// As a route of BGP.
    #[must_use]
    pub fn as_bgp(&self) -> Option<&BgpRoute> {
        match self {
            Self::Bgp(route) => Some(route),
            _ => None,
        }
    }
}

/// Who a path is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A session, and which of its paths.
    Peer(PeerId, PathId),
    /// The intent: blocks and services.
    Originated,
    /// The intent: peers that are reached by a gateway.
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
    /// The session; for local sources one of the numbers at the end.
    sender: u32,
    path_id: u32,
    pub(crate) since: Moment,
    pub(crate) marks: Marks,
}

/// Numbers of senders that are not sessions.
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

/// What waits to be confirmed: routes from before the peer's restart, and routes from before a refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

/// Why routes of a peer wait to be confirmed.
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

/// The identifier that breaks ties: who brought the route into this system, else who sent it.
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
