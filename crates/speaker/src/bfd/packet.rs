//! Control packets of BFD (RFC 5880, 4.1).

use std::fmt;
use std::time::Duration;

/// How long a packet without authentication is.
pub(crate) const LENGTH: usize = 24;
const LENGTH_FIELD: u8 = 24;
const VERSION: u8 = 1;

/// The state of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum State {
    /// Held down on purpose; says nothing about forwarding.
    AdminDown,
    /// The other end has not been heard.
    Down,
    /// The other end was heard, and does not hear us yet.
    Init,
    /// Both hear each other.
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
    /// Not said.
    #[default]
    None,
    /// Nothing came in time.
    TimeExpired,
    /// The other end said that it is down.
    NeighbourDown,
    /// Held down on purpose.
    AdminDown,
    /// A number that is of no meaning here.
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
            Self::TimeExpired => f.write_str("nothing was heard in time"),
            Self::NeighbourDown => f.write_str("it does not hear us"),
            Self::AdminDown => f.write_str("ended on purpose"),
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
    /// Whether it asks for an answer to its new times.
    pub poll: bool,
    /// Whether this is that answer.
    pub last: bool,
    /// After so many missing packets the session is down.
    pub multiplier: u8,
    /// The sender's number of the session.
    pub mine: u32,
    /// The receiver's number of it; zero while it is not known.
    pub yours: u32,
    /// The pause that the sender would like between its packets.
    pub desired_transmit: Duration,
    /// The shortest pause between packets that it takes. Zero: none at all are wanted.
    pub required_receive: Duration,
}

impl Packet {
    /// The packet's bytes.
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

    /// Reads a packet; nothing of one that has to be thrown away (RFC 5880, 6.8.6).
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
        // Who does not know our number can only be at the beginning.
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
