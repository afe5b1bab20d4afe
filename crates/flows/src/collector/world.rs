//! What the collector asks about addresses, services and policies.

use crate::key::{EndpointType, Peer, Service, Text};
use crate::labels::Labels;
use crate::nflog::Prefix;
use crate::trace::PolicyHit;
use std::net::IpAddr;
use std::sync::Arc;

/// What an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// A workload.
    Workload {
        /// Its namespace.
        namespace: Text,
        /// Its name.
        name: Text,
        /// What the names of its kind begin with; empty for none.
        generate_name: Text,
    },
    /// A host endpoint.
    Host {
        /// The host's name.
        host: Text,
    },
    /// A network set; without a namespace, a global one.
    NetworkSet {
        /// Its namespace; empty for none.
        namespace: Text,
        /// Its name.
        name: Text,
    },
    /// Nothing that is known.
    Network,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// What it belongs to.
    pub kind: EndKind,
    /// Whether that is on this node.
    pub is_local: bool,
    /// Its labels, as `key=value`.
    pub labels: Labels,
}

impl End {
    /// An address that nothing is known about.
    #[must_use]
    pub fn network() -> Self {
        Self { kind: EndKind::Network, is_local: false, labels: Labels::default() }
    }

    /// The end's name in flows.
    pub(crate) fn peer(&self, address: IpAddr) -> Peer {
        let none = || Text::from("-");
        match &self.kind {
            EndKind::Workload { namespace, name, generate_name } => Peer {
                kind: EndpointType::Workload,
                namespace: Arc::clone(namespace),
                name: match generate_name.is_empty() {
                    true => Arc::clone(name),
                    false => format!("{generate_name}*").into(),
                },
            },
            EndKind::Host { host } => {
                Peer { kind: EndpointType::Host, namespace: none(), name: Arc::clone(host) }
            }
            EndKind::NetworkSet { namespace, name } => Peer {
                kind: EndpointType::NetworkSet,
                namespace: if namespace.is_empty() { none() } else { Arc::clone(namespace) },
                name: Arc::clone(name),
            },
            EndKind::Network => Peer {
                kind: EndpointType::Network,
                namespace: none(),
                name: Text::from(if is_private(address) { "pvt" } else { "pub" }),
            },
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        match &self.kind {
            EndKind::Workload { namespace, .. } | EndKind::NetworkSet { namespace, .. } => namespace,
            EndKind::Host { .. } | EndKind::Network => "",
        }
    }
}

/// As Calico counts them: the private ranges of IPv4. IPv6 is public.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(_) => false,
    }
}

/// What the collector asks.
pub trait World {
    /// What an address belongs to: an endpoint, or else a network set. Of several sets the one with the longest prefix, of the
    /// other end's namespace first.
    fn end(&self, address: IpAddr, other_namespace: &str) -> Option<End>;

    /// The service of an address and port that clients connect to, node ports included.
    fn service(&self, address: IpAddr, port: u16, protocol: u8) -> Option<Service>;

    /// The decision that a prefix stands for, at this local end: which policy, in which tier.
    /// The collector sets its index.
    fn decision(&self, prefix: &Prefix, local: &End) -> Option<PolicyHit>;
}
