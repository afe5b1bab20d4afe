//! The state of sessions, for people and their tools.

use super::{Engine, Tally};
use crate::session::{Moment, StateName};
use bgp::intent;
use bgp_wire::{Family, Open};
use rib::{Counts, PeerId};
use std::sync::Arc;

/// One session.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Its id in the tables.
    pub id: PeerId,
    /// The session in the intent.
    pub intent: Arc<intent::Session>,
    /// The remote end; for a member of a range, its address.
    pub remote: String,
    /// The state.
    pub state: StateName,
    /// When the state last changed.
    pub since: Moment,
    /// Why the last session or attempt ended.
    pub reason: Option<String>,
    /// The hold time and the keepalive interval, while the session is up.
    pub times: Option<(u16, u16)>,
    /// The peer's OPEN message, while the session is up.
    pub open: Option<Open>,
    /// Whether routes from before the peer's restart are kept, by family.
    pub stale: [bool; 2],
    /// The numbers of routes, by family.
    pub counts: [Counts; 2],
    /// Counters of messages and bytes.
    pub tally: Tally,
    /// The number of prefixes waiting to be sent.
    pub waiting: usize,
    /// Whether BFD sees the peer, if it watches it.
    pub seen: Option<bool>,
}

/// The state of all sessions at one moment.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Sorted by family and name.
    pub peers: Vec<PeerStatus>,
    /// The numbers of prefixes and paths, by family.
    pub tables: [(usize, usize); 2],
    /// Whether routes from before this speaker's restart are kept.
    pub restarting: bool,
}

impl Engine {
    /// The state of all sessions.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut peers: Vec<PeerStatus> = self
            .peers
            .iter()
            .filter(|peer| {
                peer.member.is_some() || !matches!(peer.endpoint.remote, intent::Remote::Dynamic { .. })
            })
            .map(|peer| PeerStatus {
                id: peer.id,
                intent: Arc::clone(&peer.intent),
                remote: peer
                    .member
                    .map_or_else(|| peer.endpoint.remote.to_string(), |address| address.to_string()),
                state: peer.session.state(),
                since: peer.since,
                reason: peer.session.last_reason().map(ToString::to_string),
                times: peer.session.agreed().map(|agreed| (agreed.hold_time, agreed.keepalive_time)),
                open: peer.session.agreed().map(|agreed| agreed.open.clone()),
                stale: Family::ALL.map(|family| peer.session.keeps_stale(family)),
                counts: Family::ALL.map(|family| self.rib.counts(peer.id, family)),
                tally: peer.tally,
                seen: peer.seen,
                waiting: peer.outbox.as_ref().map_or(0, |(_, outbox)| outbox.len()),
            })
            .collect();
        peers.sort_by(|one, other| {
            let key =
                |peer: &PeerStatus| (peer.intent.version == bgp::IpVersion::V6, peer.intent.name.clone());
            key(one).cmp(&key(other)).then_with(|| one.remote.cmp(&other.remote))
        });
        Summary {
            peers,
            tables: Family::ALL.map(|family| self.rib.len(family)),
            restarting: self.is_restarting(),
        }
    }
}
