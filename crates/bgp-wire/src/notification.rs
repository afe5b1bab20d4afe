//! NOTIFICATION: why a speaker ends a session.

use std::fmt;

/// What is wrong with a message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderFault {
    /// The marker is not all ones.
    NotSynchronised,
    /// The length does not fit the type.
    BadLength,
    /// The type is not known.
    BadType,
}

/// What is wrong with an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpenFault {
    /// Malformed.
    Unspecific,
    /// Another version than 4.
    Version,
    /// Not the system that is expected.
    PeerAs,
    /// Not an identifier, or ours.
    Identifier,
    /// An optional parameter that is not known.
    Parameter,
    /// A hold time of 1 or 2 seconds, or one that is not acceptable.
    HoldTime,
    /// A capability that is needed is not there.
    Capability,
}

/// What is wrong with an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpdateFault {
    /// The lists do not add up.
    MalformedAttributes,
    /// A well-known attribute that is not known.
    UnknownWellKnown,
    /// A well-known attribute is missing.
    MissingWellKnown,
    /// Flags do not fit the type.
    AttributeFlags,
    /// A length does not fit the type.
    AttributeLength,
    /// ORIGIN has no meaning.
    Origin,
    /// NEXT_HOP is not an address of a host.
    NextHop,
    /// An optional attribute has no meaning.
    OptionalAttribute,
    /// A prefix is malformed.
    NetworkField,
    /// AS_PATH is malformed.
    AsPath,
}

/// In which state an unexpected message came (RFC 6608).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FsmFault {
    /// Not said.
    Unspecific,
    /// In OpenSent.
    OpenSent,
    /// In OpenConfirm.
    OpenConfirm,
    /// In Established.
    Established,
}

/// Why a speaker ends a session without an error (RFC 4486, RFC 8538).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CeaseReason {
    /// Not said.
    Unspecific,
    /// Too many prefixes.
    MaximumPrefixes,
    /// Ended by an administrator.
    AdministrativeShutdown,
    /// The peer is not configured any more.
    PeerDeconfigured,
    /// Begun again by an administrator.
    AdministrativeReset,
    /// This peer, or this connection, is not wanted.
    ConnectionRejected,
    /// Another setting of the session changed.
    OtherConfigurationChange,
    /// Two connections at once; the other one stays.
    CollisionResolution,
    /// Not enough memory or other means.
    OutOfResources,
    /// Ended, and routes are not to be kept.
    HardReset,
    /// BFD says that the peer is down (RFC 9384).
    BfdDown,
}

/// What is wrong with a ROUTE-REFRESH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefreshFault {
    /// Its length is wrong.
    Length,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A message's header.
    Header(HeaderFault),
    /// An OPEN.
    Open(OpenFault),
    /// An UPDATE.
    Update(UpdateFault),
    /// Nothing came for too long.
    HoldTimerExpired,
    /// A message that does not fit the state.
    Fsm(FsmFault),
    /// On purpose.
    Cease(CeaseReason),
    /// A ROUTE-REFRESH.
    Refresh(RefreshFault),
    /// The other side took nothing for too long (RFC 9687).
    SendHoldTimerExpired,
    /// Numbers that are not known here.
    Other {
        /// The code.
        code: u8,
        /// The subcode.
        subcode: u8,
    },
}

/// A NOTIFICATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The code and subcode.
    pub cause: Cause,
    /// What belongs to it: the field that is wrong, or a text for administrators.
    pub data: Vec<u8>,
}

impl From<Cause> for Notification {
    fn from(cause: Cause) -> Self {
        Self { cause, data: Vec::new() }
    }
}

impl Notification {
    /// A cause with data.
    #[must_use]
    pub fn new(cause: Cause, data: impl Into<Vec<u8>>) -> Self {
        Self { cause, data: data.into() }
    }

    /// An end on purpose, with a text for the other side's administrator (RFC 9003). It is cut at 255 bytes.
    #[must_use]
    pub fn cease(reason: CeaseReason, text: &str) -> Self {
        let cut = text.floor_char_boundary(255);
        let mut data = Vec::new();
        let speaks = matches!(reason, CeaseReason::AdministrativeShutdown | CeaseReason::AdministrativeReset);
        if speaks && cut > 0 {
            data.push(u8::try_from(cut).unwrap_or(u8::MAX));
            data.extend_from_slice(&text.as_bytes()[..cut]);
        }
        Self { cause: Cause::Cease(reason), data }
    }

    /// The text for administrators, if there is a well-formed one. Control characters are left out.
    #[must_use]
    pub fn shutdown_text(&self) -> Option<String> {
        if !matches!(
            self.cause,
            Cause::Cease(CeaseReason::AdministrativeShutdown | CeaseReason::AdministrativeReset)
        ) {
            return None;
        }
        let (length, text) = self.data.split_first()?;
        let text = std::str::from_utf8(text.get(..usize::from(*length))?).ok()?;
        let text: String = text.chars().filter(|character| !character.is_control()).collect();
        (!text.is_empty()).then_some(text)
    }

    /// What the cause of a hard reset was (RFC 8538).
    #[must_use]
    pub fn hard_reset_cause(&self) -> Option<Self> {
        if self.cause != Cause::Cease(CeaseReason::HardReset) {
            return None;
        }
        let (code, rest) = self.data.split_first()?;
        let (subcode, data) = rest.split_first()?;
        Some(Self::new(Cause::from_numbers(*code, *subcode), data))
    }
}

impl Cause {
    /// Code and subcode.
    #[must_use]
    pub fn numbers(self) -> (u8, u8) {
        match self {
            Self::Header(fault) => (
                1,
                match fault {
                    HeaderFault::NotSynchronised => 1,
                    HeaderFault::BadLength => 2,
                    HeaderFault::BadType => 3,
                },
            ),
            Self::Open(fault) => (
                2,
                match fault {
                    OpenFault::Unspecific => 0,
                    OpenFault::Version => 1,
                    OpenFault::PeerAs => 2,
                    OpenFault::Identifier => 3,
                    OpenFault::Parameter => 4,
                    OpenFault::HoldTime => 6,
                    OpenFault::Capability => 7,
                },
            ),
            Self::Update(fault) => (
                3,
                match fault {
                    UpdateFault::MalformedAttributes => 1,
                    UpdateFault::UnknownWellKnown => 2,
                    UpdateFault::MissingWellKnown => 3,
                    UpdateFault::AttributeFlags => 4,
                    UpdateFault::AttributeLength => 5,
                    UpdateFault::Origin => 6,
                    UpdateFault::NextHop => 8,
                    UpdateFault::OptionalAttribute => 9,
                    UpdateFault::NetworkField => 10,
                    UpdateFault::AsPath => 11,
                },
            ),
            Self::HoldTimerExpired => (4, 0),
            Self::Fsm(fault) => (
                5,
                match fault {
                    FsmFault::Unspecific => 0,
                    FsmFault::OpenSent => 1,
                    FsmFault::OpenConfirm => 2,
                    FsmFault::Established => 3,
                },
            ),
            Self::Cease(reason) => (
                6,
                match reason {
                    CeaseReason::Unspecific => 0,
                    CeaseReason::MaximumPrefixes => 1,
                    CeaseReason::AdministrativeShutdown => 2,
                    CeaseReason::PeerDeconfigured => 3,
                    CeaseReason::AdministrativeReset => 4,
                    CeaseReason::ConnectionRejected => 5,
                    CeaseReason::OtherConfigurationChange => 6,
                    CeaseReason::CollisionResolution => 7,
                    CeaseReason::OutOfResources => 8,
                    CeaseReason::HardReset => 9,
                    CeaseReason::BfdDown => 10,
                },
            ),
            Self::Refresh(RefreshFault::Length) => (7, 1),
            Self::SendHoldTimerExpired => (8, 0),
            Self::Other { code, subcode } => (code, subcode),
        }
    }

    /// The cause of two numbers.
    #[must_use]
    pub fn from_numbers(code: u8, subcode: u8) -> Self {
        Self::KNOWN
            .iter()
            .copied()
            .find(|cause| cause.numbers() == (code, subcode))
            // The hold timers have no subcodes; a sender that gives one still means it.
            .unwrap_or(match code {
                4 => Self::HoldTimerExpired,
                8 => Self::SendHoldTimerExpired,
                _ => Self::Other { code, subcode },
            })
    }

    const KNOWN: [Self; 36] = [
        Self::Header(HeaderFault::NotSynchronised),
        Self::Header(HeaderFault::BadLength),
        Self::Header(HeaderFault::BadType),
        Self::Open(OpenFault::Unspecific),
        Self::Open(OpenFault::Version),
        Self::Open(OpenFault::PeerAs),
        Self::Open(OpenFault::Identifier),
        Self::Open(OpenFault::Parameter),
        Self::Open(OpenFault::HoldTime),
        Self::Open(OpenFault::Capability),
        Self::Update(UpdateFault::MalformedAttributes),
        Self::Update(UpdateFault::UnknownWellKnown),
        Self::Update(UpdateFault::MissingWellKnown),
        Self::Update(UpdateFault::AttributeFlags),
        Self::Update(UpdateFault::AttributeLength),
        Self::Update(UpdateFault::Origin),
        Self::Update(UpdateFault::NextHop),
        Self::Update(UpdateFault::OptionalAttribute),
        Self::Update(UpdateFault::NetworkField),
        Self::Update(UpdateFault::AsPath),
        Self::Fsm(FsmFault::Unspecific),
        Self::Fsm(FsmFault::OpenSent),
        Self::Fsm(FsmFault::OpenConfirm),
        Self::Fsm(FsmFault::Established),
        Self::Cease(CeaseReason::Unspecific),
        Self::Cease(CeaseReason::MaximumPrefixes),
        Self::Cease(CeaseReason::AdministrativeShutdown),
        Self::Cease(CeaseReason::PeerDeconfigured),
        Self::Cease(CeaseReason::AdministrativeReset),
        Self::Cease(CeaseReason::ConnectionRejected),
        Self::Cease(CeaseReason::OtherConfigurationChange),
        Self::Cease(CeaseReason::CollisionResolution),
        Self::Cease(CeaseReason::OutOfResources),
        Self::Cease(CeaseReason::HardReset),
        Self::Cease(CeaseReason::BfdDown),
        Self::Refresh(RefreshFault::Length),
    ];

    /// The cause in words, as BIRD prints it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Header(HeaderFault::NotSynchronised) => "Connection not synchronized",
            Self::Header(HeaderFault::BadLength) => "Bad message length",
            Self::Header(HeaderFault::BadType) => "Bad message type",
            Self::Open(OpenFault::Unspecific) => "Invalid OPEN message",
            Self::Open(OpenFault::Version) => "Unsupported version number",
            Self::Open(OpenFault::PeerAs) => "Bad peer AS",
            Self::Open(OpenFault::Identifier) => "Bad BGP identifier",
            Self::Open(OpenFault::Parameter) => "Unsupported optional parameter",
            Self::Open(OpenFault::HoldTime) => "Unacceptable hold time",
            Self::Open(OpenFault::Capability) => "Required capability missing",
            Self::Update(UpdateFault::MalformedAttributes) => "Malformed attribute list",
            Self::Update(UpdateFault::UnknownWellKnown) => "Unrecognized well-known attribute",
            Self::Update(UpdateFault::MissingWellKnown) => "Missing mandatory attribute",
            Self::Update(UpdateFault::AttributeFlags) => "Invalid attribute flags",
            Self::Update(UpdateFault::AttributeLength) => "Invalid attribute length",
            Self::Update(UpdateFault::Origin) => "Invalid ORIGIN attribute",
            Self::Update(UpdateFault::NextHop) => "Invalid NEXT_HOP attribute",
            Self::Update(UpdateFault::OptionalAttribute) => "Optional attribute error",
            Self::Update(UpdateFault::NetworkField) => "Invalid network field",
            Self::Update(UpdateFault::AsPath) => "Malformed AS_PATH",
            Self::HoldTimerExpired => "Hold timer expired",
            Self::Fsm(FsmFault::Unspecific) => "Finite state machine error",
            Self::Fsm(FsmFault::OpenSent) => "Unexpected message in OpenSent state",
            Self::Fsm(FsmFault::OpenConfirm) => "Unexpected message in OpenConfirm state",
            Self::Fsm(FsmFault::Established) => "Unexpected message in Established state",
            Self::Cease(CeaseReason::Unspecific) => "Cease",
            Self::Cease(CeaseReason::MaximumPrefixes) => "Maximum number of prefixes reached",
            Self::Cease(CeaseReason::AdministrativeShutdown) => "Administrative shutdown",
            Self::Cease(CeaseReason::PeerDeconfigured) => "Peer de-configured",
            Self::Cease(CeaseReason::AdministrativeReset) => "Administrative reset",
            Self::Cease(CeaseReason::ConnectionRejected) => "Connection rejected",
            Self::Cease(CeaseReason::OtherConfigurationChange) => "Other configuration change",
            Self::Cease(CeaseReason::CollisionResolution) => "Connection collision resolution",
            Self::Cease(CeaseReason::OutOfResources) => "Out of Resources",
            Self::Cease(CeaseReason::HardReset) => "Hard Reset",
            Self::Cease(CeaseReason::BfdDown) => "BFD session down",
            Self::Refresh(RefreshFault::Length) => "Invalid ROUTE-REFRESH message length",
            Self::SendHoldTimerExpired => "Send hold timer expired",
            Self::Other { .. } => "Unknown error",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { code, subcode } => write!(f, "Unknown error {code}.{subcode}"),
            known => f.write_str(known.words()),
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cause) = self.hard_reset_cause() {
            return write!(f, "{} ({})", self.cause, cause.cause);
        }
        match self.shutdown_text() {
            Some(text) => write!(f, "{} ({text:?})", self.cause),
            None => self.cause.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_numbers_and_words() {
        for cause in Cause::KNOWN {
            let (code, subcode) = cause.numbers();
            assert_eq!(Cause::from_numbers(code, subcode), cause);
            assert!(!cause.words().is_empty());
        }
        assert_eq!(Cause::from_numbers(4, 7), Cause::HoldTimerExpired);
        assert_eq!(Cause::from_numbers(8, 0), Cause::SendHoldTimerExpired);
        assert_eq!(Cause::from_numbers(9, 9).to_string(), "Unknown error 9.9");
    }

    #[test]
    fn a_text_for_administrators_is_cut_and_cleaned() {
        let long = "ä".repeat(200);
        let notification = Notification::cease(CeaseReason::AdministrativeShutdown, &long);
        assert_eq!(notification.shutdown_text().map(|text| text.len()), Some(254));
        let bell = Notification::new(notification.cause, b"\x03a\x07b".as_slice());
        assert_eq!(bell.to_string(), "Administrative shutdown (\"ab\")");
        let torn = Notification::new(notification.cause, b"\x09ab".as_slice());
        assert_eq!(torn.to_string(), "Administrative shutdown");
        let reset = Notification::new(Cause::Cease(CeaseReason::HardReset), [6, 2]);
        assert_eq!(reset.to_string(), "Hard Reset (Administrative shutdown)");
    }
}
