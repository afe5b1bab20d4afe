//! States, and who takes an event. Connections come up in [`opening`], end in [`ending`]; deadlines are in [`timers`].

mod ending;
mod opening;
mod timers;

use super::established::Established;
use super::event::{Action, Agreed, Direction, Event, Moment, Reason, StateName};
use super::handshake::{self, Handshake};
use super::settings::{Random, Settings};
use bgp_wire::{Cause, CeaseReason, Family, FsmFault, Message, Notification, SessionOptions};
use std::time::Duration;

/// Where a session is.
#[derive(Debug)]
enum State {
    /// Nothing is tried: for good, or until the pause after an error is over.
    Idle { until: Option<Moment> },
    /// Connections are made and accepted, one in each direction at most.
    Trying { retry: Option<Moment>, outgoing: Outgoing, incoming: Option<Handshake> },
    /// Routes are exchanged.
    Established(Box<Established>),
}

/// What became of our own attempt to connect.
#[derive(Debug, PartialEq, Eq)]
enum Outgoing {
    /// There is none just now.
    None,
    /// It is under way.
    Connecting,
    /// It stands.
    Open(Handshake),
}

/// The session with one peer.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Settings,
    state: State,
    /// This speaker has restarted just now and forwards by the routes of before.
    restarting: bool,
    /// The pause after the last error, and when that was.
    penalty: Option<(Duration, Moment)>,
    /// Until when stale routes of a family are kept, whatever the state.
    stale: [Option<Moment>; 2],
    warned_of_limit: bool,
    last_reason: Option<Reason>,
}

/// What is to be done with a connection that the peer has made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is the session's: say [`Event::Accepted`].
    Take,
    /// It is answered with this and closed.
    Refuse(Notification),
    /// It is closed without a word: the peer may try again soon.
    Drop,
}

impl Session {
    /// A session that has not been started.
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

    /// What it is configured with.
    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// This speaker's restart is over: later OPENs do not speak of it.
    pub(crate) fn end_restart(&mut self) {
        self.restarting = false;
    }

    /// The state that people see.
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

    /// Why the last session or attempt ended. Forgotten when a session is up.
    #[must_use]
    pub(crate) fn last_reason(&self) -> Option<&Reason> {
        self.last_reason.as_ref()
    }

    /// What was agreed on, while the session is up.
    #[must_use]
    pub(crate) fn agreed(&self) -> Option<&Agreed> {
        match &self.state {
            State::Established(established) => Some(&established.agreed),
            _ => None,
        }
    }

    /// How messages on a connection are to be read and written.
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

    /// Whether stale routes of a family are kept just now.
    #[must_use]
    pub(crate) fn keeps_stale(&self, family: Family) -> bool {
        self.stale[family.index()].is_some()
    }

    /// What waits to be sent on the session's connection is not taken just now.
    pub(crate) fn blocked(&mut self, now: Moment) {
        if let State::Established(established) = &mut self.state {
            established.blocked(now);
        }
    }

    /// The peer has taken something of what waited.
    pub(crate) fn progressed(&mut self) {
        if let State::Established(established) = &mut self.state {
            established.progressed();
        }
    }

    /// The peer has made a connection: whether the session takes it. What it replaces is closed by the actions.
    pub(crate) fn admit(&mut self, now: Moment, random: &mut Random, out: &mut Vec<Action>) -> Admission {
        let refuse = |reason| Admission::Refuse(Cause::Cease(reason).into());
        match &self.state {
            // Two speakers that pause in turn must not count each other's refusal as the next error.
            State::Idle { .. } => Admission::Drop,
            State::Trying { incoming: None, .. } => Admission::Take,
            State::Trying { incoming: Some(Handshake::OpenSent { .. }), .. } => {
                // The peer has given up the connection that it has not said a word on.
                self.forget(Direction::Incoming);
                out.push(Action::Close(Direction::Incoming));
                Admission::Take
            }
            State::Trying { .. } => refuse(CeaseReason::CollisionResolution),
            State::Established(established) if established.agreed.restart.is_some() => {
                // A peer that can restart and connects again has done so (RFC 4724, 4.2).
                let before = self.state();
                self.end_session(Reason::PeerRestarted, now, random, out);
                self.note_change(before, out);
                Admission::Take
            }
            State::Established(_) => refuse(CeaseReason::CollisionResolution),
        }
    }

    /// Takes what happened and adds what to do.
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
            // From Connect to Active is a step back, too: the attempt has failed.
            let back = to < from || (from, to) == (StateName::Connect, StateName::Active);
            let reason = if back { self.last_reason.clone() } else { None };
            out.push(Action::Changed { from, to, reason });
        }
    }

    /// Waits for the peer, and for the next attempt of ours.
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

    /// Whether there is such a connection.
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
