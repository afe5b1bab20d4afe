//! The reverse direction of peerings between nodes: the effect of another node's BGPPeer on this one.

use super::{Common, Peerings, node_as_peer, nodes_at, selector, version_of};
use crate::facts::{Facts, NodeFacts};
use crate::intent::GatewayScope;
use crate::intent::session::Origin;
use ::selector::Selector;
use api::{BGPPeerSpec, ReversePeering};
use model::IpVersion;
use model::NodeName;

/// Emits the reverse of each BGPPeer whose other end is this node. A workload sets up its own end.
pub(super) fn emit(facts: &Facts, own_name: &NodeName, own: &NodeFacts, peerings: &mut Peerings) {
    for (name, spec) in &facts.peers {
        let manual = spec.reverse_peering == Some(ReversePeering::Manual);
        if manual || !spec.local_workload_selector.is_empty() {
            continue;
        }
        let versions = concerned(facts, own_name, own, spec);
        if versions.is_empty() {
            continue;
        }
        // An unreadable selector was reported with the peer itself.
        let Ok(others) = Others::of(spec) else { continue };
        let origin = Origin::ReverseOf(name.clone());
        let common = Common::of(facts, name, spec, &mut peerings.problems);
        for (node, node_facts) in &facts.nodes {
            if !others.contain(node, node_facts) {
                continue;
            }
            for version in &versions {
                if let Some(peering) = node_as_peer(facts, node, node_facts, *version, spec, &origin) {
                    peerings.emit(GatewayScope::Node, common.applied(peering));
                }
            }
        }
    }
}

/// The nodes that a BGPPeer applies to.
enum Others<'a> {
    All,
    Named(&'a str),
    Selected(Selector),
}

impl<'a> Others<'a> {
    fn of(spec: &'a BGPPeerSpec) -> Result<Self, String> {
        if !spec.node_selector.is_empty() {
            return selector(&spec.node_selector).map(Self::Selected);
        }
        Ok(if spec.node.is_empty() { Self::All } else { Self::Named(&spec.node) })
    }

    fn contain(&self, name: &NodeName, node: &NodeFacts) -> bool {
        match self {
            Self::All => true,
            Self::Named(named) => name.as_str() == *named,
            Self::Selected(selector) => selector.evaluate(&node.labels),
        }
    }
}

/// The families in which this node is the other end: both if it was selected, that of the address if it was named by
/// one.
fn concerned(facts: &Facts, own_name: &NodeName, own: &NodeFacts, spec: &BGPPeerSpec) -> Vec<IpVersion> {
    if !spec.peer_selector.is_empty() {
        let selected = selector(&spec.peer_selector).is_ok_and(|selector| selector.evaluate(&own.labels));
        return if selected { vec![IpVersion::V4, IpVersion::V6] } else { Vec::new() };
    }
    let Ok((address, port)) = spec.peer_ip.parse() else { return Vec::new() };
    if nodes_at(facts, address, spec.as_number.into(), port).any(|node| node == own_name) {
        vec![version_of(address)]
    } else {
        Vec::new()
    }
}
