//! The nodes of the cluster as small numbers. A node keeps its number as long as anything refers to it, whether it is
//! known or not: blocks and endpoints often arrive before the node that they name.

use super::super::node_addresses::RoutedAddresses;
use super::numbered::{Number, Numbered};
use super::prefix_table::EntryId;
use messages::NodeName;
use std::collections::BTreeMap;

/// The kind of thing that node numbers stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OfNode {}

/// The number of a node.
pub(super) type NodeId = Number<OfNode>;

#[derive(Debug)]
struct Slot {
    name: NodeName,
    holds: u32,
    addresses: Option<Box<RoutedAddresses>>,
    first_route: Option<EntryId>,
}

/// All nodes that something refers to.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    by_name: BTreeMap<NodeName, NodeId>,
    slots: Numbered<OfNode, Slot>,
}

impl NodeTable {
    /// Returns the number of this node, with one more hold. Each hold needs one [`Self::release`].
    pub(super) fn hold(&mut self, name: &str) -> NodeId {
        if let Some(&id) = self.by_name.get(name) {
            self.hold_again(id);
            return id;
        }
        let name = NodeName::from(name);
        let slot = Slot { name: name.clone(), holds: 1, addresses: None, first_route: None };
        let id = self.slots.insert(slot);
        self.by_name.insert(name, id);
        id
    }

    /// Adds a hold to a node that has one.
    pub(super) fn hold_again(&mut self, id: NodeId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.holds += 1;
        }
    }

    /// Releases a hold; after the last one, the number can be reused.
    pub(super) fn release(&mut self, id: NodeId) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.holds -= 1;
        if slot.holds == 0
            && let Some(slot) = self.slots.remove(id)
        {
            self.by_name.remove(&slot.name);
        }
    }

    /// Returns the number of this node, if anything refers to it.
    pub(super) fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The name; empty for a number that is not in use.
    pub(super) fn name(&self, id: NodeId) -> &str {
        self.slots.get(id).map_or("", |slot| &slot.name)
    }

    /// The name as shared text.
    pub(super) fn shared_name(&self, id: NodeId) -> Option<NodeName> {
        self.slots.get(id).map(|slot| slot.name.clone())
    }

    /// The addresses, if the node is known and has some.
    pub(super) fn addresses(&self, id: NodeId) -> Option<&RoutedAddresses> {
        self.slots.get(id)?.addresses.as_deref()
    }

    /// Sets the addresses and returns the previous ones.
    pub(super) fn set_addresses(
        &mut self,
        id: NodeId,
        addresses: Option<Box<RoutedAddresses>>,
    ) -> Option<Box<RoutedAddresses>> {
        let slot = self.slots.get_mut(id)?;
        std::mem::replace(&mut slot.addresses, addresses)
    }

    /// The first of the routes that lead to the node.
    pub(super) fn first_route(&self, id: NodeId) -> Option<EntryId> {
        self.slots.get(id)?.first_route
    }

    /// Sets the first of the routes that lead to the node.
    pub(super) fn set_first_route(&mut self, id: NodeId, entry: Option<EntryId>) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.first_route = entry;
        }
    }

    /// All nodes that have addresses.
    pub(super) fn known(&self) -> impl Iterator<Item = (NodeId, &RoutedAddresses)> {
        self.by_name.values().filter_map(|&id| Some((id, self.addresses(id)?)))
    }

    /// How many nodes something refers to.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}
