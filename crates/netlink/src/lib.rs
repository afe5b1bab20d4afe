//! Netlink as typed values: the kernel's objects, the changes to them, and its answers.
//!
//! - [`Kernel`]: the small trait that managers and plugins are written against: read the current state, apply a batch.
//! - [`Handle`]: the real kernel, one blocking socket per value, tied to the network namespace it was opened in.
//! - `FakeKernel` (feature `testing`): the same trait over plain maps, with the kernel's own refusals, so that managers are
//!   tested as data.
//! - [`Operation`] and the values it carries: [`Link`], [`Address`], [`Route`], [`Neighbour`], [`Rule`].
//! - [`Monitor`]: changes, as they happen.
//! - [`namespace`]: runs code in another network namespace, on a thread that ends there; [`sysctl`]: `/proc/sys`.
//! - [`wireguard`]: the keys and peers of WireGuard devices; [`ethtool`]: features of devices.
//! - [`tc`]: bandwidth limits; [`announcements`]: machines that announce their location;
//!   [`discovery`]: ARP and NDP, answered in user space.
//! - [`session_options`]: options of TCP sockets that routing sessions need and no crate sets.
//! - [`Connection`]: requests and dumps of any netlink family, which other protocols build on.
//!
//! Everything blocks: a CNI plugin and a dataplane's apply thread both need the answer before the next step. Nothing
//! here decides what should be in the kernel, and refusals are not retried. Only what the kernel itself asks to repeat
//! (an interrupted dump, an overrun buffer) is repeated.
//!
//! Sockets come from `netlink-sys` and framing from `netlink-packet-core`. The messages themselves are our own, not
//! those of `netlink-packet-route`: that crate rejects a whole message if one attribute has an unexpected length, so
//! that one foreign link of a newer kernel would stop an agent. It also decodes every attribute (statistics, per-family
//! settings) of every object. Here unknown and malformed attributes of foreign objects are ignored.

pub mod announcements;
mod connection;
mod datagram;
pub mod discovery;
mod error;
pub mod ethtool;
#[cfg(any(test, feature = "testing"))]
mod fake;
mod filter;
mod generic;
mod handle;
pub mod interface_settings;
mod kernel;
mod mac;
mod monitor;
pub mod namespace;
pub mod netfilter;
pub mod route;
pub mod session_options;
pub mod sysctl;
pub mod tc;
pub mod wire;
pub mod wireguard;

pub use connection::{Answer, Connection};
pub use datagram::Request;
pub use error::{Error, Result};
#[cfg(any(test, feature = "testing"))]
pub use fake::FakeKernel;
pub use handle::Handle;
pub use kernel::{Kernel, Operation, RouteFilter, first_failure};
pub use mac::{InvalidMac, MacAddress};
pub use monitor::{Event, Interests, Monitor};
pub use route::address::Address;
pub use route::link::{DeviceKind, Link, LinkChange, LinkRef, NewLink, Peer, Vxlan};
pub use route::neighbour::{Neighbour, NeighbourState};
pub use route::routes::{Hop, Route, RouteKind, Scope, TABLE_LOCAL, TABLE_MAIN};
pub use route::rule::{Rule, RuleAction};
pub use rustix::io::Errno;

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: &std::net::IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The kernel's number (`AF_INET`, `AF_INET6`).
    #[must_use]
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::V4),
            10 => Some(Self::V6),
            _ => None,
        }
    }

    /// The prefix length of a single host: 32 or 128.
    #[must_use]
    pub const fn host_prefix(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
