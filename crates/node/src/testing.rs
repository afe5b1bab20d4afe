//! Helpers that the tests of several modules share.

use api::{Node, NodeBGPSpec};

/// A stored node with these addresses.
pub(crate) fn node_with(ipv4: &str, ipv6: &str) -> Node {
    let mut node = Node::default();
    "node-a".clone_into(&mut node.metadata.name);
    let bgp = NodeBGPSpec { ipv4_address: ipv4.into(), ipv6_address: ipv6.into(), ..NodeBGPSpec::default() };
    node.spec.bgp = Some(bgp).filter(|bgp| *bgp != NodeBGPSpec::default());
    node
}
