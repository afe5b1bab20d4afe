//! The five messages, and the negotiated options that affect their encoding.

use crate::{Family, Notification, Open, RouteRefresh, Update};

/// The length of a message's header.
pub const HEADER_LENGTH: usize = 19;
/// The maximum length of a message.
pub const MAX_LENGTH: usize = 4096;
/// The maximum length of a message between speakers that agreed on longer ones (RFC 8654).
pub const MAX_EXTENDED_LENGTH: usize = 65535;

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// OPEN.
    Open,
    /// UPDATE.
    Update,
    /// NOTIFICATION.
    Notification,
    /// KEEPALIVE.
    Keepalive,
    /// ROUTE-REFRESH.
    RouteRefresh,
}

impl MessageKind {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Update => 2,
            Self::Notification => 3,
            Self::Keepalive => 4,
            Self::RouteRefresh => 5,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Open),
            2 => Some(Self::Update),
            3 => Some(Self::Notification),
            4 => Some(Self::Keepalive),
            5 => Some(Self::RouteRefresh),
            _ => None,
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The speaker's identity and capabilities.
    Open(Open),
    /// Routes.
    Update(Box<Update>),
    /// The end of the session, with the reason.
    Notification(Notification),
    /// A keepalive.
    Keepalive,
    /// A request for routes, or a marker.
    RouteRefresh(RouteRefresh),
    /// A ROUTE-REFRESH of an unknown family or type, which must be ignored.
    UnknownRefresh,
}

/// The options that the two speakers of a session agreed on, as far as they affect the encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// AS numbers have four bytes.
    pub four_byte_as: bool,
    /// Messages may be longer than 4,096 bytes.
    pub extended_messages: bool,
    /// The peer is in another AS.
    pub external: bool,
    /// The exchanged families.
    pub families: [bool; 2],
    /// IPv4 routes may have IPv6 next hops.
    pub extended_next_hop: bool,
    /// The peer's prefixes of a family carry path identifiers.
    pub add_path_receive: [bool; 2],
    /// Our prefixes of a family carry path identifiers.
    pub add_path_send: [bool; 2],
}

impl SessionOptions {
    /// The maximum length of a message.
    #[must_use]
    pub fn max_length(&self) -> usize {
        if self.extended_messages { MAX_EXTENDED_LENGTH } else { MAX_LENGTH }
    }

    /// Whether a family is exchanged.
    #[must_use]
    pub fn exchanges(&self, family: Family) -> bool {
        self.families[family.index()]
    }
}
