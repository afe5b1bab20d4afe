//! Applies a new intent as a difference: sessions whose connection settings are unchanged continue.

use super::actions::table_peer;
use super::peer::{self, Peer};
use super::{Collect, Ends, Engine, Output, is_link_local, is_on, moment, removed, rib};
use crate::session::{Direction, Event, Moment};
use bgp::Intent;
use bgp::intent::{Remote, Session};
use bgp_wire::{Cause, CeaseReason, Family, RouterId};
use rib::{Identity, PeerChange, PeerId, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Applies an intent.
    pub fn apply(&mut self, intent: Intent, now: Moment) {
        let router_id = RouterId::from(intent.router_id);
        let clusters: BTreeSet<RouterId> = intent
            .cluster_id
            .into_iter()
            .chain(intent.sessions().filter_map(|session| session.reflector_client))
            .map(|cluster| RouterId::from(cluster.0))
            .collect();
        self.rib.set_identity(Identity { router_id, clusters: clusters.into_iter().collect() });
        for (family, part) in [(Family::Ipv4, &intent.v4), (Family::Ipv6, &intent.v6)] {
            let policy = Policy::of(part);
            rib!(self, |rib, sink| rib.set_policy(family, policy, moment(now), sink));
        }
        self.remove_missing(&intent, now);
        for session in intent.sessions() {
            self.apply_session(session, router_id, now);
        }
        self.intent = Some(intent);
        self.outputs.push(Output::Listen);
        self.outputs.push(Output::Watch);
        self.check_restart(now);
    }

    /// Ends all sessions and notifies the peers. `keep`: without notification, so that peers keep our routes while we
    /// restart.
    pub fn shut_down(&mut self, keep: bool, text: &str, now: Moment) {
        let ids: Vec<PeerId> = self.peers.iter().map(|peer| peer.id).collect();
        for id in ids {
            if keep {
                for direction in [Direction::Outgoing, Direction::Incoming] {
                    if self.peers.get_mut(id).is_some_and(|peer| peer.link(direction).take().is_some()) {
                        self.outputs.push(Output::Close(id, direction, Vec::new()));
                    }
                }
            } else {
                let end = bgp_wire::Notification::cease(CeaseReason::AdministrativeShutdown, text);
                self.tell(id, Event::Stop(end), now);
            }
        }
    }

    fn remove_missing(&mut self, intent: &Intent, now: Moment) {
        let gone: Vec<PeerId> = self
            .peers
            .iter()
            .filter(|peer| !intent.family(peer.intent.version).sessions.contains_key(&peer.intent.name))
            .map(|peer| peer.id)
            .collect();
        for id in gone {
            self.remove(id, removed(), now);
        }
    }

    fn remove(&mut self, id: PeerId, word: bgp_wire::Notification, now: Moment) {
        self.tell(id, Event::Stop(word), now);
        rib!(self, |rib, sink| rib.remove_peer(id, sink));
        self.peers.remove(id);
    }

    fn apply_session(&mut self, session: &Session, router_id: RouterId, now: Moment) {
        let settings = peer::settings(session, router_id);
        let same = |peer: &&Peer| peer.intent.name == session.name && peer.intent.version == session.version;
        let ids: Vec<PeerId> = self.peers.iter().filter(same).map(|peer| peer.id).collect();
        let session = Arc::new(session.clone());
        let mut is_known = false;
        for id in ids {
            let Some(peer) = self.peers.get_mut(id) else { continue };
            if !peer.is_served_by(&session, &settings) {
                self.remove(id, Cause::Cease(CeaseReason::OtherConfigurationChange).into(), now);
                continue;
            }
            is_known |= peer.member.is_none();
            if *peer.intent != *session {
                peer.intent = Arc::clone(&session);
                self.retell(id, now);
            }
        }
        if !is_known {
            let restarting = self.restart.is_some();
            let id = self.peers.add(|id| Peer::new(id, session, settings, restarting, now));
            self.tell(id, Event::Start, now);
        }
    }

    /// Handles a change of filters: exports are evaluated again, and the peer is requested to send its routes again.
    fn retell(&mut self, id: PeerId, now: Moment) {
        let Some(peer) = self.peers.get(id) else { return };
        let Some((direction, _)) = &peer.outbox else { return };
        let (Some(link), Some(agreed)) = (peer.linked(*direction), peer.session.agreed()) else { return };
        let seen = table_peer(&peer.intent, link.ends.clone(), agreed.open.router_id);
        let (can_ask, options) = (agreed.route_refresh, agreed.options);
        let change = rib!(self, |rib, sink| rib.set_peer(id, seen, sink));
        if change == PeerChange::None {
            return;
        }
        if !can_ask {
            // A peer without route refresh sends its routes only at the beginning of a session.
            self.tell(id, Event::Stop(Cause::Cease(CeaseReason::OtherConfigurationChange).into()), now);
            self.tell(id, Event::Start, now);
            return;
        }
        for family in Family::ALL.into_iter().filter(|family| options.exchanges(*family)) {
            self.tell(id, Event::AskAgain(family), now);
        }
    }

    /// Finds the session of a connection. A range gets a session for each peer that connects.
    pub(super) fn find(&mut self, ends: &Ends, now: Moment) -> Option<PeerId> {
        let remote = ends.remote;
        let exact = self.peers.iter().find(|peer| match &peer.endpoint.remote {
            _ if peer.member.is_some() => peer.member == Some(remote),
            Remote::Address { address, interface } => {
                *address == remote && interface.as_deref().is_none_or(|name| is_on(ends.link.as_ref(), name))
            }
            Remote::Unnumbered { interface } => is_link_local(remote) && is_on(ends.link.as_ref(), interface),
            Remote::Dynamic { .. } => false,
        });
        if let Some(peer) = exact {
            return Some(peer.id);
        }
        let range = self
            .peers
            .iter()
            .filter(|peer| peer.member.is_none())
            .filter_map(|peer| match &peer.endpoint.remote {
                Remote::Dynamic { range } if range.contains_address(remote) => Some((range.length(), peer)),
                _ => None,
            })
            .max_by_key(|(length, _)| *length);
        let (_, range) = range?;
        let (intent, settings) = (Arc::clone(&range.intent), range.session.settings().clone());
        let restarting = self.restart.is_some();
        let id = self
            .peers
            .add(|id| Peer { member: Some(remote), ..Peer::new(id, intent, settings, restarting, now) });
        self.tell(id, Event::Start, now);
        Some(id)
    }

    /// Removes a member of a range that has disconnected, unless its routes are kept.
    pub(super) fn forget_member(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(id) else { return };
        let is_gone = peer.member.is_some()
            && [Direction::Outgoing, Direction::Incoming]
                .iter()
                .all(|direction| peer.linked(*direction).is_none())
            && Family::ALL.iter().all(|family| !peer.session.keeps_stale(*family));
        if is_gone {
            rib!(self, |rib, sink| rib.remove_peer(id, sink));
            self.peers.remove(id);
        }
    }
}
