//! Capabilities of a speaker, announced in its OPEN (RFC 5492).

use crate::{Asn, Family};

/// A speaker's support for several paths per prefix (RFC 7911).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddPathMode {
    /// It can receive them.
    Receive,
    /// It can send them.
    Send,
    /// It can receive and send them.
    Both,
}

impl AddPathMode {
    /// Whether the speaker can receive several paths.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    /// Whether the speaker can send several paths.
    #[must_use]
    pub fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }
}

/// A family in a graceful restart capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GracefulRestartFamily {
    /// The family.
    pub family: Family,
    /// Whether the speaker forwarded packets while it restarted.
    pub forwarding: bool,
}

/// Graceful restart: the speaker can restart while its routes are kept (RFC 4724).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GracefulRestart {
    /// Whether it has just restarted.
    pub restarting: bool,
    /// Whether routes are also kept after a NOTIFICATION (RFC 8538).
    pub notification: bool,
    /// The maximum duration of a restart in seconds (12 bits).
    pub restart_time: u16,
    /// The families for which it preserves forwarding. Other families are left out.
    pub families: Vec<GracefulRestartFamily>,
}

/// A family in a long-lived graceful restart capability (RFC 9494). Decoded, never offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LongLivedFamily {
    /// The family.
    pub family: Family,
    /// Whether the speaker forwarded packets while it restarted.
    pub forwarding: bool,
    /// How long stale routes are kept, in seconds (24 bits).
    pub stale_time: u32,
}

/// A capability of a speaker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Routes of a family.
    Multiprotocol(Family),
    /// A family that is not supported here: AFI and SAFI.
    OtherFamily(u16, u8),
    /// ROUTE-REFRESH.
    RouteRefresh,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    ExtendedNextHop,
    /// Messages of up to 65,535 bytes (RFC 8654).
    ExtendedMessage,
    /// Graceful restart.
    GracefulRestart(GracefulRestart),
    /// Four-byte AS numbers, with the speaker's own number.
    FourByteAs(Asn),
    /// Several paths per prefix.
    AddPath(Vec<(Family, AddPathMode)>),
    /// ROUTE-REFRESH with markers for begin and end (RFC 7313).
    EnhancedRouteRefresh,
    /// Long-lived graceful restart: stale routes are kept for a long time.
    LongLivedGracefulRestart(Vec<LongLivedFamily>),
    /// An unknown capability.
    Other {
        /// Its code.
        code: u8,
        /// Its value.
        value: Vec<u8>,
    },
}
