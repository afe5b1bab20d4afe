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

/// A session with one remote end (or, for [`Remote::Dynamic`], with each that calls).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name, the one Calico gives BIRD's protocol: `Mesh_10_65_0_2`, `Global_…`, `Node_…`, `Local_Workload_…`.
    /// Unique within a family, and what `calicoctl node status` and CalicoNodeStatus derive the type from.
    pub name: SessionName,
    /// The family of its addresses and of the routes it carries.
    pub version: IpVersion,
    /// Which kind of object asks for it.
    pub kind: SessionKind,
    /// Which object asks for it.
    pub origin: Origin,
    /// The remote end.
    pub remote: Remote,
    /// The remote port; BGP's own when absent.
    pub port: Option<u16>,
    /// The remote AS number.
    pub peer_as: AsNumber,
    /// The AS number used towards this peer.
    pub local_as: AsNumber,
    /// Whether `local_as` differs by request from the node's (`localASNumber`).
    pub local_as_is_own: bool,
    /// The address that connections start from; the kernel's choice when absent.
    pub source: Option<IpAddr>,
    /// Whether the other end connects and this one only listens.
    pub passive: bool,
    /// The TCP MD5 password.
    pub password: Option<Password>,
    /// The most hops the peer may be away, checked with the TTL of its packets (RFC 5082). Absent: not checked, and the
    /// peer may be any number of hops away.
    pub ttl_security: Option<NonZeroU8>,
    /// How long a restarting peer's routes are kept; the backend's default (120 s) when absent.
    pub restart_time: Option<Secs>,
    /// The time between keepalive messages; a third of the hold time when absent. The hold time itself is the backend's
    /// default, 240 s.
    pub keepalive_time: Option<Secs>,
    /// Whether and how BFD watches the peer.
    pub bfd: Option<Bfd>,
    /// Set if the peer is a client of this node, which reflects for this cluster.
    pub reflector_client: Option<ClusterId>,
    /// What is written as next hop.
    pub next_hop: NextHop,
    /// How often the local AS number may stand in the path of a received route.
    pub allowed_local_as: u32,
    /// The filters that received routes pass, in order. The first rule that matches decides; a route that none matches
    /// is accepted.
    pub import: Vec<Arc<Filter>>,
    /// The filters that sent routes pass before the node's own export policy ([`super::Export`]) decides, in order.
    pub export: Vec<Arc<Filter>>,
}

impl Session {
    /// Whether both ends are in one AS.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.peer_as == self.local_as
    }

    /// The rules for received routes, in order, with the filter that each is from.
    pub fn import_rules(&self) -> impl Iterator<Item = (&Filter, &FilterRule)> {
        let version = self.version;
        self.import.iter().flat_map(move |filter| filter.import(version).iter().map(|rule| (&**filter, rule)))
    }

    /// The rules for sent routes, in order, with the filter that each is from.
    pub fn export_rules(&self) -> impl Iterator<Item = (&Filter, &FilterRule)> {
        let version = self.version;
        self.export.iter().flat_map(move |filter| filter.export(version).iter().map(|rule| (&**filter, rule)))
    }
}

/// The name of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName(String);

impl SessionName {
    /// The name of a session with this remote end. A port that was asked for is part of it, except in the mesh.
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

/// Which kind of object asks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKind {
    /// Every node with every other.
    Mesh,
    /// A BGPPeer of all nodes.
    Global,
    /// A BGPPeer of some nodes, or the reverse of a BGPPeer of other nodes.
    Node,
    /// A workload on this node.
    LocalWorkload,
}

impl SessionKind {
    /// What the names of its sessions begin with.
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

/// Which object asks for a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The mesh; the node at the other end.
    Mesh(NodeName),
    /// The BGPPeer of this name, which is about this node.
    Peer(String),
    /// The BGPPeer of this name, which is about the node at the other end and has this one as its peer.
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
/// Calico's resources only ask for plain addresses. The other forms are asked for by annotations of ours and are for the native
/// speaker; the files of BIRD leave them out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    /// One address; a link-local one needs the interface.
    Address {
        /// The address.
        address: IpAddr,
        /// The interface, for a link-local address.
        interface: Option<String>,
    },
    /// Whoever is the IPv6 neighbour on this interface.
    Unnumbered {
        /// The interface.
        interface: String,
    },
    /// Whoever connects from this network. Always passive.
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

    /// The address, where there is one.
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

/// How BFD watches a peer (RFC 5880).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfd {
    /// The pause between packets, in both directions.
    pub interval: Duration,
    /// After so many missing packets the peer is down.
    pub multiplier: NonZeroU8,
    /// Whether packets may pass routers (RFC 5883); if not said: unless the peer is on a network of the node.
    pub multihop: Option<bool>,
}

impl Default for Bfd {
    fn default() -> Self {
        let three = NonZeroU8::MIN.saturating_add(2);
        Self { interval: Duration::from_millis(300), multiplier: three, multihop: None }
    }
}

/// What is written as next hop of a sent route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHop {
    /// What BGP says: this node towards other ASes and for its own routes, unchanged for routes learned from outside.
    #[default]
    Auto,
    /// This node.
    Itself,
    /// What was received.
    Keep,
}
