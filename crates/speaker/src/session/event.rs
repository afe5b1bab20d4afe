//! The events of a session, and its actions.

use bgp_wire::{Family, Message, Notification, Open, SessionOptions, Update};
use std::fmt;
use std::time::Duration;

/// Time since the speaker began.
pub(crate) type Moment = Duration;

/// The end that opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// We opened it.
    Outgoing,
    /// The peer opened it.
    Incoming,
}

impl Direction {
    /// The opposite direction.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Outgoing => Self::Incoming,
            Self::Incoming => Self::Outgoing,
        }
    }
}

/// An event of a session.
#[derive(Debug)]
pub(crate) enum Event {
    /// The session is to be started.
    Start,
    /// The session is to be ended, with this message to the peer.
    Stop(Notification),
    /// Our connection is established.
    Connected,
    /// Our connection failed, with the error.
    ConnectFailed(String),
    /// The peer has connected.
    Accepted,
    /// A connection has ended; the error is set unless the peer closed it.
    Closed(Direction, Option<String>),
    /// A message was received, or bytes that must be answered with a NOTIFICATION.
    Received(Direction, Result<Message, Notification>),
    /// A deadline may have passed.
    Tick,
    /// The number of prefixes that the peer currently announces.
    Prefixes(usize),
    /// The peer is to send all routes of a family again, because a filter changed.
    AskAgain(Family),
    /// BFD no longer sees the peer.
    BfdDown,
}

/// An action of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start to connect.
    Connect,
    /// Send a message.
    Send(Direction, Message),
    /// Close a connection after sending the pending data.
    Close(Direction),
    /// The session is up: routes may be sent on this connection.
    Up(Direction, Box<Agreed>),
    /// The session has ended. The peer's routes are removed, except for families that are kept.
    Down {
        /// The cause.
        reason: Reason,
        /// The families whose routes are kept as stale.
        keep: [bool; 2],
    },
    /// An update from the peer.
    Routes(Box<Update>),
    /// The peer has sent all its routes of a family.
    EndOfRib(Family),
    /// The peer's present routes of a family become stale, until [`Action::SweepStale`].
    MarkStale(Family),
    /// The peer's stale routes of a family are to be removed.
    SweepStale(Family),
    /// All routes of a family are to be sent again, between markers if the flag is set.
    SendAgain(Family, bool),
    /// The displayed state has changed.
    Changed {
        /// The previous state.
        from: StateName,
        /// The new state.
        to: StateName,
        /// The cause, unless the change was expected.
        reason: Option<Reason>,
    },
    /// A warning for the log.
    Warn(String),
}

/// The parameters that both sides of a session agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The options that affect the encoding of messages.
    pub options: SessionOptions,
    /// After this many seconds of silence the peer is gone. 0 means never.
    pub hold_time: u16,
    /// The keepalive interval in seconds. 0 means none.
    pub keepalive_time: u16,
    /// Whether the peer supports route refresh.
    pub route_refresh: bool,
    /// Whether route refreshes are enclosed by markers.
    pub enhanced_refresh: bool,
    /// The families whose routes are kept when the peer restarts, and for how many seconds.
    pub restart: Option<([bool; 2], u16)>,
    /// Whether the peer reports that it has just restarted.
    pub peer_restarting: bool,
    /// The peer's OPEN message.
    pub open: Open,
}

/// The states of RFC 4271, as shown to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// No connection is attempted.
    Idle,
    /// Connecting.
    Connect,
    /// Waiting for the peer, or for the next attempt.
    Active,
    /// We have sent OPEN.
    OpenSent,
    /// Both have sent OPEN, and we wait for the peer's keepalive.
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
    /// We ended it with this message.
    Sent(Notification),
    /// The peer ended it with this message.
    Received(Notification),
    /// The connection failed or broke.
    Socket(String),
    /// The peer closed the connection without a message.
    Closed,
    /// The peer has connected again, so it has restarted.
    PeerRestarted,
}

impl fmt::Display for Reason {
    /// Uses BIRD's words.
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
