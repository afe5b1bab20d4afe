//! The collector's bookkeeping: positions of allocations, stages of suspicions, and when to examine again.

use super::{Collector, Entry, NodeEntry, Place, Suspicion};
use crate::block::Allocation;
use crate::garbage::holder::{ATTRIBUTE_NODE, Holder};
use crate::garbage::judge::Reason;
use crate::garbage::verdicts::Leak;
use jiff::Timestamp;
use std::sync::Arc;

impl Collector {
    pub(super) fn place_of(&self, leak: &Leak) -> Option<Place> {
        let ordinal = u32::try_from(crate::address::ordinal(&leak.block, leak.address)?).ok()?;
        let entry = self.entry_at((leak.block, ordinal))?;
        (entry.sequence_number == leak.sequence_number && entry.handle == leak.handle)
            .then_some((leak.block, ordinal))
    }

    pub(super) fn entry_at(&self, (cidr, ordinal): Place) -> Option<&Entry> {
        self.blocks.get(&cidr)?.entries.get(&ordinal)
    }

    pub(super) fn entry_mut(&mut self, (cidr, ordinal): Place) -> Option<&mut Entry> {
        self.blocks.get_mut(&cidr)?.entries.get_mut(&ordinal)
    }

    pub(super) fn suspect(&mut self, place: Place, now: Timestamp) -> Timestamp {
        let Some(entry) = self.entry_mut(place) else { return now };
        match &entry.suspicion {
            Suspicion::Candidate { since } | Suspicion::Confirmed { since, .. } => *since,
            Suspicion::None => {
                entry.suspicion = Suspicion::Candidate { since: now };
                now
            }
        }
    }

    pub(super) fn confirm(&mut self, place: Place, since: Timestamp, reason: Reason, node: &Arc<str>) {
        if let Some(entry) = self.entry_mut(place) {
            entry.suspicion = Suspicion::Confirmed { since, reason, node: Arc::clone(node) };
            self.confirmed.insert(place);
        }
    }

    /// Reverts a confirmed leak to a suspicion: its node came back.
    pub(super) fn doubt(&mut self, place: Place, since: Timestamp) {
        if self.confirmed.remove(&place)
            && let Some(entry) = self.entry_mut(place)
        {
            entry.suspicion = Suspicion::Candidate { since };
        }
    }

    pub(super) fn acquit(&mut self, place: Place) {
        if let Some(entry) = self.entry_mut(place) {
            entry.suspicion = Suspicion::None;
        }
        self.confirmed.remove(&place);
    }

    pub(super) fn schedule(&mut self, name: &Arc<str>, due: Option<Timestamp>) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if let Some(old) = std::mem::replace(&mut node.due, due) {
            self.due.remove(&(old, Arc::clone(name)));
        }
        if let Some(due) = due {
            self.due.insert((due, Arc::clone(name)));
        }
    }

    pub(super) fn intern(&mut self, node: &str) -> Arc<str> {
        self.nodes.get_key_value(node).map_or_else(|| node.into(), |(name, _)| Arc::clone(name))
    }

    pub(super) fn entry(&mut self, allocation: &Allocation<'_>) -> Option<(u32, Entry)> {
        let handle = allocation.handle_id().filter(|_| !allocation.is_resting())?;
        let node = allocation.owner_attribute(ATTRIBUTE_NODE).filter(|node| !node.is_empty());
        let node = node.map(|node| self.intern(node));
        let handle = self.handles.get_key_value(handle).map_or_else(|| handle.into(), |(id, _)| id.clone());
        let entry = Entry {
            address: allocation.address,
            handle,
            holder: Holder::of(allocation),
            node,
            sequence_number: allocation.sequence_number,
            suspicion: Suspicion::None,
        };
        Some((u32::try_from(allocation.ordinal).ok()?, entry))
    }

    pub(super) fn link(&mut self, place: Place, entry: &Entry) {
        self.handles.entry(entry.handle.clone()).or_default().insert(place);
        if let Some(node) = &entry.node {
            self.with_node(node, |node| node.places.insert(place));
            self.dirty.insert(Arc::clone(node));
        }
    }

    pub(super) fn unlink(&mut self, place: Place, entry: &Entry) {
        if let Some(places) = self.handles.get_mut(&entry.handle) {
            places.remove(&place);
            if places.is_empty() {
                self.handles.remove(&entry.handle);
            }
        }
        self.confirmed.remove(&place);
        if let Some(node) = &entry.node {
            // First, while the node is known: it may just have lost its last address in use.
            self.dirty.insert(Arc::clone(node));
            self.with_node(node, |node| node.places.remove(&place));
        }
    }

    /// Changes what is known of a node, and forgets the node with its last block and address.
    pub(super) fn with_node(&mut self, name: &Arc<str>, change: impl FnOnce(&mut NodeEntry) -> bool) {
        let node = self.nodes.entry(Arc::clone(name)).or_default();
        change(node);
        if node.blocks.is_empty() && node.places.is_empty() {
            if let Some(due) = node.due {
                self.due.remove(&(due, Arc::clone(name)));
            }
            self.nodes.remove(name);
            self.leaving.remove(name);
        }
    }
}
