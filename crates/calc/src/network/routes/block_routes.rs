//! The ranges that a block assigns to nodes: itself to its owner, and single addresses to the nodes that took them from
//! it.

use ipam_core::Block;
use ipnet::IpNet;
use model::AllocationBlock;
use std::collections::BTreeMap;

/// The attribute of an allocation that names the node.
const NODE_ATTRIBUTE: &str = "node";

/// Returns the ranges of a block and the nodes that have them.
pub(super) fn block_routes(block: &AllocationBlock) -> BTreeMap<IpNet, &str> {
    let owner = owner(block);
    let mut routes = BTreeMap::new();
    for allocation in Block::new(block).allocations() {
        // Without attributes, or without a node in them, the place of the address is unknown.
        let Some(attribute) = allocation.attribute else { continue };
        let node = attribute.active_owner_attrs.get(NODE_ATTRIBUTE).map_or("", String::as_str);
        if node.is_empty() || owner == Some(node) {
            continue;
        }
        routes.insert(IpNet::from(allocation.address), node);
    }
    // A block of one address: as in Felix, the owner wins.
    if let Some(owner) = owner {
        routes.insert(block.cidr.trunc(), owner);
    }
    routes
}

/// The name of the owner, whatever its kind.
fn owner(block: &AllocationBlock) -> Option<&str> {
    let affinity = block.affinity.as_deref()?;
    let name = affinity.strip_prefix("host:").or_else(|| affinity.strip_prefix("virtual:"))?;
    Some(name).filter(|name| !name.is_empty())
}
