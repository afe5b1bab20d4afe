//! Everything that can be in a set (all workload endpoints, host endpoints and network sets of the cluster) and the
//! profiles whose labels they inherit.
//!
//! This takes most of the memory, so a row is one small struct and one run of bytes (key, addresses, named ports), and
//! labels are shared. Selectors are handled elsewhere; this only knows which items there are and what labels they have.

mod contribution;
mod key;

pub(crate) use contribution::{Contribution, PortProtocol, pack_host, pack_network_set, pack_workload};
pub(crate) use key::ItemKey;

use crate::bytes::{Reader, number_len, put_bytes};
use crate::id_list::IdList;
use crate::labels::{LabelSetId, LabelSets, Labels};
use crate::matching::Labelled;
use crate::sequencer::SetIndex;
use crate::slab::{Slab, row_id};
use crate::symbols::{Symbol, Symbols};
use hashbrown::{DefaultHashBuilder, HashTable};
use messages::ProfileName;
use model::feed::{self, TextMap};
use std::hash::BuildHasher;

row_id! {
    /// The number of an endpoint or network set.
    ItemId
}

row_id! {
    /// The number of a profile.
    ParentId
}

/// An endpoint or network set.
#[derive(Debug)]
pub(crate) struct Item {
    /// The key, preceded by its length, and then the contribution.
    body: Box<[u8]>,
    /// Its own labels.
    pub(crate) labels: LabelSetId,
    /// Its profiles, in order of precedence.
    pub(crate) parents: IdList<ParentId>,
    /// The sets whose selectors match it; maintained by the matcher.
    pub(crate) matches: IdList<SetIndex>,
}

impl Item {
    fn key(&self) -> &[u8] {
        Reader(&self.body).bytes().unwrap_or_default()
    }

    /// What it contributes to sets.
    pub(crate) fn contribution(&self) -> Contribution<'_> {
        let mut reader = Reader(&self.body);
        reader.bytes();
        Contribution(reader.0)
    }
}

/// A profile, or just the name of one that does not exist.
#[derive(Debug)]
pub(crate) struct Parent {
    /// The profile's name.
    pub(crate) name: ProfileName,
    /// The labels that it gives.
    pub(crate) labels: LabelSetId,
    /// The items that have the profile.
    pub(crate) items: IdList<ItemId>,
    /// The number of users that keep the row even if no item has the profile.
    pub(crate) pins: u32,
}

/// An item before a change. Its labels must be released with [`Population::forget`].
#[derive(Debug)]
pub(crate) struct Before {
    body: Box<[u8]>,
    pub(crate) labels: LabelSetId,
    pub(crate) parents: IdList<ParentId>,
}

impl Before {
    pub(crate) fn contribution(&self) -> Contribution<'_> {
        let mut reader = Reader(&self.body);
        reader.bytes();
        Contribution(reader.0)
    }
}

/// The result of putting an item.
#[derive(Debug)]
pub(crate) enum Put {
    New(ItemId),
    Same(ItemId),
    Changed(ItemId, Before),
}

/// All items, and the profiles.
#[derive(Debug, Default)]
pub(crate) struct Population {
    pub(crate) labels: LabelSets,
    /// The names of hosts, orchestrators and interfaces in keys.
    words: Symbols,
    items: Slab<Item, ItemId>,
    by_key: HashTable<ItemId>,
    parents: Slab<Parent, ParentId>,
    parent_by_name: HashTable<ParentId>,
    hasher: DefaultHashBuilder,
    scratch: Vec<u8>,
}

impl Population {
    pub(crate) fn item(&self, id: ItemId) -> Option<&Item> {
        self.items.get(id)
    }

    pub(crate) fn item_mut(&mut self, id: ItemId) -> Option<&mut Item> {
        self.items.get_mut(id)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = (ItemId, &Item)> {
        self.items.iter()
    }

    pub(crate) fn item_count(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn parent(&self, id: ParentId) -> Option<&Parent> {
        self.parents.get(id)
    }

    pub(crate) fn parents(&self) -> impl Iterator<Item = (ParentId, &Parent)> {
        self.parents.iter()
    }

    /// The labels of an item, including inherited ones.
    pub(crate) fn view<'a>(&'a self, item: &'a Item) -> Inherited<'a> {
        Inherited { population: self, own: self.labels.get(item.labels), parents: item.parents.as_slice() }
    }

    /// Stores an item under its key.
    pub(crate) fn put(
        &mut self,
        key: &ItemKey<'_>,
        labels: &feed::Labels,
        profiles: &[ProfileName],
        contribution: &[u8],
    ) -> Put {
        let mut packed = std::mem::take(&mut self.scratch);
        packed.clear();
        key.acquire(&mut self.words, &mut packed);
        let labels = self.labels.acquire(labels);
        let parents = profiles.iter().map(|name| self.get_or_add_parent(name)).collect();
        let existing = self.find(&packed);
        let put = if let Some(id) = existing {
            key.release(&mut self.words);
            self.replace(id, labels, parents, contribution)
        } else {
            Put::New(self.add(&packed, labels, parents, contribution))
        };
        self.scratch = packed;
        put
    }

    fn add(
        &mut self,
        key: &[u8],
        labels: LabelSetId,
        parents: IdList<ParentId>,
        contribution: &[u8],
    ) -> ItemId {
        let id = self.items.insert(Item {
            body: body(key, contribution),
            labels,
            parents,
            matches: IdList::default(),
        });
        let hash = self.hasher.hash_one(key);
        let (items, hasher) = (&self.items, &self.hasher);
        self.by_key.insert_unique(hash, id, |id| hasher.hash_one(items.get(*id).map_or(&[][..], Item::key)));
        self.join_parents(id);
        id
    }

    fn replace(
        &mut self,
        id: ItemId,
        labels: LabelSetId,
        parents: IdList<ParentId>,
        contribution: &[u8],
    ) -> Put {
        let Some(item) = self.items.get_mut(id) else { return Put::Same(id) };
        let mut reader = Reader(&item.body);
        let key = reader.bytes().unwrap_or_default();
        let same_body = reader.0 == contribution;
        if same_body && item.labels == labels && item.parents == parents {
            self.labels.release(labels);
            // The old row has the same profiles, so none was added for the new one.
            return Put::Same(id);
        }
        let new_body = if same_body { item.body.clone() } else { body(key, contribution) };
        let same_parents = item.parents == parents;
        let before = Before {
            body: std::mem::replace(&mut item.body, new_body),
            labels: std::mem::replace(&mut item.labels, labels),
            parents: std::mem::replace(&mut item.parents, parents),
        };
        if !same_parents {
            self.join_parents(id);
            self.leave_parents(id, &before.parents);
        }
        Put::Changed(id, before)
    }

    /// Returns the item of a key, if there is one.
    pub(crate) fn find_key(&mut self, key: &ItemKey<'_>) -> Option<ItemId> {
        let mut packed = std::mem::take(&mut self.scratch);
        packed.clear();
        let found = key.pack_known(&self.words, &mut packed).and_then(|()| self.find(&packed));
        self.scratch = packed;
        found
    }

    fn find(&self, packed: &[u8]) -> Option<ItemId> {
        let hash = self.hasher.hash_one(packed);
        self.by_key.find(hash, |id| self.items.get(*id).is_some_and(|item| item.key() == packed)).copied()
    }

    /// Removes an item. Its labels must be released with [`Population::forget`].
    pub(crate) fn remove(&mut self, key: &ItemKey<'_>) -> Option<(ItemId, Item)> {
        let id = self.find_key(key)?;
        let hash = self.hasher.hash_one(self.items.get(id)?.key());
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        let item = self.items.remove(id)?;
        key.release(&mut self.words);
        self.leave_parents_of_removed(id, &item.parents);
        Some((id, item))
    }

    /// Releases the labels that an item had before it was changed or removed.
    pub(crate) fn forget(&mut self, labels: LabelSetId) {
        self.labels.release(labels);
    }

    fn join_parents(&mut self, id: ItemId) {
        let Some(item) = self.items.get(id) else { return };
        for &parent in item.parents.as_slice() {
            if let Some(parent) = self.parents.get_mut(parent) {
                parent.items.insert(id);
            }
        }
    }

    /// Removes the item from those of its `old` profiles that it no longer has.
    fn leave_parents(&mut self, id: ItemId, old: &IdList<ParentId>) {
        for &parent in old.as_slice() {
            let still = self.items.get(id).is_some_and(|item| item.parents.as_slice().contains(&parent));
            if !still {
                self.leave(id, parent);
            }
        }
    }

    fn leave_parents_of_removed(&mut self, id: ItemId, old: &IdList<ParentId>) {
        for &parent in old.as_slice() {
            self.leave(id, parent);
        }
    }

    fn leave(&mut self, id: ItemId, parent: ParentId) {
        if let Some(row) = self.parents.get_mut(parent) {
            row.items.remove(id);
        }
        self.drop_parent_if_unused(parent);
    }

    /// Returns the row of a profile, which is added if there is none. The caller pins it or makes an item its member.
    pub(crate) fn get_or_add_parent(&mut self, name: &ProfileName) -> ParentId {
        if let Some(id) = self.find_parent(name) {
            return id;
        }
        let id = self.parents.insert(Parent {
            name: name.clone(),
            labels: LabelSetId::EMPTY,
            items: IdList::default(),
            pins: 0,
        });
        let hash = self.hasher.hash_one(name.as_str());
        let (parents, hasher) = (&self.parents, &self.hasher);
        self.parent_by_name.insert_unique(hash, id, |id| {
            hasher.hash_one(parents.get(*id).map_or("", |parent| &*parent.name))
        });
        id
    }

    pub(crate) fn find_parent(&self, name: &ProfileName) -> Option<ParentId> {
        let hash = self.hasher.hash_one(name.as_str());
        self.parent_by_name
            .find(hash, |id| self.parents.get(*id).is_some_and(|parent| parent.name == *name))
            .copied()
    }

    /// Keeps the row of a profile until [`Population::unpin_parent`].
    pub(crate) fn pin_parent(&mut self, id: ParentId) {
        if let Some(parent) = self.parents.get_mut(id) {
            parent.pins += 1;
        }
    }

    /// Reverts [`Population::pin_parent`].
    pub(crate) fn unpin_parent(&mut self, id: ParentId) {
        if let Some(parent) = self.parents.get_mut(id) {
            parent.pins -= 1;
        }
        self.drop_parent_if_unused(id);
    }

    /// Changes the labels of a profile. Returns the old ones, which the caller releases with [`Population::forget`]
    /// after use; `None` if nothing changed.
    pub(crate) fn set_parent_labels(&mut self, id: ParentId, labels: &TextMap) -> Option<LabelSetId> {
        let labels = self.labels.acquire(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let parent = self.parents.get_mut(id)?;
        if parent.labels == labels {
            self.labels.release(labels);
            return None;
        }
        Some(std::mem::replace(&mut parent.labels, labels))
    }

    /// Removes a profile that no item has, that is not pinned and that has no labels.
    pub(crate) fn drop_parent_if_unused(&mut self, id: ParentId) {
        let Some(parent) = self.parents.get(id) else { return };
        if !parent.items.is_empty() || parent.pins > 0 || parent.labels != LabelSetId::EMPTY {
            return;
        }
        let hash = self.hasher.hash_one(&*parent.name);
        if let Ok(entry) = self.parent_by_name.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.parents.remove(id);
    }
}

fn body(key: &[u8], contribution: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(number_len(key.len() as u64) + key.len() + contribution.len());
    put_bytes(&mut bytes, key);
    bytes.extend_from_slice(contribution);
    bytes.into_boxed_slice()
}

/// The labels of an item: its own and, for names that it does not have, those of its profiles, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited<'a> {
    population: &'a Population,
    own: Labels<'a>,
    parents: &'a [ParentId],
}

impl<'a> Inherited<'a> {
    /// All labels with their values; inherited labels that are overridden may be among them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Symbol, &'a [u8])> + use<'a> {
        let population = self.population;
        self.own.chain(
            self.parents
                .iter()
                .filter_map(|parent| population.parent(*parent))
                .flat_map(|parent| population.labels.get(parent.labels)),
        )
    }
}

impl Labelled for Inherited<'_> {
    #[inline]
    fn value(&self, name: Symbol) -> Option<&[u8]> {
        if let Some(value) = self.own.get(name) {
            return Some(value);
        }
        self.parents.iter().find_map(|parent| {
            let parent = self.population.parent(*parent)?;
            self.population.labels.get(parent.labels).get(name)
        })
    }
}

#[cfg(test)]
mod tests;
