//! An ordered set with a count for each member. Nearly all counts are one, so only higher ones are stored.

use super::key::MemberKey;
use std::collections::{BTreeMap, BTreeSet};

/// An ordered set with a count for each member.
#[derive(Debug)]
pub(crate) struct Counted<K> {
    members: BTreeSet<K>,
    /// The counts that are greater than one, less one.
    more: BTreeMap<K, u32>,
    /// The prefix lengths that occur, with the number of members of each. Only maintained for sets that need it.
    prefixes: Vec<(u8, u32)>,
}

impl<K> Default for Counted<K> {
    fn default() -> Self {
        Self { members: BTreeSet::new(), more: BTreeMap::new(), prefixes: Vec::new() }
    }
}

impl<K: MemberKey> Counted<K> {
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.members.iter().copied()
    }

    /// Counts a member up. Returns whether it is new.
    pub(crate) fn add(&mut self, key: K, with_prefixes: bool) -> bool {
        if !self.members.insert(key) {
            *self.more.entry(key).or_default() += 1;
            return false;
        }
        if with_prefixes {
            match self.prefixes.binary_search_by_key(&key.prefix(), |(prefix, _)| *prefix) {
                Ok(place) => self.prefixes[place].1 += 1,
                Err(place) => self.prefixes.insert(place, (key.prefix(), 1)),
            }
        }
        true
    }

    /// Counts a member down. Returns whether it is gone now.
    pub(crate) fn remove(&mut self, key: K, with_prefixes: bool) -> bool {
        if let Some(more) = self.more.get_mut(&key) {
            *more -= 1;
            if *more == 0 {
                self.more.remove(&key);
            }
            return false;
        }
        if !self.members.remove(&key) {
            return false;
        }
        if with_prefixes
            && let Ok(place) = self.prefixes.binary_search_by_key(&key.prefix(), |(prefix, _)| *prefix)
        {
            self.prefixes[place].1 -= 1;
            if self.prefixes[place].1 == 0 {
                self.prefixes.remove(place);
            }
        }
        true
    }

    /// Whether a wider member contains this one.
    pub(crate) fn is_covered(&self, key: K) -> bool {
        self.prefixes
            .iter()
            .take_while(|(prefix, _)| *prefix < key.prefix())
            .any(|(prefix, _)| self.members.contains(&key.widened(*prefix)))
    }

    /// The members within this one that no other member within it contains.
    pub(crate) fn widest_within(&self, key: K) -> Vec<K> {
        let mut found: Vec<K> = Vec::new();
        for &member in self.members.range(key..=key.last_within()) {
            if member != key && found.last().is_none_or(|wide| !wide.contains(member)) {
                found.push(member);
            }
        }
        found
    }
}
