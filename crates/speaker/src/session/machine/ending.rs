//! How connections and sessions end, and the consequences: a NOTIFICATION, a pause, kept routes.

use super::{Outgoing, Session, State};
use crate::session::event::{Action, Direction, Moment, Reason};
use crate::session::settings::Random;
use bgp_wire::{Cause, CeaseReason, Family, Message, Notification};
use std::time::Duration;

impl Session {
    /// Starts the pause after an error, which is longer if the last error was recent.
    pub(super) fn pause(&mut self, now: Moment) {
        let (first, longest) = self.settings.error_wait;
        let wait = match self.penalty {
            Some((wait, at)) if now.saturating_sub(at) < self.settings.error_forget => {
                (wait * 2).min(longest)
            }
            _ => first,
        };
        self.penalty = Some((wait, now));
        self.state = State::Idle { until: Some(now + wait) };
    }

    pub(super) fn stop(&mut self, notification: Notification, out: &mut Vec<Action>) {
        let state = std::mem::replace(&mut self.state, State::Idle { until: None });
        let mut end = |direction| {
            out.push(Action::Send(direction, Message::Notification(notification.clone())));
            out.push(Action::Close(direction));
        };
        match state {
            State::Idle { .. } => {}
            State::Trying { outgoing, incoming, .. } => {
                if matches!(outgoing, Outgoing::Open(_)) {
                    end(Direction::Outgoing);
                }
                if incoming.is_some() {
                    end(Direction::Incoming);
                }
                if outgoing == Outgoing::Connecting {
                    out.push(Action::Close(Direction::Outgoing));
                }
            }
            State::Established(established) => {
                end(established.direction);
                out.push(Action::Down { reason: Reason::Sent(notification.clone()), keep: [false; 2] });
                self.stale = [None; 2];
            }
        }
        self.sweep_all(out);
        self.penalty = None;
        self.last_reason = Some(Reason::Sent(notification));
    }

    pub(super) fn sweep_all(&mut self, out: &mut Vec<Action>) {
        for family in Family::ALL {
            if self.stale[family.index()].take().is_some() {
                out.push(Action::SweepStale(family));
            }
        }
    }

    /// Removes a connection from the state. Returns whether another one is left.
    pub(super) fn forget(&mut self, direction: Direction) -> bool {
        let State::Trying { outgoing, incoming, .. } = &mut self.state else { return false };
        match direction {
            Direction::Outgoing => *outgoing = Outgoing::None,
            Direction::Incoming => *incoming = None,
        }
        matches!(outgoing, Outgoing::Open(_)) || incoming.is_some()
    }

    /// Handles a connection that has ended by itself.
    pub(super) fn closed(
        &mut self,
        direction: Direction,
        reason: Reason,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        match &self.state {
            State::Idle { .. } => {}
            State::Trying { .. } => {
                let left = self.forget(direction);
                if let State::Trying { retry, .. } = &mut self.state
                    && !self.settings.passive
                {
                    *retry = Some(now + random.jittered(self.settings.connect_retry));
                }
                if !left {
                    self.last_reason = Some(reason);
                }
                self.go_on(direction.other(), now, random, out);
            }
            State::Established(established) if established.direction == direction => {
                self.end_session(reason, now, random, out);
            }
            State::Established(_) => {}
        }
    }

    /// Ends a connection because of a NOTIFICATION, sent or received.
    pub(super) fn failed(
        &mut self,
        direction: Direction,
        reason: Reason,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Close(direction));
        if matches!(self.state, State::Established(_)) {
            self.end_session(reason, now, random, out);
            return;
        }
        let left = self.forget(direction);
        if left {
            if let State::Trying { retry: Some(retry), .. } = &mut self.state {
                *retry = now + random.jittered(self.settings.connect_retry);
            }
            self.go_on(direction.other(), now, random, out);
            return;
        }
        let harmless = is_harmless(&reason);
        self.last_reason = Some(reason);
        if harmless {
            self.try_again(now + random.jittered(self.settings.connect_retry));
        } else {
            if matches!(&self.state, State::Trying { outgoing: Outgoing::Connecting, .. }) {
                out.push(Action::Close(Direction::Outgoing));
            }
            self.pause(now);
        }
    }

    /// Ends the session with a NOTIFICATION on its connection.
    pub(super) fn end_with(
        &mut self,
        notification: Notification,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let State::Established(established) = &self.state else { return };
        let direction = established.direction;
        out.push(Action::Send(direction, Message::Notification(notification.clone())));
        self.failed(direction, Reason::Sent(notification), now, random, out);
    }

    /// Ends the session. Its connection is already closed, or no more messages are sent on it.
    pub(super) fn end_session(
        &mut self,
        reason: Reason,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let state = std::mem::replace(&mut self.state, State::Idle { until: None });
        let State::Established(established) = state else { return };
        let (keep, seconds) = match (&reason, established.agreed.restart) {
            // A NOTIFICATION means that it was not a restart (RFC 4724, 4.2).
            (Reason::Sent(_) | Reason::Received(_), _) | (_, None) => ([false; 2], 0),
            (_, Some((families, seconds))) => (families, seconds),
        };
        if reason == Reason::PeerRestarted {
            out.push(Action::Close(established.direction));
        }
        for family in Family::ALL {
            self.stale[family.index()] =
                keep[family.index()].then_some(now + Duration::from_secs(u64::from(seconds)));
        }
        out.push(Action::Down { reason: reason.clone(), keep });
        let penalised = matches!(reason, Reason::Sent(_) | Reason::Received(_)) && !is_harmless(&reason);
        self.last_reason = Some(reason);
        if penalised {
            self.pause(now);
        } else {
            self.try_again(now + random.jittered(self.settings.connect_delay));
        }
    }

    pub(super) fn refuse(
        &mut self,
        direction: Direction,
        answer: Notification,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        if self.knows(direction) {
            out.push(Action::Send(direction, Message::Notification(answer.clone())));
            self.failed(direction, Reason::Sent(answer), now, random, out);
        }
    }

    pub(super) fn prefixes(&mut self, count: usize, now: Moment, random: &mut Random, out: &mut Vec<Action>) {
        let Some(limit) = self.settings.prefix_limit else { return };
        if !matches!(self.state, State::Established(_)) {
            return;
        }
        if count > limit {
            out.push(Action::Warn(format!(
                "{count} prefixes are more than the limit of {limit}: the session ends"
            )));
            self.end_with(Cause::Cease(CeaseReason::MaximumPrefixes).into(), now, random, out);
            // The peer would announce them again immediately.
            self.state = State::Idle { until: Some(now + self.settings.error_forget) };
        } else if !self.warned_of_limit && count > limit - limit / 4 {
            self.warned_of_limit = true;
            out.push(Action::Warn(format!(
                "{count} prefixes are more than three quarters of the limit of {limit}"
            )));
        }
    }
}

/// Whether the peer only preferred another connection, or is not ready yet, which needs no pause.
fn is_harmless(reason: &Reason) -> bool {
    let harmless = [CeaseReason::CollisionResolution, CeaseReason::ConnectionRejected].map(Cause::Cease);
    matches!(reason, Reason::Received(notification) if harmless.contains(&notification.cause))
}
