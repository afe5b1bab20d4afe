//! Control packets of BFD (RFC 5880, 4.1).

use std::fmt;
use std::time::Duration;

/// The length of a packet without authentication.
pub(crate) const LENGTH: usize = 24;
const LENGTH_FIELD: u8 = 24;
const VERSION: u8 = 1;

/// The state of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum State {
    /// Administratively down; says nothing about forwarding.
    AdminDown,
    /// No packets from the other end.
    Down,
    /// The other end's packets arrive, but it does not receive ours yet.
    Init,
    /// Both ends receive each other's packets.
    Up,
}

impl State {
    fn number(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }

    fn of_number(number: u8) -> Self {
        match number {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

/// Why an end last went down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Diagnostic {
    /// Not given.
    #[default]
    None,
    /// The detection time expired.
    TimeExpired,
    /// The other end reported that it is down.
    NeighbourDown,
    /// Administratively down.
    AdminDown,
    /// A number that has no meaning here.
    Other(u8),
}

impl Diagnostic {
    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TimeExpired => 1,
            Self::NeighbourDown => 3,
            Self::AdminDown => 7,
            Self::Other(number) => number & 31,
        }
    }

    fn of_number(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::TimeExpired,
            3 => Self::NeighbourDown,
            7 => Self::AdminDown,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no reason given"),
            Self::TimeExpired => f.write_str("nothing was received in time"),
            Self::NeighbourDown => f.write_str("it does not receive our packets"),
            Self::AdminDown => f.write_str("shut down by the peer"),
            Self::Other(number) => write!(f, "reason {number}"),
        }
    }
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Why the sender last went down.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// Whether it requests an answer to its new intervals.
    pub poll: bool,
    /// Whether this is such an answer.
    pub last: bool,
    /// After this many missing packets the session is down.
    pub multiplier: u8,
    /// The sender's number for the session.
    pub mine: u32,
    /// The receiver's number for it; zero while unknown.
    pub yours: u32,
    /// The interval that the sender would like between its packets.
    pub desired_transmit: Duration,
    /// The shortest interval between packets that it accepts. Zero: it requests no packets at all.
    pub required_receive: Duration,
}

impl Packet {
    /// Encodes the packet.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = VERSION << 5 | self.diagnostic.number();
        bytes[1] = self.state.number() << 6 | u8::from(self.poll) << 5 | u8::from(self.last) << 4;
        bytes[2] = self.multiplier;
        bytes[3] = LENGTH_FIELD;
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let words = [self.mine, self.yours, micros(self.desired_transmit), micros(self.required_receive), 0];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes a packet; `None` for one that must be discarded (RFC 5880, 6.8.6).
    #[must_use]
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [first, flags, multiplier, length, rest @ ..] = bytes else { return None };
        let (words, _) = rest.as_chunks::<4>();
        let [mine, yours, transmit, receive, _echo, ..] = words else { return None };
        let word = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
        let flag = |bit: u8| flags & (1 << bit) != 0;
        let (authenticated, multipoint) = (flag(2), flag(0));
        let state = State::of_number(flags >> 6);
        let is_whole = (LENGTH..=bytes.len()).contains(&usize::from(*length));
        let is_ours = first >> 5 == VERSION && is_whole && !authenticated && !multipoint;
        // A sender that does not know our number can only be at the beginning.
        let is_sane = *multiplier > 0
            && word(mine) != 0
            && (word(yours) != 0 || matches!(state, State::Down | State::AdminDown));
        let time = |bytes| Duration::from_micros(u64::from(word(bytes)));
        (is_ours && is_sane).then(|| Self {
            diagnostic: Diagnostic::of_number(first & 31),
            state,
            poll: flag(5),
            last: flag(4),
            multiplier: *multiplier,
            mine: word(mine),
            yours: word(yours),
            desired_transmit: time(transmit),
            required_receive: time(receive),
        })
    }
}
