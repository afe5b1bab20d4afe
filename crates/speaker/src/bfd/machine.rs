//! One BFD session: states, the interval between packets, and the detection time (RFC 5880, 6.8).

use super::packet::{Diagnostic, Packet, State};
use crate::session::{Moment, Random};
use std::time::Duration;

/// While a session is not up, packets are at least this far apart (RFC 5880, 6.8.3).
const SLOW: Duration = Duration::from_secs(1);

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The interval between packets that we send, and the shortest one that we accept.
    pub interval: Duration,
    /// After this many missing packets the session is down.
    pub multiplier: u8,
}

/// A change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Both ends receive each other's packets.
    Up,
    /// The peer's packets stopped, or it does not receive ours.
    Down(Diagnostic),
    /// The peer shut the session down, which says nothing about forwarding.
    Ended,
}

/// The content of the peer's last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    discriminator: u32,
    desired_transmit: Duration,
    required_receive: Duration,
    multiplier: u8,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Bfd {
    settings: Settings,
    discriminator: u32,
    state: State,
    diagnostic: Diagnostic,
    heard: Option<Heard>,
    /// Our new intervals have not been acknowledged yet.
    polling: bool,
    next: Moment,
    detect: Option<Moment>,
}

impl Bfd {
    /// Creates a session that has received nothing yet. `discriminator` is our number for it: not zero, and different
    /// for each session.
    #[must_use]
    pub(crate) fn new(settings: Settings, discriminator: u32, now: Moment) -> Self {
        Self {
            settings,
            discriminator,
            state: State::Down,
            diagnostic: Diagnostic::None,
            heard: None,
            polling: false,
            next: now,
            detect: None,
        }
    }

    /// Our number for the session.
    #[must_use]
    pub(crate) fn discriminator(&self) -> u32 {
        self.discriminator
    }

    /// Our state.
    #[must_use]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// When [`Bfd::tick`] is due.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let next = (!self.is_unwanted()).then_some(self.next);
        match (next, self.detect) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether the peer requests no packets at all.
    fn is_unwanted(&self) -> bool {
        self.heard.is_some_and(|heard| heard.required_receive.is_zero())
    }

    /// The interval that we would like between our packets.
    fn desired(&self) -> Duration {
        if self.state == State::Up { self.settings.interval } else { self.settings.interval.max(SLOW) }
    }

    /// The interval between our packets: our desired one or the one that the peer accepts, whichever is longer, less a
    /// random part so that sessions do not synchronise (RFC 5880, 6.8.7).
    fn pause(&self, random: &mut Random) -> Duration {
        let takes = self.heard.map_or(Duration::ZERO, |heard| heard.required_receive);
        let pause = random.jittered(self.desired().max(takes));
        if self.settings.multiplier == 1 { pause * 9 / 10 } else { pause }
    }

    fn packet(&self, answer: bool) -> Packet {
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.polling && !answer,
            last: answer,
            multiplier: self.settings.multiplier,
            mine: self.discriminator,
            yours: self.heard.map_or(0, |heard| heard.discriminator),
            desired_transmit: self.desired(),
            required_receive: self.settings.interval,
        }
    }

    /// Takes in a packet of the peer; returns an answer to send at once, and the change of the session.
    pub(crate) fn received(&mut self, packet: &Packet, now: Moment) -> (Option<Packet>, Option<News>) {
        self.heard = Some(Heard {
            discriminator: packet.mine,
            desired_transmit: packet.desired_transmit,
            required_receive: packet.required_receive,
            multiplier: packet.multiplier,
        });
        self.polling &= !packet.last;
        let news = match (self.state, packet.state) {
            (State::AdminDown, _) => None,
            (State::Down, State::AdminDown) => None,
            (_, State::AdminDown) => {
                self.change(State::Down, Diagnostic::NeighbourDown).then_some(News::Ended)
            }
            (State::Down, State::Down) => {
                self.change(State::Init, self.diagnostic);
                None
            }
            (State::Down | State::Init, State::Init) | (State::Init, State::Up) => {
                self.change(State::Up, Diagnostic::None);
                // From here on packets may be closer together, which the peer has to acknowledge.
                self.polling = true;
                self.next = now;
                Some(News::Up)
            }
            (State::Up, State::Down) => {
                self.change(State::Down, Diagnostic::NeighbourDown);
                Some(News::Down(Diagnostic::NeighbourDown))
            }
            (State::Down, State::Up) | (State::Init, State::Down) | (State::Up, State::Init | State::Up) => {
                None
            }
        };
        self.detect = (self.state >= State::Init).then(|| now + self.patience());
        (packet.poll.then(|| self.packet(true)), news)
    }

    /// The detection time: after this long without packets the peer is gone (RFC 5880, 6.8.4).
    fn patience(&self) -> Duration {
        self.heard.map_or(SLOW, |heard| {
            u32::from(heard.multiplier) * self.settings.interval.max(heard.desired_transmit)
        })
    }

    /// Changes the state; returns whether the session was up and no longer is.
    fn change(&mut self, state: State, diagnostic: Diagnostic) -> bool {
        let was_up = self.state == State::Up;
        self.state = state;
        self.diagnostic = diagnostic;
        was_up && state != State::Up
    }

    /// Handles deadlines; returns a packet to send, and the change of the session.
    pub(crate) fn tick(&mut self, now: Moment, random: &mut Random) -> (Option<Packet>, Option<News>) {
        let mut news = None;
        if self.detect.is_some_and(|detect| detect <= now) {
            self.detect = None;
            if self.change(State::Down, Diagnostic::TimeExpired) {
                news = Some(News::Down(Diagnostic::TimeExpired));
            }
            // A peer that returns may be a different one (RFC 5880, 6.8.1: the remote number is forgotten).
            self.heard = None;
            self.polling = false;
        }
        if self.is_unwanted() || self.next > now {
            return (None, news);
        }
        self.next = now + self.pause(random);
        (Some(self.packet(false)), news)
    }

    /// The final packet: administratively down, so that the peer does not treat the end as a failure.
    #[must_use]
    pub(crate) fn end(&mut self) -> Packet {
        self.state = State::AdminDown;
        self.diagnostic = Diagnostic::AdminDown;
        self.detect = None;
        self.packet(false)
    }
}
