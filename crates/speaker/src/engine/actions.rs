//! Executes the actions of a session's machine on connections and tables.

use super::outbox::Outbox;
use super::peer::{self, Peer};
use super::{Collect, Ends, Engine, LogLine, Output, moment, rib};
use crate::session::{Action, Direction, Event, Moment, Reason, StateName};
use bgp_wire::{Family, Message, encode};
use rib::{Mark, PeerId};

impl Engine {
    pub(super) fn tell(&mut self, id: PeerId, event: Event, now: Moment) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let mut actions = Vec::new();
        peer.session.handle(event, now, &mut self.random, &mut actions);
        self.act(id, actions, now);
    }

    pub(super) fn act(&mut self, id: PeerId, actions: Vec<Action>, now: Moment) {
        let mut may_be_gone = false;
        for action in actions {
            may_be_gone |= match &action {
                Action::Down { .. } | Action::SweepStale(_) => true,
                Action::Changed { from, to, .. } => *from >= StateName::OpenSent && *to < StateName::OpenSent,
                _ => false,
            };
            match action {
                Action::Connect => self.outputs.push(Output::Connect(id)),
                Action::Send(direction, message) => self.send(id, direction, &message),
                Action::Close(direction) => {
                    let link = self.peers.get_mut(id).and_then(|peer| peer.link(direction).take());
                    let last = link.map(|link| link.unsent().to_vec()).unwrap_or_default();
                    self.outputs.push(Output::Close(id, direction, last));
                }
                Action::Up(direction, agreed) => self.up(id, direction, &agreed),
                Action::Down { keep, .. } => self.down(id, keep),
                Action::Routes(update) => self.routes(id, &update, now),
                Action::EndOfRib(family) => {
                    if let Some(peer) = self.peers.get_mut(id) {
                        peer.complete[family.index()] = true;
                    }
                    self.check_restart(now);
                }
                Action::MarkStale(family) => {
                    self.rib.mark(id, family, Mark::Refresh);
                }
                Action::SweepStale(family) => {
                    rib!(self, |rib, sink| {
                        rib.sweep(id, family, Mark::Restart, sink);
                        rib.sweep(id, family, Mark::Refresh, sink);
                    });
                }
                Action::SendAgain(family, marks) => {
                    if let Some(peer) = self.peers.get_mut(id)
                        && let Some((direction, mut outbox)) = peer.outbox.take()
                    {
                        if marks && let Some(link) = peer.link(direction) {
                            outbox.begin_refresh(&mut link.output, family);
                        }
                        peer.outbox = Some((direction, outbox));
                        self.ready.push(id);
                    }
                    rib!(self, |rib, sink| rib.refresh(id, family, sink));
                }
                Action::Changed { from, to, reason } => self.changed(id, from, to, reason, now),
                Action::Warn(text) => self.warn(id, text),
            }
        }
        if may_be_gone {
            self.forget_member(id);
        }
    }

    pub(super) fn send(&mut self, id: PeerId, direction: Direction, message: &Message) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let options = peer.session.options(direction);
        if let Some(link) = peer.link(direction) {
            encode(&mut link.output, message, &options);
            self.ready.push(id);
        }
    }

    pub(super) fn up(&mut self, id: PeerId, direction: Direction, agreed: &crate::session::Agreed) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let Some(ends) = peer.linked(direction).map(|link| link.ends.clone()) else { return };
        peer.tally.established += 1;
        peer.complete = [false; 2];
        peer.outbox = Some((direction, Outbox::new(agreed.options)));
        if peer.intent.bfd.is_some() {
            self.outputs.push(Output::Watch);
        }
        let seen = table_peer(&peer.intent, ends, agreed.open.router_id);
        rib!(self, |rib, sink| {
            // A peer that is back after a restart sends everything anyway.
            let _ = rib.set_peer(id, seen, sink);
            for family in Family::ALL.into_iter().filter(|family| agreed.options.exchanges(*family)) {
                rib.listen(id, family, sink);
            }
        });
        if self.restart.is_none() {
            self.complete(id);
        }
    }

    /// Marks the end of all routes for a peer, once they are sent.
    pub(super) fn complete(&mut self, id: PeerId) {
        if let Some(Peer { outbox: Some((_, outbox)), .. }) = self.peers.get_mut(id) {
            Family::ALL.into_iter().for_each(|family| outbox.complete(family));
            self.ready.push(id);
        }
    }

    pub(super) fn down(&mut self, id: PeerId, keep: [bool; 2]) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.outbox = None;
            peer.complete = [false; 2];
        }
        self.rib.unlisten(id);
        for family in Family::ALL {
            if keep[family.index()] {
                self.rib.mark(id, family, Mark::Restart);
            } else {
                rib!(self, |rib, sink| rib.withdraw_all(id, family, sink));
            }
        }
    }

    pub(super) fn routes(&mut self, id: PeerId, update: &bgp_wire::Update, now: Moment) {
        let announces = update.announces();
        if !update.faults.is_empty() {
            self.faults(id, update);
        }
        rib!(self, |rib, sink| rib.update(id, update, moment(now), sink));
        if announces {
            let count: usize = Family::ALL.iter().map(|family| self.rib.counts(id, *family).imported).sum();
            self.tell(id, Event::Prefixes(count), now);
        }
    }

    pub(super) fn faults(&mut self, id: PeerId, update: &bgp_wire::Update) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let before = peer.tally.faults;
        peer.tally.faults += update.faults.len() as u64;
        // The first warnings of a session suffice; a flood of them would only fill the log.
        if before < 10 {
            let words: Vec<String> = update.faults.iter().map(ToString::to_string).collect();
            self.warn(id, format!("malformed UPDATE: {}", words.join("; ")));
        }
    }

    pub(super) fn changed(
        &mut self,
        id: PeerId,
        from: StateName,
        to: StateName,
        reason: Option<Reason>,
        now: Moment,
    ) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.since = now;
        let remote =
            peer.member.map_or_else(|| peer.endpoint.remote.to_string(), |address| address.to_string());
        let session = peer.intent.name.to_string();
        self.outputs.push(Output::Log(LogLine::State { session, remote, from, to, reason }));
    }

    pub(super) fn warn(&mut self, id: PeerId, text: String) {
        let Some(peer) = self.peers.get(id) else { return };
        let session = peer.intent.name.to_string();
        self.outputs.push(Output::Log(LogLine::Warning { session, text }));
    }

    /// Ends the restart when peers have sent all their routes, or had time to.
    pub(super) fn check_restart(&mut self, now: Moment) {
        let Some(since) = self.restart else { return };
        let waited = now.saturating_sub(since);
        let all = || {
            self.peers
                .iter()
                .filter(|peer| !matches!(peer.endpoint.remote, bgp::intent::Remote::Dynamic { .. }))
        };
        let known = self.intent.is_some();
        let complete = known && all().all(Peer::is_complete);
        // A peer that is down may remain so; those that are up are waited for until the end.
        let up_complete =
            known && all().filter(|peer| peer.session.agreed().is_some()).all(Peer::is_complete);
        let over = complete || (waited >= peer::RESTART.1 && up_complete) || waited >= peer::RESTART.0;
        self.soft_passed = waited >= peer::RESTART.1;
        if !over {
            return;
        }
        self.restart = None;
        rib!(self, |rib, sink| rib.tell(sink));
        for peer in self.peers.iter_mut() {
            peer.session.end_restart();
        }
        let ids: Vec<PeerId> = self.peers.iter().map(|peer| peer.id).collect();
        for id in ids {
            self.complete(id);
        }
        self.outputs.push(Output::SweepKernel);
        self.outputs.push(Output::Log(LogLine::Restarted { complete }));
    }
}

/// The peer in the form of the tables.
pub(super) fn table_peer(
    intent: &bgp::intent::Session,
    ends: Ends,
    router_id: bgp_wire::RouterId,
) -> rib::Peer {
    let Ends { local, link_local, remote, link } = ends;
    rib::Peer::of_session(intent, rib::Ends { local, link_local, remote, link, router_id })
}
