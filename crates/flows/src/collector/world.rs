//! The collector's questions about addresses, services and policies.

use crate::key::{EndpointType, Peer, Service, Text};
use crate::labels::Labels;
use crate::nflog::Prefix;
use crate::trace::PolicyHit;
use std::net::IpAddr;
use std::sync::Arc;

/// The object that an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// A workload.
    Workload {
        /// Its namespace.
        namespace: Text,
        /// Its name.
        name: Text,
        /// The prefix of its generated name; empty if the name was not generated.
        generate_name: Text,
    },
    /// A host endpoint.
    Host {
        /// The host's name.
        host: Text,
    },
    /// A network set; without a namespace, a global one.
    NetworkSet {
        /// Its namespace; empty for a global set.
        namespace: Text,
        /// Its name.
        name: Text,
    },
    /// Nothing known.
    Network,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The object that it belongs to.
    pub kind: EndKind,
    /// Whether that object is on this node.
    pub is_local: bool,
    /// Its labels, as `key=value`.
    pub labels: Labels,
}

impl End {
    /// An address of which nothing is known.
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

/// Like Calico: the private ranges of IPv4 are private, and all of IPv6 is public.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(_) => false,
    }
}

/// Answers the collector's questions.
pub trait World {
    /// The object that an address belongs to: an endpoint, or else a network set. Of several sets, one in the other
    /// end's namespace wins, then the longest prefix.
    fn end(&self, address: IpAddr, other_namespace: &str) -> Option<End>;

    /// The service that listens on an address and port, including node ports.
    fn service(&self, address: IpAddr, port: u16, protocol: u8) -> Option<Service>;

    /// The decision behind a prefix at this local end: the policy and its tier. The collector sets its index.
    fn decision(&self, prefix: &Prefix, local: &End) -> Option<PolicyHit>;
}
