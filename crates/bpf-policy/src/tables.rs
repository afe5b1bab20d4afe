//! The tables as values: the desired contents of the maps, and the keys that changed since they were last taken.
//!
//! Equal state gives equal tables, whatever the history. Does not know maps: a driver writes the changed keys in the
//! order of `docs/ebpf.md`.

use crate::layout::{
    ClassId, ListId, Lists, PairKey, PortKey, Row, RowKey, RuleEntry, RuleKey, Segment, SegmentKey,
};
use crate::list::List;
use ipnet::IpNet;
use messages::{HostEndpointName, WorkloadEndpointId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Entries of a map, and the keys that changed.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    entries: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

/// An endpoint of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointId {
    /// A workload.
    Workload(WorkloadEndpointId),
    /// A host endpoint, by its name.
    Host(HostEndpointName),
}

/// The lists of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointLists {
    /// The interface's name in the endpoint; a host endpoint's may be empty or `*`.
    pub interface: String,
    /// For IPv4.
    pub v4: Lists,
    /// For IPv6.
    pub v6: Lists,
}

/// All tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// Classes of addresses.
    pub addresses: Table<IpAddr, ClassId>,
    /// Classes of networks.
    pub nets: Table<IpNet, ClassId>,
    /// Classes of addresses with ports.
    pub pairs: Table<PairKey, ClassId>,
    /// Values of ports.
    pub ports: Table<PortKey, u32>,
    /// Heads of segments.
    pub segments: Table<SegmentKey, Segment>,
    /// Rows.
    pub rows: Table<RowKey, Row>,
    /// Rules.
    pub rules: Table<RuleKey, RuleEntry>,
    /// The lists of endpoints.
    pub endpoints: Table<EndpointId, EndpointLists>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

/// Pending changes are not part of the value.
impl<K: PartialEq, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl<K: Ord + Clone, V: PartialEq> Table<K, V> {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// All entries, ordered by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the keys that changed since the last call, including removed ones.
    pub fn take_changed(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.changed)
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: K, value: V) {
        if self.entries.get(&key) != Some(&value) {
            self.changed.insert(key.clone());
            self.entries.insert(key, value);
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if self.entries.remove(key).is_some() {
            self.changed.insert(key.clone());
        }
    }

    /// The entries with keys from `first` to `last`, included.
    pub(crate) fn range(&self, first: K, last: K) -> impl Iterator<Item = (&K, &V)> {
        self.entries.range(first..=last)
    }

    fn remove_range(&mut self, first: K, last: K) {
        let keys: Vec<K> = self.entries.range(first..=last).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.remove(key));
    }
}

impl Tables {
    /// Adds the part of a list that does not depend on members of sets.
    pub(crate) fn add_list(&mut self, list: &List) {
        for (number, segment) in (0..).zip(&list.segments) {
            self.segments.set(SegmentKey { list: list.id, segment: number }, segment.clone());
        }
        for (number, rule) in (0..).zip(&list.rules) {
            self.rules.set(RuleKey { list: list.id, rule: number }, rule.entry);
        }
        list.ports.iter().for_each(|(key, value)| self.ports.set(*key, *value));
        list.port_rows.iter().for_each(|(key, row)| self.rows.set(*key, *row));
    }

    /// Removes everything of a list.
    pub(crate) fn remove_list(&mut self, list: ListId) {
        let segment = |segment| SegmentKey { list, segment };
        self.segments.remove_range(segment(0), segment(u32::MAX));
        let rule = |rule| RuleKey { list, rule };
        self.rules.remove_range(rule(0), rule(u32::MAX));
        let port = |byte: u8| PortKey {
            list,
            dimension: byte,
            protocol: byte,
            port: u16::from_le_bytes([byte; 2]),
            bits: byte,
        };
        self.ports.remove_range(port(0), port(u8::MAX));
        let row = |value, segment, dimension| RowKey { list, value, segment, dimension };
        self.rows.remove_range(row(0, 0, 0), row(u64::MAX, u16::MAX, u8::MAX));
    }
}
