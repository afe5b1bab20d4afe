//! What people and their tools see of sessions.

use super::{Engine, Tally};
use crate::session::{Moment, StateName};
use bgp::intent;
use bgp_wire::{Family, Open};
use rib::{Counts, PeerId};
use std::sync::Arc;

/// One session.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Its number in the tables.
    pub id: PeerId,
    /// What the intent says about it.
    pub intent: Arc<intent::Session>,
    /// The remote end; of a range, who it is.
    pub remote: String,
    /// The state.
    pub state: StateName,
    /// When it last changed.
    pub since: Moment,
    /// Why the last session or attempt ended.
    pub reason: Option<String>,
    /// Hold time and pause between signs of life, while the session is up.
    pub times: Option<(u16, u16)>,
    /// The peer's own words, while the session is up.
    pub open: Option<Open>,
    /// Whether routes of before the peer's restart are kept, by family.
    pub stale: [bool; 2],
    /// Routes by family.
    pub counts: [Counts; 2],
    /// Messages and bytes.
    pub tally: Tally,
    /// Prefixes that wait to be sent.
    pub waiting: usize,
    /// Whether BFD sees the peer, where it looks.
    pub seen: Option<bool>,
}

/// All sessions at a moment.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// By family and name.
    pub peers: Vec<PeerStatus>,
    /// Prefixes and paths by family.
    pub tables: [(usize, usize); 2],
    /// Whether routes of before this speaker's restart are kept.
    pub restarting: bool,
}

impl Engine {
    /// All sessions.
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
