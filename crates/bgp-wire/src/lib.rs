//! BGP messages as values, and as bytes.
//!
//! Decoding never fails halfway in silence: a message is understood, or it is the [`Notification`] that RFC 4271 asks for, or, for
//! UPDATE, RFC 7606 decides per attribute whether the attribute or the routes are given up. Nothing is allocated that the
//! message's own length does not pay for. Refuses: sockets, clocks, sessions, and families other than IPv4 and IPv6 unicast
//! (their capabilities are read and never offered).
//!
//! Why our own codec. netgauze-bgp-pkt was read first: it models twenty address families for telemetry, over nom, strum, serde
//! and four helper crates; every attribute is an owned tree with its own flags and source location; after a malformed attribute
//! it goes on at the length the attribute should have had, not the one it says, and its mapping of faults to RFC 7606 is marked
//! as unfinished. bgpkit-parser reads archives and is lenient by design; zettabgp panics less than it should be trusted to;
//! rustbgpd-wire is close in scope but new and part of one daemon. A speaker lives by exactly this error handling and by how
//! little it allocates per route, so both are written here, in a small crate without further dependencies.

mod as_path;
mod attributes;
mod capability;
mod community;
mod decode;
mod encode;
mod family;
mod message;
mod notification;
mod open;
mod refresh;
mod update;

pub use as_path::{AsPath, Segment, SegmentKind};
pub use attributes::{Aggregator, Attributes, NextHop, Origin, UnknownAttribute, attribute};
pub use capability::{AddPathMode, Capability, GracefulRestart, GracefulRestartFamily, LongLivedFamily};
pub use community::{Community, ExtendedCommunity, LargeCommunity, ParseCommunityError};
pub use decode::{Frame, decode, frame};
pub use encode::{AttributesTooLong, UpdateWriter, encode, end_of_rib};
pub use family::{Asn, Family, Nlri, PathId, RouterId};
pub use message::{HEADER_LENGTH, MAX_EXTENDED_LENGTH, MAX_LENGTH, Message, MessageKind, SessionOptions};
pub use notification::{
    Cause, CeaseReason, FsmFault, HeaderFault, Notification, OpenFault, RefreshFault, UpdateFault,
};
pub use open::{AS_TRANS, Open};
pub use refresh::{RefreshPhase, RouteRefresh};
pub use update::{AttributeFault, FaultAction, FaultKind, Reach, Update};

#[cfg(test)]
mod tests;
