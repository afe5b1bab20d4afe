//! What happens to a session, and what it asks for.

use bgp_wire::{Family, Message, Notification, Open, SessionOptions, Update};
use std::fmt;
use std::time::Duration;

/// Time since the speaker began.
pub(crate) type Moment = Duration;

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// We did.
    Outgoing,
    /// The peer did.
    Incoming,
}

impl Direction {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Outgoing => Self::Incoming,
            Self::Incoming => Self::Outgoing,
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// The session shall be.
    Start,
    /// The session shall not be any more: what to say to the peer.
    Stop(Notification),
    /// Our connection stands.
    Connected,
    /// Our connection did not come about, and why.
    ConnectFailed(String),
    /// The peer has connected.
    Accepted,
    /// A connection has ended; the reason, if it is not that the peer closed it.
    Closed(Direction, Option<String>),
    /// A message has come, or bytes whose answer is a NOTIFICATION.
    Received(Direction, Result<Message, Notification>),
    /// A deadline may have passed.
    Tick,
    /// How many prefixes the peer has announced by now.
    Prefixes(usize),
    /// All routes of a family shall be sent again by the peer, because a filter changed.
    AskAgain(Family),
    /// BFD has lost the peer.
    BfdDown,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Begin to connect.
    Connect,
    /// Send a message.
    Send(Direction, Message),
    /// Close a connection, after what was sent on it.
    Close(Direction),
    /// The session is up: routes may be sent on this connection.
    Up(Direction, Box<Agreed>),
    /// The session has ended. The peer's routes of the families that are not kept are gone.
    Down {
        /// What ended it.
        reason: Reason,
        /// The families whose routes are kept as stale.
        keep: [bool; 2],
    },
    /// Routes of the peer.
    Routes(Box<Update>),
    /// The peer has sent all it has of a family.
    EndOfRib(Family),
    /// From here on the peer's former routes of a family count as stale, until [`Action::SweepStale`].
    MarkStale(Family),
    /// The peer's stale routes of a family are gone.
    SweepStale(Family),
    /// All routes of a family are to be sent again, between marks if the flag is set.
    SendAgain(Family, bool),
    /// The state that people see has changed.
    Changed {
        /// What it was.
        from: StateName,
        /// What it is.
        to: StateName,
        /// Why, if not as expected.
        reason: Option<Reason>,
    },
    /// Something that a person should know.
    Warn(String),
}

/// What both sides of a session agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// What changes how messages are read and written.
    pub options: SessionOptions,
    /// After so much silence the peer is gone. 0 means never.
    pub hold_time: u16,
    /// The pause between signs of life. 0 means none.
    pub keepalive_time: u16,
    /// Whether the peer can be asked for its routes.
    pub route_refresh: bool,
    /// Whether answers to that come between marks.
    pub enhanced_refresh: bool,
    /// The families whose routes are kept when the peer restarts, and for how many seconds.
    pub restart: Option<([bool; 2], u16)>,
    /// Whether the peer says that it has just restarted.
    pub peer_restarting: bool,
    /// The peer's own words.
    pub open: Open,
}

/// The states of RFC 4271, as people know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// Nothing is tried.
    Idle,
    /// A connection is being made.
    Connect,
    /// Waiting: for the peer, or for the next attempt.
    Active,
    /// We have sent OPEN.
    OpenSent,
    /// Both have, and we wait for the other's consent.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        })
    }
}

/// Why a session or an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// We ended it with this.
    Sent(Notification),
    /// The peer ended it with this.
    Received(Notification),
    /// The connection could not be made, or broke.
    Socket(String),
    /// The peer closed the connection without a word.
    Closed,
    /// The peer has connected again: it has restarted.
    PeerRestarted,
}

impl fmt::Display for Reason {
    /// In BIRD's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(notification) => write!(f, "BGP Error: {notification}"),
            Self::Received(notification) => write!(f, "Received: {notification}"),
            Self::Socket(error) => write!(f, "Socket: {error}"),
            Self::Closed => f.write_str("Socket: Connection closed"),
            Self::PeerRestarted => f.write_str("Neighbor graceful restart"),
        }
    }
}
