//! The deadlines of all states, and what happens when they have passed.

use super::{Outgoing, Session, State};
use crate::session::event::{Action, Direction, Moment};
use crate::session::handshake::{Handshake, earlier};
use crate::session::settings::Random;
use bgp_wire::{Cause, Family, Message};
use std::time::Duration;

impl Session {
    /// When [`Event::Tick`] is due.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let own = match &self.state {
            State::Idle { until } => *until,
            State::Trying { retry, outgoing, incoming } => {
                let ours = match outgoing {
                    Outgoing::Open(handshake) => handshake.deadline(),
                    Outgoing::None | Outgoing::Connecting => *retry,
                };
                earlier(ours, incoming.as_ref().and_then(Handshake::deadline))
            }
            State::Established(established) => established.deadline(),
        };
        earlier(own, earlier(self.stale[0], self.stale[1]))
    }

    pub(super) fn tick(&mut self, now: Moment, random: &mut Random, out: &mut Vec<Action>) {
        for family in Family::ALL {
            if self.stale[family.index()].is_some_and(|until| until <= now) {
                self.stale[family.index()] = None;
                out.push(Action::SweepStale(family));
            }
        }
        match &mut self.state {
            State::Idle { until: Some(until) } if *until <= now => {
                self.try_again(now);
                self.tick(now, random, out);
            }
            State::Idle { .. } => {}
            State::Trying { .. } => self.tick_trying(now, random, out),
            State::Established(established) => {
                if let Err(cause) = established.tick(now, random, out) {
                    self.end_with(cause.into(), now, random, out);
                }
            }
        }
    }

    pub(super) fn tick_trying(&mut self, now: Moment, random: &mut Random, out: &mut Vec<Action>) {
        let mut late = Vec::new();
        let State::Trying { retry, outgoing, incoming } = &mut self.state else { return };
        let due = retry.is_some_and(|retry| retry <= now);
        if due && !matches!(outgoing, Outgoing::Open(_)) {
            if *outgoing == Outgoing::Connecting {
                out.push(Action::Close(Direction::Outgoing));
            }
            // While the peer's own connection is being negotiated, ours would only collide with it.
            if incoming.is_none() {
                *outgoing = Outgoing::Connecting;
                out.push(Action::Connect);
            } else {
                *outgoing = Outgoing::None;
            }
            *retry = Some(now + random.jittered(self.settings.connect_retry));
        }
        let ours = match outgoing {
            Outgoing::Open(handshake) => Some(handshake),
            Outgoing::None | Outgoing::Connecting => None,
        };
        for (direction, handshake) in [(Direction::Outgoing, ours), (Direction::Incoming, incoming.as_mut())]
        {
            match handshake {
                Some(Handshake::OpenSent { hold } | Handshake::Waiting { hold, .. }) if *hold <= now => {
                    late.push(direction);
                }
                Some(Handshake::OpenConfirm { hold: Some(hold), .. }) if *hold <= now => late.push(direction),
                Some(Handshake::OpenConfirm { agreed, keepalive: Some(keepalive), .. })
                    if *keepalive <= now =>
                {
                    let time = Duration::from_secs(u64::from(agreed.keepalive_time));
                    *keepalive = now + random.jittered(time);
                    out.push(Action::Send(direction, Message::Keepalive));
                }
                _ => {}
            }
        }
        for direction in late {
            self.refuse(direction, Cause::HoldTimerExpired.into(), now, random, out);
        }
    }
}
