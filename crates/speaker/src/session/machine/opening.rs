//! From a connection to a session: exchanges OPENs and resolves collisions (RFC 4271, 6.8).

use super::{Outgoing, Session, State};
use crate::session::established::Established;
use crate::session::event::{Action, Agreed, Direction, Moment, Reason};
use crate::session::handshake::{self, Handshake};
use crate::session::settings::{Random, Settings};
use bgp_wire::{Cause, CeaseReason, Family, Message, Notification, RouterId};
use std::time::Duration;

impl Session {
    pub(super) fn connected(&mut self, now: Moment, out: &mut Vec<Action>) {
        match &mut self.state {
            State::Trying { outgoing: outgoing @ Outgoing::Connecting, .. } => {
                *outgoing = Outgoing::Open(Handshake::open_sent(now));
                let open = handshake::offer(&self.settings, self.restarting);
                out.push(Action::Send(Direction::Outgoing, Message::Open(open)));
            }
            _ => out.push(Action::Close(Direction::Outgoing)),
        }
    }

    pub(super) fn connect_failed(&mut self, error: String, now: Moment, random: &mut Random) {
        if let State::Trying { retry, outgoing: outgoing @ Outgoing::Connecting, .. } = &mut self.state {
            *outgoing = Outgoing::None;
            *retry = Some(now + random.jittered(self.settings.connect_retry));
            self.last_reason = Some(Reason::Socket(error));
        }
    }

    /// Accepts the peer's OPEN. If there is another connection, one of the two is closed (RFC 4271, 6.8).
    pub(super) fn confirm(
        &mut self,
        direction: Direction,
        agreed: Box<Agreed>,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let is_preferred = self.kept_direction(agreed.open.router_id) == direction;
        let State::Trying { outgoing, incoming, .. } = &self.state else { return };
        let other = match (direction, outgoing) {
            (Direction::Outgoing, _) => incoming.as_ref(),
            (Direction::Incoming, Outgoing::Open(other)) => Some(other),
            (Direction::Incoming, Outgoing::None | Outgoing::Connecting) => None,
        };
        let loser = match other {
            None => None,
            Some(Handshake::OpenSent { .. }) if is_preferred => None,
            Some(Handshake::OpenSent { .. }) => {
                let waiting =
                    Handshake::Waiting { agreed, consented: false, hold: now + handshake::OPEN_TIMEOUT };
                self.put(direction, waiting);
                return;
            }
            Some(Handshake::Waiting { .. } | Handshake::OpenConfirm { .. }) if is_preferred => {
                Some(direction.other())
            }
            Some(Handshake::Waiting { .. } | Handshake::OpenConfirm { .. }) => Some(direction),
        };
        if let Some(loser) = loser {
            let notification = Notification::from(Cause::Cease(CeaseReason::CollisionResolution));
            out.push(Action::Send(loser, Message::Notification(notification)));
            out.push(Action::Close(loser));
            self.forget(loser);
            if loser == direction {
                self.go_on(direction.other(), now, random, out);
                return;
            }
        }
        self.consent(direction, agreed, now, random, out);
    }

    pub(super) fn put(&mut self, direction: Direction, handshake: Handshake) {
        if let State::Trying { outgoing, incoming, .. } = &mut self.state {
            match direction {
                Direction::Outgoing => *outgoing = Outgoing::Open(handshake),
                Direction::Incoming => *incoming = Some(handshake),
            }
        }
    }

    /// Continues with a connection that waited for the other one, which has ended.
    pub(super) fn go_on(
        &mut self,
        direction: Direction,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let State::Trying { outgoing, incoming, .. } = &mut self.state else { return };
        let waiting = match (direction, outgoing, incoming) {
            (Direction::Outgoing, Outgoing::Open(waiting), _) | (Direction::Incoming, _, Some(waiting)) => {
                waiting
            }
            _ => return,
        };
        let Handshake::Waiting { agreed, consented, .. } = waiting else { return };
        let (agreed, consented) = (agreed.clone(), *consented);
        self.consent(direction, agreed, now, random, out);
        if consented {
            self.establish(direction, now, random, out);
        }
    }

    /// Confirms the peer's OPEN with a keepalive.
    pub(super) fn consent(
        &mut self,
        direction: Direction,
        agreed: Box<Agreed>,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let State::Trying { outgoing, .. } = &mut self.state else { return };
        // The peer is connected: our own attempt is no longer needed.
        if direction == Direction::Incoming && *outgoing == Outgoing::Connecting {
            *outgoing = Outgoing::None;
            out.push(Action::Close(Direction::Outgoing));
        }
        out.push(Action::Send(direction, Message::Keepalive));
        let seconds = |count: u16| (count > 0).then(|| Duration::from_secs(u64::from(count)));
        let hold = seconds(agreed.hold_time).map(|time| now + time);
        let keepalive = seconds(agreed.keepalive_time).map(|time| now + random.jittered(time));
        self.put(direction, Handshake::OpenConfirm { agreed, hold, keepalive });
    }

    /// Returns which of two connections is kept: the one opened by the speaker with the greater identifier; if equal,
    /// the greater system decides (RFC 6286).
    pub(super) fn kept_direction(&self, theirs: RouterId) -> Direction {
        let ours = (self.settings.router_id, self.settings.local_as);
        if ours > (theirs, self.settings.peer_as) { Direction::Outgoing } else { Direction::Incoming }
    }

    pub(super) fn establish(
        &mut self,
        direction: Direction,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let state = std::mem::replace(&mut self.state, State::Idle { until: None });
        let State::Trying { outgoing, incoming, .. } = state else { return };
        let outgoing = match outgoing {
            Outgoing::Open(handshake) => Some(handshake),
            Outgoing::Connecting => {
                out.push(Action::Close(Direction::Outgoing));
                None
            }
            Outgoing::None => None,
        };
        let (ours, other) = match direction {
            Direction::Outgoing => (outgoing, incoming),
            Direction::Incoming => (incoming, outgoing),
        };
        if other.is_some() {
            let notification = Notification::from(Cause::Cease(CeaseReason::CollisionResolution));
            out.push(Action::Send(direction.other(), Message::Notification(notification)));
            out.push(Action::Close(direction.other()));
        }
        let Some(Handshake::OpenConfirm { agreed, .. }) = ours else { return };
        self.last_reason = None;
        self.warned_of_limit = false;
        let forwarding = |family| {
            let restart = agreed.open.graceful_restart();
            restart.is_some_and(|restart| {
                restart.families.iter().any(|entry| entry.family == family && entry.forwarding)
            })
        };
        for family in Family::ALL {
            let stale = &mut self.stale[family.index()];
            if stale.is_none() {
                continue;
            }
            if agreed.options.exchanges(family) && forwarding(family) {
                // Bounded, so that a peer that never sends its end marker does not keep dead routes alive.
                let longest = self.settings.graceful_restart.unwrap_or(Settings::RESTART_TIME);
                *stale = Some(now + Duration::from_secs(u64::from(longest)));
            } else {
                *stale = None;
                out.push(Action::SweepStale(family));
            }
        }
        out.push(Action::Up(direction, agreed.clone()));
        self.state = State::Established(Box::new(Established::new(direction, *agreed, now, random)));
    }
}
