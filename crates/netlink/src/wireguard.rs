//! WireGuard devices: their keys, ports, marks and peers, through generic netlink. No `wg` program.
//!
//! - [`PublicKey`], [`PrivateKey`]: the latter is never shown, and is forgotten here once the kernel has it.
//! - [`Device`], [`Peer`]: the current state. [`DeviceChange`], [`PeerChange`]: changes to it.
//! - [`Devices`]: the small trait that the dataplane is written against; [`Client`] is the real kernel, `FakeDevices` a
//!   map.
//!
//! The device itself is an ordinary link of kind `wireguard`, which this module does not create or remove. The private
//! key, which the kernel shows to root, is never read.

mod client;
#[cfg(any(test, feature = "testing"))]
mod fake;
mod keys;
mod messages;

pub use client::Client;
#[cfg(any(test, feature = "testing"))]
pub use fake::FakeDevices;
pub use keys::{InvalidKey, PrivateKey, PublicKey};

use crate::error::Result;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The kind of link.
pub const KIND: &str = "wireguard";

/// A device as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The public half of its key; `None` while it has no key.
    pub public_key: Option<PublicKey>,
    /// The UDP port that it listens on.
    pub port: u16,
    /// The mark of the packets that it sends; 0 for none.
    pub mark: u32,
    /// Its peers.
    pub peers: BTreeMap<PublicKey, Peer>,
}

/// A peer as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address at which it is reached.
    pub endpoint: Option<SocketAddr>,
    /// The interval of keepalive packets in seconds, which keep paths open; 0 for never.
    pub keepalive: u16,
    /// The networks behind it.
    pub allowed: BTreeSet<IpNet>,
    /// When both sides last agreed on keys, in seconds since 1970; 0 for never.
    pub last_handshake: u64,
    /// Bytes received from it.
    pub received: u64,
    /// Bytes sent to it.
    pub sent: u64,
}

/// A change to a device; fields that are `None` stay as they are.
#[derive(Clone, Debug, Default)]
pub struct DeviceChange {
    /// A new key.
    pub private_key: Option<PrivateKey>,
    /// A new port.
    pub port: Option<u16>,
    /// A new mark.
    pub mark: Option<u32>,
    /// Changes of peers, in order.
    pub peers: Vec<PeerChange>,
}

impl DeviceChange {
    /// Whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.private_key.is_none() && self.port.is_none() && self.mark.is_none() && self.peers.is_empty()
    }
}

/// A change to a peer; fields that are `None` stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerChange {
    /// The key by which the kernel knows the peer.
    pub key: PublicKey,
    /// Removes it.
    pub remove: bool,
    /// Changes the peer only if it exists.
    pub only_known: bool,
    /// The address at which it is reached.
    pub endpoint: Option<SocketAddr>,
    /// The interval of keepalive packets, in seconds.
    pub keepalive: Option<u16>,
    /// Whether `allowed` replaces the networks behind it instead of adding to them.
    pub replace_allowed: bool,
    /// Networks behind it. Any other peer that has them loses them.
    pub allowed: Vec<IpNet>,
}

impl PeerChange {
    /// A change of this peer that changes nothing yet.
    #[must_use]
    pub fn new(key: PublicKey) -> Self {
        Self {
            key,
            remove: false,
            only_known: false,
            endpoint: None,
            keepalive: None,
            replace_allowed: false,
            allowed: Vec::new(),
        }
    }

    /// A change that removes the peer.
    #[must_use]
    pub fn removal(key: PublicKey) -> Self {
        Self { remove: true, ..Self::new(key) }
    }
}

/// The WireGuard devices of one network namespace.
pub trait Devices {
    /// Reads a device; `None` when there is no such link.
    ///
    /// # Errors
    /// When it cannot be read, or is not a WireGuard device.
    fn device(&mut self, name: &str) -> Result<Option<Device>>;

    /// Changes a device. A change of many peers takes several messages; when one is refused, the earlier ones stay in
    /// effect.
    ///
    /// # Errors
    /// The kernel's first refusal.
    fn configure(&mut self, name: &str, change: &DeviceChange) -> Result<()>;
}
