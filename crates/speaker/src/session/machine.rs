//! States, and the dispatch of events. Connections are opened in [`opening`] and ended in [`ending`]; deadlines are in
//! [`timers`].

mod ending;
mod opening;
mod timers;

use super::established::Established;
use super::event::{Action, Agreed, Direction, Event, Moment, Reason, StateName};
use super::handshake::{self, Handshake};
use super::settings::{Random, Settings};
use bgp_wire::{Cause, CeaseReason, Family, FsmFault, Message, Notification, SessionOptions};
use std::time::Duration;

/// The state of a session.
#[derive(Debug)]
enum State {
    /// No connection is attempted: for good, or until the pause after an error is over.
    Idle { until: Option<Moment> },
    /// Connections are opened and accepted, at most one in each direction.
    Trying { retry: Option<Moment>, outgoing: Outgoing, incoming: Option<Handshake> },
    /// Routes are exchanged.
    Established(Box<Established>),
}

/// The state of our own connection attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outgoing {
    /// There is no attempt.
    None,
    /// The attempt is in progress.
    Connecting,
    /// The connection is established.
    Open(Handshake),
}

/// The session with one peer.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Settings,
    state: State,
    /// This speaker has just restarted and forwards by its previous routes.
    restarting: bool,
    /// The pause after the last error, and when that was.
    penalty: Option<(Duration, Moment)>,
    /// Until when stale routes of a family are kept, whatever the state.
    stale: [Option<Moment>; 2],
    warned_of_limit: bool,
    last_reason: Option<Reason>,
}

/// How to handle an incoming connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The session accepts it: send [`Event::Accepted`].
    Take,
    /// It is answered with this message and closed.
    Refuse(Notification),
    /// It is closed without a message: the peer may try again soon.
    Drop,
}

impl Session {
    /// Creates a session that has not been started.
    #[must_use]
    pub(crate) fn new(settings: Settings, restarting: bool) -> Self {
        Self {
            settings,
            state: State::Idle { until: None },
            restarting,
            penalty: None,
            stale: [None; 2],
            warned_of_limit: false,
            last_reason: None,
        }
    }

    /// The session's settings.
    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Ends this speaker's restart: later OPENs do not mention it.
    pub(crate) fn end_restart(&mut self) {
        self.restarting = false;
    }

    /// The displayed state.
    #[must_use]
    pub(crate) fn state(&self) -> StateName {
        match &self.state {
            State::Idle { .. } => StateName::Idle,
            State::Established(_) => StateName::Established,
            State::Trying { outgoing, incoming, .. } => {
                let of = |handshake: &Handshake| match handshake {
                    Handshake::OpenSent { .. } | Handshake::Waiting { .. } => StateName::OpenSent,
                    Handshake::OpenConfirm { .. } => StateName::OpenConfirm,
                };
                let ours = match outgoing {
                    Outgoing::None => StateName::Active,
                    Outgoing::Connecting => StateName::Connect,
                    Outgoing::Open(handshake) => of(handshake),
                };
                let theirs = incoming.as_ref().map_or(StateName::Idle, of);
                ours.max(theirs)
            }
        }
    }

    /// Why the last session or attempt ended; `None` while a session is up.
    #[must_use]
    pub(crate) fn last_reason(&self) -> Option<&Reason> {
        self.last_reason.as_ref()
    }

    /// The agreed parameters, while the session is up.
    #[must_use]
    pub(crate) fn agreed(&self) -> Option<&Agreed> {
        match &self.state {
            State::Established(established) => Some(&established.agreed),
            _ => None,
        }
    }

    /// The options for encoding and decoding messages on a connection.
    #[must_use]
    pub(crate) fn options(&self, direction: Direction) -> SessionOptions {
        let of = |handshake: &Handshake| match handshake {
            Handshake::OpenSent { .. } => SessionOptions::default(),
            Handshake::Waiting { agreed, .. } | Handshake::OpenConfirm { agreed, .. } => agreed.options,
        };
        match (&self.state, direction) {
            (State::Established(established), _) => established.agreed.options,
            (State::Trying { outgoing: Outgoing::Open(handshake), .. }, Direction::Outgoing)
            | (State::Trying { incoming: Some(handshake), .. }, Direction::Incoming) => of(handshake),
            _ => SessionOptions::default(),
        }
    }

    /// Whether stale routes of a family are currently kept.
    #[must_use]
    pub(crate) fn keeps_stale(&self, family: Family) -> bool {
        self.stale[family.index()].is_some()
    }

    /// Records that the session's connection accepts no more data.
    pub(crate) fn blocked(&mut self, now: Moment) {
        if let State::Established(established) = &mut self.state {
            established.blocked(now);
        }
    }

    /// Records that the peer has accepted data.
    pub(crate) fn progressed(&mut self) {
        if let State::Established(established) = &mut self.state {
            established.progressed();
        }
    }

    /// Decides about an incoming connection. The actions close a connection that it replaces.
    pub(crate) fn admit(&mut self, now: Moment, random: &mut Random, out: &mut Vec<Action>) -> Admission {
        let refuse = |reason| Admission::Refuse(Cause::Cease(reason).into());
        match &self.state {
            // Two speakers that pause in turn must not count each other's refusal as another error.
            State::Idle { .. } => Admission::Drop,
            State::Trying { incoming: None, .. } => Admission::Take,
            State::Trying { incoming: Some(Handshake::OpenSent { .. }), .. } => {
                // The peer has given up its connection on which it sent nothing.
                self.forget(Direction::Incoming);
                out.push(Action::Close(Direction::Incoming));
                Admission::Take
            }
            State::Trying { .. } => refuse(CeaseReason::CollisionResolution),
            State::Established(established) if established.agreed.restart.is_some() => {
                // A peer with graceful restart that connects again has restarted (RFC 4724, 4.2).
                let before = self.state();
                self.end_session(Reason::PeerRestarted, now, random, out);
                self.note_change(before, out);
                Admission::Take
            }
            State::Established(_) => refuse(CeaseReason::CollisionResolution),
        }
    }

    /// Handles an event and adds actions.
    pub(crate) fn handle(&mut self, event: Event, now: Moment, random: &mut Random, out: &mut Vec<Action>) {
        let before = self.state();
        match event {
            Event::Start => {
                if let State::Idle { until: None } = self.state {
                    self.try_again(now + random.jittered(self.settings.connect_delay));
                }
            }
            Event::Stop(notification) => self.stop(notification, out),
            Event::Connected => self.connected(now, out),
            Event::ConnectFailed(error) => self.connect_failed(error, now, random),
            Event::Accepted => {
                if let State::Trying { incoming, .. } = &mut self.state {
                    *incoming = Some(Handshake::open_sent(now));
                    let open = handshake::offer(&self.settings, self.restarting);
                    out.push(Action::Send(Direction::Incoming, Message::Open(open)));
                } else {
                    out.push(Action::Close(Direction::Incoming));
                }
            }
            Event::Closed(direction, error) => {
                let reason = error.map_or(Reason::Closed, Reason::Socket);
                self.closed(direction, reason, now, random, out);
            }
            Event::Received(direction, message) => self.received(direction, message, now, random, out),
            Event::Tick => self.tick(now, random, out),
            Event::Prefixes(count) => self.prefixes(count, now, random, out),
            Event::AskAgain(family) => {
                if let State::Established(established) = &self.state {
                    established.ask_again(family, out);
                }
            }
            Event::BfdDown => {
                if matches!(self.state, State::Established(_)) {
                    self.end_with(Cause::Cease(CeaseReason::BfdDown).into(), now, random, out);
                }
            }
        }
        self.note_change(before, out);
    }

    fn note_change(&self, from: StateName, out: &mut Vec<Action>) {
        let to = self.state();
        if from != to {
            // From Connect to Active is also a step back: the attempt has failed.
            let back = to < from || (from, to) == (StateName::Connect, StateName::Active);
            let reason = if back { self.last_reason.clone() } else { None };
            out.push(Action::Changed { from, to, reason });
        }
    }

    /// Waits for the peer, and until the next attempt.
    fn try_again(&mut self, at: Moment) {
        let retry = (!self.settings.passive).then_some(at);
        self.state = State::Trying { retry, outgoing: Outgoing::None, incoming: None };
    }

    fn received(
        &mut self,
        direction: Direction,
        message: Result<Message, Notification>,
        now: Moment,
        random: &mut Random,
        out: &mut Vec<Action>,
    ) {
        let message = match message {
            Ok(Message::Notification(notification)) => {
                if self.knows(direction) {
                    self.failed(direction, Reason::Received(notification), now, random, out);
                }
                return;
            }
            Ok(message) => message,
            Err(answer) => {
                self.refuse(direction, answer, now, random, out);
                return;
            }
        };
        match &mut self.state {
            State::Established(established) if established.direction == direction => {
                if let Err(answer) = established.received(message, now, &mut self.stale, &self.settings, out)
                {
                    self.refuse(direction, answer, now, random, out);
                }
            }
            State::Idle { .. } | State::Established(_) => {}
            State::Trying { outgoing, incoming, .. } => {
                let handshake = match (direction, outgoing, incoming) {
                    (Direction::Outgoing, Outgoing::Open(handshake), _) => handshake,
                    (Direction::Incoming, _, Some(handshake)) => handshake,
                    _ => return,
                };
                match (&mut *handshake, message) {
                    (Handshake::OpenSent { .. }, Message::Open(open)) => {
                        match handshake::agree(&self.settings, open) {
                            Ok(agreed) => self.confirm(direction, Box::new(agreed), now, random, out),
                            Err(answer) => self.refuse(direction, answer, now, random, out),
                        }
                    }
                    (Handshake::OpenConfirm { .. }, Message::Keepalive) => {
                        self.establish(direction, now, random, out);
                    }
                    (Handshake::Waiting { consented, .. }, Message::Keepalive) => *consented = true,
                    (Handshake::OpenSent { .. }, _) => {
                        self.refuse(direction, Cause::Fsm(FsmFault::OpenSent).into(), now, random, out);
                    }
                    (Handshake::Waiting { .. } | Handshake::OpenConfirm { .. }, _) => {
                        self.refuse(direction, Cause::Fsm(FsmFault::OpenConfirm).into(), now, random, out);
                    }
                }
            }
        }
    }

    /// Whether there is a connection in this direction.
    fn knows(&self, direction: Direction) -> bool {
        match &self.state {
            State::Idle { .. } => false,
            State::Trying { outgoing, incoming, .. } => match direction {
                Direction::Outgoing => matches!(outgoing, Outgoing::Open(_)),
                Direction::Incoming => incoming.is_some(),
            },
            State::Established(established) => established.direction == direction,
        }
    }
}
