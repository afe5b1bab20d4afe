//! Which endpoints of a port a node uses, and in which order.
//!
//! Hints are followed completely or not at all: with topology mode Auto, one endpoint without a hint, or no endpoint
//! for this zone, means all endpoints. Otherwise the endpoints hinted for this node are used, or else those for this
//! zone, or else all.

use crate::address;
use crate::read::Endpoint;
use bpf::layout::Family;
use bpf::layout::nat::Backend;
use std::net::SocketAddr;

/// An endpoint with its port.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a, F: Family> {
    /// Address and port as text: Calico's sort key, and the name in Maglev's hashes.
    pub(crate) name: String,
    pub(crate) backend: Backend<F>,
    pub(crate) endpoint: &'a Endpoint<F>,
    pub(crate) is_local: bool,
}

impl<'a, F: Family> Candidate<'a, F> {
    pub(crate) fn new(endpoint: &'a Endpoint<F>, port: u16, node: &str) -> Self {
        let name = SocketAddr::new(address::ip::<F>(&endpoint.address), port).to_string();
        let is_local = !endpoint.node.is_empty() && *endpoint.node == *node;
        Self { name, backend: Backend { address: endpoint.address, port }, endpoint, is_local }
    }

    /// Whether it takes new connections, or is terminating.
    fn counts(&self) -> bool {
        self.endpoint.is_ready || self.endpoint.is_terminating
    }
}

/// Sorts endpoints of all slices. One that is in two slices counts once, and is local if it is so in either.
pub(crate) fn merge<'a, F: Family>(mut all: Vec<Candidate<'a, F>>) -> Vec<Candidate<'a, F>> {
    // Stable: of equal ones the first slice's is kept, unless a later one is local.
    all.sort_by(|one, other| one.name.cmp(&other.name).then(other.is_local.cmp(&one.is_local)));
    all.dedup_by(|one, other| one.name == other.name);
    all
}

/// The endpoints that a node in this zone uses according to hints.
pub(crate) fn near<'a, 'b, F: Family>(
    all: &'b [Candidate<'a, F>],
    is_topology_aware: bool,
    node: &str,
    zone: &str,
) -> Vec<&'b Candidate<'a, F>> {
    let every = || all.iter().collect();
    let in_zone = |candidate: &&Candidate<'a, F>| candidate.endpoint.zones.iter().any(|hint| **hint == *zone);
    let on_node = |candidate: &&Candidate<'a, F>| candidate.endpoint.nodes.iter().any(|hint| **hint == *node);
    let counted = || all.iter().filter(|candidate| candidate.counts());
    if is_topology_aware && counted().any(|candidate| candidate.endpoint.zones.is_empty()) {
        return every();
    }
    if !is_topology_aware {
        let here: Vec<_> = counted().filter(on_node).collect();
        if !here.is_empty() {
            return here;
        }
    }
    let near: Vec<_> = counted().filter(in_zone).collect();
    if near.is_empty() { every() } else { near }
}

/// The endpoints that take new connections. If none is ready, terminating ones that still serve: like kube-proxy, and
/// better than refusing.
pub(crate) fn serving<'a, 'b, F: Family>(chosen: &[&'b Candidate<'a, F>]) -> Vec<&'b Candidate<'a, F>> {
    let ready: Vec<_> = chosen.iter().copied().filter(|candidate| candidate.endpoint.is_ready).collect();
    if !ready.is_empty() {
        return ready;
    }
    let last = |candidate: &&&'b Candidate<'a, F>| {
        candidate.endpoint.is_serving && candidate.endpoint.is_terminating
    };
    chosen.iter().filter(last).copied().collect()
}
