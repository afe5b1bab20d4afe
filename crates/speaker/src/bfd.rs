//! Bidirectional forwarding detection (RFC 5880): detects within fractions of a second whether a peer still forwards.
//!
//! - [`packet`]: control packets as values and as bytes.
//! - [`machine`]: one session. Pure: packets and time in, packets and news out.
//!
//! Asynchronous mode over one hop (RFC 5881) and over several (RFC 5883). Not supported: authentication, echo and
//! demand mode, which no BGP speaker needs; a peer that requests demand mode still gets packets, as RFC 5880 allows.

pub(crate) mod machine;
pub(crate) mod packet;

#[cfg(test)]
mod tests;

pub(crate) use machine::{Bfd, News, Settings};
pub(crate) use packet::{Packet, State};
