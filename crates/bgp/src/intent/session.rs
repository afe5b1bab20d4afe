//! One BGP session.

use super::filter::{Filter, FilterRule};
use crate::values::{AsNumber, ClusterId, Password, Prefix, Secs};
use model::IpVersion;
use model::NodeName;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

/// A session with one remote end (or, for [`Remote::Dynamic`], with each peer that connects).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name, the one Calico gives BIRD's protocol: `Mesh_10_65_0_2`, `Global_…`, `Node_…`, `Local_Workload_…`.
    /// Unique within a family, and what `calicoctl node status` and CalicoNodeStatus derive the type from.
    pub name: SessionName,
    /// The family of its addresses and of the routes it carries.
    pub version: IpVersion,
    /// The kind of object that requests it.
    pub kind: SessionKind,
    /// The object that requests it.
    pub origin: Origin,
    /// The remote end.
    pub remote: Remote,
    /// The remote port; BGP's default if absent.
    pub port: Option<u16>,
    /// The remote AS number.
    pub peer_as: AsNumber,
    /// The AS number used with this peer.
    pub local_as: AsNumber,
    /// Whether `local_as` was configured to differ from the node's (`localASNumber`).
    pub local_as_is_own: bool,
    /// The local address of connections; the kernel's choice if absent.
    pub source: Option<IpAddr>,
    /// Whether only the other end connects.
    pub passive: bool,
    /// The TCP MD5 password.
    pub password: Option<Password>,
    /// The maximum number of hops to the peer, checked by the TTL of its packets (RFC 5082). If absent it is not
    /// checked, and the peer may be any number of hops away.
    pub ttl_security: Option<NonZeroU8>,
    /// How long a restarting peer's routes are kept; the backend's default (120 s) if absent.
    pub restart_time: Option<Secs>,
    /// The interval between keepalives; a third of the hold time if absent. The hold time itself is the backend's
    /// default, 240 s.
    pub keepalive_time: Option<Secs>,
    /// Whether and how BFD watches the peer.
    pub bfd: Option<Bfd>,
    /// Set if the peer is a client of this node; the cluster that it reflects for.
    pub reflector_client: Option<ClusterId>,
    /// The mode of the next hop in sent routes.
    pub next_hop: NextHop,
    /// How often the local AS number may occur in the path of a received route.
    pub allowed_local_as: u32,
    /// The filters for received routes, in order. The first matching rule decides; a route without a matching rule is
    /// accepted.
    pub import: Vec<Arc<Filter>>,
    /// The filters for sent routes, in order, before the node's own export policy ([`super::Export`]) decides.
    pub export: Vec<Arc<Filter>>,
}

impl Session {
    /// Whether both ends are in the same AS.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.peer_as == self.local_as
    }

    /// The rules for received routes, in order, with their filters.
    pub fn import_rules(&self) -> impl Iterator<Item = (&Filter, &FilterRule)> {
        let version = self.version;
        self.import.iter().flat_map(move |filter| filter.import(version).iter().map(|rule| (&**filter, rule)))
    }

    /// The rules for sent routes, in order, with their filters.
    pub fn export_rules(&self) -> impl Iterator<Item = (&Filter, &FilterRule)> {
        let version = self.version;
        self.export.iter().flat_map(move |filter| filter.export(version).iter().map(|rule| (&**filter, rule)))
    }
}

/// The name of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName(String);

impl SessionName {
    /// The name of a session with this remote end. A configured port is part of it, except in the mesh.
    #[must_use]
    pub fn of(kind: SessionKind, remote: &Remote, port: Option<u16>) -> Self {
        let end: String = match remote {
            Remote::Address { address, interface } => {
                let zone = interface.as_ref().map(|name| format!("_{name}")).unwrap_or_default();
                format!("{address}{zone}")
            }
            Remote::Unnumbered { interface } => interface.clone(),
            Remote::Dynamic { range } => range.to_string(),
        }
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
        match port {
            Some(port) if kind != SessionKind::Mesh => Self(format!("{}_{end}_port_{port}", kind.prefix())),
            _ => Self(format!("{}_{end}", kind.prefix())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of object that requests a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKind {
    /// The node-to-node mesh.
    Mesh,
    /// A BGPPeer of all nodes.
    Global,
    /// A BGPPeer of some nodes, or the reverse of a BGPPeer of other nodes.
    Node,
    /// A workload on this node.
    LocalWorkload,
}

impl SessionKind {
    /// The prefix of the names of its sessions.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Mesh => "Mesh",
            Self::Global => "Global",
            Self::Node => "Node",
            Self::LocalWorkload => "Local_Workload",
        }
    }
}

/// The object that requests a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The mesh; the node at the other end.
    Mesh(NodeName),
    /// The BGPPeer of this name, which applies to this node.
    Peer(String),
    /// The BGPPeer of this name, which applies to the node at the other end and has this one as its peer.
    ReverseOf(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mesh(node) => write!(f, "node-to-node mesh with {node}"),
            Self::Peer(name) => write!(f, "BGPPeer {name}"),
            Self::ReverseOf(name) => write!(f, "reverse of BGPPeer {name}"),
        }
    }
}

/// The remote end of a session.
///
/// Calico's resources only have plain addresses. The other forms are requested by our annotations and are for the
/// native speaker; the files of BIRD leave them out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    /// One address; a link-local one needs the interface.
    Address {
        /// The address.
        address: IpAddr,
        /// The interface, for a link-local address.
        interface: Option<String>,
    },
    /// The IPv6 neighbour on this interface.
    Unnumbered {
        /// The interface.
        interface: String,
    },
    /// Any peer that connects from this network. Always passive.
    Dynamic {
        /// The network.
        range: Prefix,
    },
}

impl Remote {
    /// A plain address.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        Self::Address { address, interface: None }
    }

    /// The address, if there is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Address { address, .. } => Some(*address),
            Self::Unnumbered { .. } | Self::Dynamic { .. } => None,
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, interface: None } => address.fmt(f),
            Self::Address { address, interface: Some(interface) } => write!(f, "{address}%{interface}"),
            Self::Unnumbered { interface } => f.write_str(interface),
            Self::Dynamic { range } => range.fmt(f),
        }
    }
}

/// The BFD settings for a peer (RFC 5880).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfd {
    /// The interval between packets, in both directions.
    pub interval: Duration,
    /// After this many missing packets the peer is down.
    pub multiplier: NonZeroU8,
    /// Whether packets may pass routers (RFC 5883); by default, they may unless the peer is on a network of the node.
    pub multihop: Option<bool>,
}

impl Default for Bfd {
    fn default() -> Self {
        let three = NonZeroU8::MIN.saturating_add(2);
        Self { interval: Duration::from_millis(300), multiplier: three, multihop: None }
    }
}

/// The mode of the next hop in sent routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHop {
    /// BGP's default: this node towards other ASes and for its own routes, unchanged for routes learned from outside.
    #[default]
    Auto,
    /// This node.
    Itself,
    /// The received next hop.
    Keep,
}
