//! One peer: its session, its connections, and its output queue.

use super::outbox::Outbox;
use crate::session::{Direction, Moment, Random, Session, Settings};
use bgp::intent;
use bgp_wire::{Asn, Family, RouterId};
use ipnet::IpNet;
use rib::{Interface, PeerId};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

/// How the connections of a session are established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The remote end.
    pub remote: intent::Remote,
    /// The remote port.
    pub port: u16,
    /// The local address of outgoing connections.
    pub source: Option<IpAddr>,
    /// The TCP MD5 key.
    pub password: Option<bgp::Password>,
    /// The maximum number of hops to the peer (TTL security); `None` for no limit.
    pub ttl_security: Option<NonZeroU8>,
}

impl Endpoint {
    fn of(session: &intent::Session) -> Self {
        Self {
            remote: session.remote.clone(),
            port: session.port.unwrap_or(intent::Listen::DEFAULT_PORT),
            source: session.source,
            password: session.password.clone(),
            ttl_security: session.ttl_security,
        }
    }

    /// The addresses that the remote end may have.
    #[must_use]
    pub fn network(&self) -> Option<IpNet> {
        match &self.remote {
            intent::Remote::Address { address, .. } => Some(IpNet::from(*address)),
            intent::Remote::Dynamic { range } => Some(range.net()),
            intent::Remote::Unnumbered { .. } => None,
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Our address.
    pub local: IpAddr,
    /// Our link-local address on the peer's link, if the peer is on a link of ours.
    pub link_local: Option<Ipv6Addr>,
    /// The peer's address.
    pub remote: IpAddr,
    /// The link of a peer with a link-local address.
    pub link: Option<Interface>,
}

/// A peer for BFD to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its address.
    pub remote: IpAddr,
    /// The index of the link, for a link-local address.
    pub link: Option<u32>,
    /// The source address of packets.
    pub source: Option<IpAddr>,
    /// The BFD settings.
    pub bfd: intent::Bfd,
}

/// A connection with its unprocessed input and unsent output.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: Ends,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// How much of the output has been sent.
    pub(super) sent: usize,
}

impl Link {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, input: Vec::new(), output: Vec::new(), sent: 0 }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }
}

/// Counters of a session since the speaker began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages received.
    pub received: u64,
    /// UPDATEs received.
    pub updates: u64,
    /// Malformed attributes handled according to RFC 7606.
    pub faults: u64,
    /// How often the session came up.
    pub established: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) intent: Arc<intent::Session>,
    pub(super) endpoint: Endpoint,
    pub(super) session: Session,
    pub(super) links: [Option<Link>; 2],
    pub(super) outbox: Option<(Direction, Outbox)>,
    /// The families for which the peer has sent all its routes in this session.
    pub(super) complete: [bool; 2],
    pub(super) tally: Tally,
    /// The address of a member of a range.
    pub(super) member: Option<IpAddr>,
    /// When the displayed state last changed.
    pub(super) since: Moment,
    /// Whether BFD sees the peer, if it watches it.
    pub(super) seen: Option<bool>,
}

impl Peer {
    pub(super) fn new(
        id: PeerId,
        intent: Arc<intent::Session>,
        settings: Settings,
        restarting: bool,
        now: Moment,
    ) -> Self {
        Self {
            id,
            endpoint: Endpoint::of(&intent),
            intent,
            session: Session::new(settings, restarting),
            links: [None, None],
            outbox: None,
            complete: [false; 2],
            tally: Tally::default(),
            member: None,
            since: now,
            seen: None,
        }
    }

    pub(super) fn link(&mut self, direction: Direction) -> &mut Option<Link> {
        match direction {
            Direction::Outgoing => &mut self.links[0],
            Direction::Incoming => &mut self.links[1],
        }
    }

    pub(super) fn linked(&self, direction: Direction) -> Option<&Link> {
        match direction {
            Direction::Outgoing => self.links[0].as_ref(),
            Direction::Incoming => self.links[1].as_ref(),
        }
    }

    /// Whether a changed intent can be applied without a new session. Changes that only concern routes can.
    pub(super) fn is_served_by(&self, intent: &intent::Session, settings: &Settings) -> bool {
        self.endpoint == Endpoint::of(intent) && self.session.settings() == settings
    }

    /// Whether the peer has sent all its routes, as far as it indicates that.
    pub(super) fn is_complete(&self) -> bool {
        self.session.agreed().is_some_and(|agreed| {
            agreed.open.graceful_restart().is_none()
                || Family::ALL
                    .iter()
                    .all(|family| !agreed.options.exchanges(*family) || self.complete[family.index()])
        })
    }
}

/// The settings for a session of the intent.
pub(super) fn settings(session: &intent::Session, router_id: RouterId) -> Settings {
    let family = match session.version {
        bgp::IpVersion::V4 => Family::Ipv4,
        bgp::IpVersion::V6 => Family::Ipv6,
    };
    let short = |time: bgp::Secs| u16::try_from(time.0).unwrap_or(u16::MAX);
    let mut settings = Settings::new(Asn(session.local_as.0), Asn(session.peer_as.0), router_id, family);
    settings.passive = session.passive || matches!(session.remote, intent::Remote::Dynamic { .. });
    settings.keepalive_time = session.keepalive_time.map(short);
    if let Some(time) = session.restart_time {
        // The message has twelve bits for this.
        settings.graceful_restart = Some(short(time).min(4095));
    }
    if matches!(session.remote, intent::Remote::Unnumbered { .. }) {
        settings.families = [true, true];
        settings.extended_next_hop = true;
    }
    settings
}

/// Peers by id; ids of removed peers are reused.
#[derive(Debug, Default)]
pub(super) struct Peers {
    places: Vec<Option<Peer>>,
}

impl Peers {
    pub(super) fn add(&mut self, make: impl FnOnce(PeerId) -> Peer) -> PeerId {
        let free = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let id = PeerId(u32::try_from(free).unwrap_or(u32::MAX));
        let peer = make(id);
        match self.places.get_mut(free) {
            Some(place) => *place = Some(peer),
            None => self.places.push(Some(peer)),
        }
        id
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.places.get(usize::try_from(id.0).ok()?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.places.get_mut(usize::try_from(id.0).ok()?)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: PeerId) {
        if let Some(place) = usize::try_from(id.0).ok().and_then(|index| self.places.get_mut(index)) {
            *place = None;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.places.iter_mut().flatten()
    }
}

/// Random numbers for jitter, from the shell's seed.
pub(super) fn random(seed: u64) -> Random {
    Random::new(seed)
}

/// The maximum duration of a restart, after which old routes are given up, and how long peers that are down are waited
/// for.
pub(super) const RESTART: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(15));
