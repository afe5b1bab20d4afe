//! NOTIFICATION: the reason why a speaker ends a session.

use std::fmt;

/// A fault in a message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderFault {
    /// The marker is not all ones.
    NotSynchronised,
    /// The length does not fit the type.
    BadLength,
    /// The type is unknown.
    BadType,
}

/// A fault in an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpenFault {
    /// Malformed.
    Unspecific,
    /// A version other than 4.
    Version,
    /// Not the expected AS.
    PeerAs,
    /// Not a valid identifier, or our own.
    Identifier,
    /// An unknown optional parameter.
    Parameter,
    /// A hold time of 1 or 2 seconds, or one that is not acceptable.
    HoldTime,
    /// A required capability is missing.
    Capability,
}

/// A fault in an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpdateFault {
    /// The lengths of the lists are inconsistent.
    MalformedAttributes,
    /// An unknown attribute flagged as well-known.
    UnknownWellKnown,
    /// A well-known attribute is missing.
    MissingWellKnown,
    /// Flags do not fit the type.
    AttributeFlags,
    /// A length does not fit the type.
    AttributeLength,
    /// ORIGIN has an invalid value.
    Origin,
    /// NEXT_HOP is not the address of a host.
    NextHop,
    /// An optional attribute has an invalid value.
    OptionalAttribute,
    /// A prefix is malformed.
    NetworkField,
    /// AS_PATH is malformed.
    AsPath,
}

/// The state in which an unexpected message arrived (RFC 6608).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FsmFault {
    /// Not given.
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
    /// Not given.
    Unspecific,
    /// Too many prefixes.
    MaximumPrefixes,
    /// Shut down by an administrator.
    AdministrativeShutdown,
    /// The peer is no longer configured.
    PeerDeconfigured,
    /// Reset by an administrator.
    AdministrativeReset,
    /// This peer, or this connection, is refused.
    ConnectionRejected,
    /// Another setting of the session changed.
    OtherConfigurationChange,
    /// Connection collision; the other connection is kept.
    CollisionResolution,
    /// Not enough memory or other resources.
    OutOfResources,
    /// Reset; routes must not be kept.
    HardReset,
    /// BFD reported the peer as down (RFC 9384).
    BfdDown,
}

/// A fault in a ROUTE-REFRESH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefreshFault {
    /// Its length is wrong.
    Length,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A fault in a message's header.
    Header(HeaderFault),
    /// A fault in an OPEN.
    Open(OpenFault),
    /// A fault in an UPDATE.
    Update(UpdateFault),
    /// No message arrived within the hold time.
    HoldTimerExpired,
    /// A message that is not allowed in the state.
    Fsm(FsmFault),
    /// An intentional end.
    Cease(CeaseReason),
    /// A fault in a ROUTE-REFRESH.
    Refresh(RefreshFault),
    /// The other side accepted no data for too long (RFC 9687).
    SendHoldTimerExpired,
    /// Unknown numbers.
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
    /// Additional data: the invalid field, or a text for administrators.
    pub data: Vec<u8>,
}

impl From<Cause> for Notification {
    fn from(cause: Cause) -> Self {
        Self { cause, data: Vec::new() }
    }
}

impl Notification {
    /// Creates a NOTIFICATION with data.
    #[must_use]
    pub fn new(cause: Cause, data: impl Into<Vec<u8>>) -> Self {
        Self { cause, data: data.into() }
    }

    /// An intentional end with a text for the other side's administrator (RFC 9003), which is truncated to 255 bytes.
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

    /// The cause of a hard reset (RFC 8538).
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

    /// The cause with these numbers.
    #[must_use]
    pub fn from_numbers(code: u8, subcode: u8) -> Self {
        Self::KNOWN
            .iter()
            .copied()
            .find(|cause| cause.numbers() == (code, subcode))
            // The hold timers have no subcodes; one sent nevertheless is ignored.
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

    /// The cause in BIRD's words.
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
