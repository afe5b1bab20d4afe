//! BGP messages as values, and as bytes.
//!
//! Decoding never fails silently: a message is either understood, or becomes the [`Notification`] that RFC 4271
//! requires, or, for UPDATE, RFC 7606 decides per attribute whether the attribute or the routes are dropped.
//! Allocations are bounded by the message's own length. Does not know sockets, clocks or sessions, nor families other
//! than IPv4 and IPv6 unicast (their capabilities are decoded and never offered).
//!
//! Why our own codec: netgauze-bgp-pkt was read first: it models twenty address families for telemetry, over nom,
//! strum, serde and four helper crates; every attribute is an owned tree with its own flags and source location; after
//! a malformed attribute it continues at the length that the attribute should have had, not the one it states, and its
//! mapping of faults to RFC 7606 is marked as unfinished. bgpkit-parser reads archives and is lenient by design;
//! zettabgp panics less than it should be trusted to; rustbgpd-wire is close in scope but new and part of one daemon.
//! Error handling and allocations per route are what matters most for a speaker, so both are implemented here, in a
//! small crate without further dependencies.

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
