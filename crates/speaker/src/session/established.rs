//! A session that is up: keepalives, routes, and route refreshes.

use super::event::{Action, Agreed, Direction, Moment};
use super::handshake::earlier;
use super::settings::{Random, Settings};
use bgp_wire::{Cause, Family, FsmFault, Message, Notification, RefreshPhase, RouteRefresh};
use std::time::Duration;

/// How long a route refresh may take until routes that it did not mention are given up (RFC 7313, 4.2).
const REFRESH_TIMEOUT: Duration = Duration::from_mins(5);

/// How long a peer may accept no data (RFC 9687, 4.1: the greater of eight minutes and twice the hold time).
const SEND_HOLD: Duration = Duration::from_mins(8);

/// A session that is up.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) direction: Direction,
    pub(super) agreed: Agreed,
    /// When the hold timer expires.
    hold: Option<Moment>,
    /// When our next keepalive is due.
    keepalive: Option<Moment>,
    /// When the send hold timer expires, while data waits to be sent.
    send_hold: Option<Moment>,
}

impl Established {
    pub(super) fn new(direction: Direction, agreed: Agreed, now: Moment, random: &mut Random) -> Self {
        let mut established = Self { direction, agreed, hold: None, keepalive: None, send_hold: None };
        established.hear(now);
        established.keepalive = established.next_keepalive(now, random);
        established
    }

    fn hear(&mut self, now: Moment) {
        let time = self.agreed.hold_time;
        self.hold = (time > 0).then(|| now + Duration::from_secs(u64::from(time)));
    }

    fn next_keepalive(&self, now: Moment, random: &mut Random) -> Option<Moment> {
        let time = self.agreed.keepalive_time;
        (time > 0).then(|| now + random.jittered(Duration::from_secs(u64::from(time))))
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        earlier(earlier(self.hold, self.keepalive), self.send_hold)
    }

    /// Records that the peer accepts no more data. Repeated calls count from the first one.
    pub(super) fn blocked(&mut self, now: Moment) {
        let hold = Duration::from_secs(u64::from(self.agreed.hold_time));
        if !hold.is_zero() {
            self.send_hold.get_or_insert(now + SEND_HOLD.max(2 * hold));
        }
    }

    /// Records that the peer has accepted data.
    pub(super) fn progressed(&mut self) {
        self.send_hold = None;
    }

    /// Handles deadlines.
    ///
    /// # Errors
    /// When one of the hold timers has expired.
    pub(super) fn tick(
        &mut self,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) -> Result<(), Cause> {
        if self.hold.is_some_and(|hold| hold <= now) {
            return Err(Cause::HoldTimerExpired);
        }
        if self.send_hold.is_some_and(|hold| hold <= now) {
            return Err(Cause::SendHoldTimerExpired);
        }
        if self.keepalive.is_some_and(|keepalive| keepalive <= now) {
            out.push(Action::Send(self.direction, Message::Keepalive));
            self.keepalive = self.next_keepalive(now, random);
        }
        Ok(())
    }

    pub(super) fn ask_again(&self, family: Family, out: &mut Vec<Action>) {
        if self.agreed.route_refresh && self.agreed.options.exchanges(family) {
            let request = RouteRefresh { family, phase: RefreshPhase::Request };
            out.push(Action::Send(self.direction, Message::RouteRefresh(request)));
        }
    }

    /// Handles a message.
    ///
    /// # Errors
    /// When the message is not allowed here; the error is the NOTIFICATION that ends the session.
    pub(super) fn received(
        &mut self,
        message: Message,
        now: Moment,
        stale: &mut [Option<Moment>; 2],
        settings: &Settings,
        out: &mut Vec<Action>,
    ) -> Result<(), Notification> {
        self.hear(now);
        match message {
            Message::Keepalive | Message::UnknownRefresh => Ok(()),
            Message::Update(update) => {
                match update.end_of_rib {
                    Some(family) => {
                        if stale[family.index()].take().is_some() {
                            out.push(Action::SweepStale(family));
                        }
                        out.push(Action::EndOfRib(family));
                    }
                    None => out.push(Action::Routes(update)),
                }
                Ok(())
            }
            Message::RouteRefresh(refresh) => {
                self.refresh(refresh, now, stale, settings, out);
                Ok(())
            }
            Message::Open(_) | Message::Notification(_) => Err(Cause::Fsm(FsmFault::Established).into()),
        }
    }

    fn refresh(
        &self,
        refresh: RouteRefresh,
        now: Moment,
        stale: &mut [Option<Moment>; 2],
        settings: &Settings,
        out: &mut Vec<Action>,
    ) {
        let RouteRefresh { family, phase } = refresh;
        if !self.agreed.options.exchanges(family) || !settings.families[family.index()] {
            return;
        }
        let marks = self.agreed.enhanced_refresh;
        match phase {
            RefreshPhase::Request => out.push(Action::SendAgain(family, marks)),
            RefreshPhase::Begin if marks => {
                stale[family.index()] = Some(now + REFRESH_TIMEOUT);
                out.push(Action::MarkStale(family));
            }
            RefreshPhase::End if marks => {
                if stale[family.index()].take().is_some() {
                    out.push(Action::SweepStale(family));
                }
            }
            RefreshPhase::Begin | RefreshPhase::End => {}
        }
    }
}
