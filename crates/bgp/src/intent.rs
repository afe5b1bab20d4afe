//! The intended BGP state of one node: everything that a backend needs, so that it does not have to look up anything.
//!
//! IPv4 and IPv6 are carried by sessions of their own family, as in Calico's two BIRDs, so an intent has a
//! [`FamilyIntent`] for each. A family without an address of the node has no sessions, but its tables are still needed.

pub mod export;
pub mod filter;
pub mod kernel;
pub mod session;

use crate::values::{AsNumber, ClusterId, InterfacePattern, Priority};
pub use export::{BlockState, CommunityRule, Export, Gateway, GatewayScope, OwnBlock};
pub use filter::{
    Action, Filter, FilterName, FilterRule, Lengths, Operation, Operator, PeerType, PrefixMatch, RouteSource,
};
pub use kernel::{Encapsulation, Kernel, PoolRoutes, Programmer};
use model::IpVersion;
use model::NodeName;
pub use session::{Bfd, NextHop, Origin, Remote, Session, SessionKind, SessionName};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The intended BGP state of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The node.
    pub node: NodeName,
    /// Its BGP identifier, in both families.
    pub router_id: Ipv4Addr,
    /// The node's AS number, the default for sessions.
    pub local_as: AsNumber,
    /// Set if the node is a route reflector.
    pub cluster_id: Option<ClusterId>,
    /// How much a backend logs about sessions and routes.
    pub log_level: LogLevel,
    /// Interfaces whose addresses and routes are ignored, in addition to `cali*` and `kube-ipvs*`, which always are.
    pub ignored_interfaces: Vec<InterfacePattern>,
    /// Every BGPFilter by name, used or not.
    pub filters: BTreeMap<FilterName, Arc<Filter>>,
    /// IPv4.
    pub v4: FamilyIntent,
    /// IPv6.
    pub v6: FamilyIntent,
    /// Parts of the objects that cannot be applied as written, in a stable order. For the log and for status.
    pub problems: Vec<Problem>,
}

impl Intent {
    /// The part for one family.
    #[must_use]
    pub fn family(&self, version: IpVersion) -> &FamilyIntent {
        match version {
            IpVersion::V4 => &self.v4,
            IpVersion::V6 => &self.v6,
        }
    }

    /// The sessions of both families, IPv4 first, sorted by name within a family.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.v4.sessions.values().chain(self.v6.sessions.values())
    }
}

/// The intended BGP state of one node in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyIntent {
    /// The family.
    pub version: IpVersion,
    /// The node's address. Without one the node has no sessions in this family.
    pub address: Option<IpAddr>,
    /// Where connections are accepted.
    pub listen: Listen,
    /// The metric of ordinary routes. Routes with a smaller one win over local routes, for migrating machines.
    pub normal_priority: Priority,
    /// Sessions by name.
    pub sessions: BTreeMap<SessionName, Session>,
    /// The announced routes, the receiving peers, and the communities.
    pub export: Export,
    /// The learned routes for the kernel.
    pub kernel: Kernel,
}

/// Where a family's connections are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The only address to listen on; all addresses if absent.
    pub address: Option<IpAddr>,
    /// The port; [`Listen::DEFAULT_PORT`] if absent.
    pub port: Option<u16>,
}

impl Listen {
    /// BGP's port.
    pub const DEFAULT_PORT: u16 = 179;

    /// The port to listen on.
    #[must_use]
    pub fn effective_port(&self) -> u16 {
        self.port.unwrap_or(Self::DEFAULT_PORT)
    }
}

/// How much is logged about sessions and routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    None,
    /// Changes of state.
    #[default]
    Info,
    /// Everything.
    Debug,
}

/// A part of the objects that cannot be applied as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Problem {
    /// Two peerings would be one session; the first by name is used.
    #[error("BGPPeers {used} and {ignored} both describe the session with {remote}: {used} is used")]
    Clash {
        /// The peer that is used.
        used: String,
        /// The peer that is ignored.
        ignored: String,
        /// The remote end.
        remote: String,
    },
    /// A peer that cannot be understood has no sessions.
    #[error("BGPPeer {peer} is left out: {reason}")]
    Peer {
        /// The peer.
        peer: String,
        /// The reason.
        reason: String,
    },
    /// A missing password: the session is set up without one, as in Calico, and cannot come up if the other end has
    /// one.
    #[error("{user}: the password in key {key} of secret {secret} was not found")]
    Password {
        /// The object that refers to it.
        user: String,
        /// The secret.
        secret: String,
        /// The key in it.
        key: String,
    },
    /// A filter that does not exist lets everything pass.
    #[error("BGPPeer {peer}: BGPFilter {filter} was not found")]
    MissingFilter {
        /// The peer.
        peer: String,
        /// The filter.
        filter: String,
    },
    /// A filter that cannot be understood lets nothing pass.
    #[error("BGPFilter {filter} cannot be applied and rejects all routes: {reason}")]
    Filter {
        /// The filter.
        filter: String,
        /// The reason.
        reason: String,
    },
    /// An invalid part of a configuration is ignored.
    #[error("{object}: {reason}")]
    Setting {
        /// The object.
        object: String,
        /// The reason.
        reason: String,
    },
}
