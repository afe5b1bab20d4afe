//! Capabilities: what a speaker can do, said in its OPEN (RFC 5492).

use crate::{Asn, Family};

/// What a speaker offers for several paths of one prefix (RFC 7911).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddPathMode {
    /// It can receive them.
    Receive,
    /// It can send them.
    Send,
    /// Both.
    Both,
}

impl AddPathMode {
    /// Whether it can receive them.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    /// Whether it can send them.
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

/// That a speaker can restart without its routes being dropped (RFC 4724).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GracefulRestart {
    /// Whether it has restarted just now.
    pub restarting: bool,
    /// Whether a NOTIFICATION, too, keeps routes (RFC 8538).
    pub notification: bool,
    /// How many seconds a restart takes at most (12 bits).
    pub restart_time: u16,
    /// The families whose forwarding it keeps. Other families are left out.
    pub families: Vec<GracefulRestartFamily>,
}

/// A family in a long-lived graceful restart capability (RFC 9494). Read, never offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LongLivedFamily {
    /// The family.
    pub family: Family,
    /// Whether the speaker forwarded packets while it restarted.
    pub forwarding: bool,
    /// How many seconds stale routes are kept (24 bits).
    pub stale_time: u32,
}

/// What a speaker can do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Routes of a family.
    Multiprotocol(Family),
    /// Routes of a family that is not exchanged here: AFI and SAFI.
    OtherFamily(u16, u8),
    /// ROUTE-REFRESH.
    RouteRefresh,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    ExtendedNextHop,
    /// Messages of up to 65,535 bytes (RFC 8654).
    ExtendedMessage,
    /// Graceful restart.
    GracefulRestart(GracefulRestart),
    /// AS numbers of four bytes, and the speaker's own.
    FourByteAs(Asn),
    /// Several paths of one prefix.
    AddPath(Vec<(Family, AddPathMode)>),
    /// ROUTE-REFRESH with marks for begin and end (RFC 7313).
    EnhancedRouteRefresh,
    /// Stale routes are kept for long.
    LongLivedGracefulRestart(Vec<LongLivedFamily>),
    /// Another one.
    Other {
        /// Its code.
        code: u8,
        /// Its value.
        value: Vec<u8>,
    },
}
