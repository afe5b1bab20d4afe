//! The lists of each interface: the desired ones follow endpoints, and the contents of the map are known.

use crate::plan::Plan;
use bpf_policy::layout::{Bytes, Lists, ListsKey};
use bpf_policy::{EndpointId, Tables};
use std::collections::{BTreeMap, BTreeSet};

/// The endpoints of interfaces, by interface index.
pub type Holders = BTreeMap<u32, EndpointId>;

/// The lists of interfaces.
#[derive(Debug, Default)]
pub(super) struct InterfaceLists {
    holders: Holders,
    by_endpoint: BTreeMap<EndpointId, BTreeSet<u32>>,
    /// Interfaces that have changed hands since lists were last written.
    moved: BTreeSet<u32>,
    /// The contents of the map.
    there: BTreeMap<ListsKey, Lists>,
}

impl InterfaceLists {
    /// Sets the endpoints of interfaces.
    pub(super) fn set_holders(&mut self, holders: Holders) {
        for (index, id) in self.holders.iter().filter(|(index, id)| holders.get(index) != Some(*id)) {
            self.moved.insert(*index);
            if let Some(indices) = self.by_endpoint.get_mut(id) {
                indices.remove(index);
                if indices.is_empty() {
                    self.by_endpoint.remove(id);
                }
            }
        }
        for (index, id) in holders.iter().filter(|(index, id)| self.holders.get(index) != Some(*id)) {
            self.moved.insert(*index);
            self.by_endpoint.entry(id.clone()).or_default().insert(*index);
        }
        self.holders = holders;
    }

    /// Records the contents of the map.
    pub(super) fn found(&mut self, there: BTreeMap<ListsKey, Lists>) {
        self.there = there;
    }

    /// The writes for interfaces of these endpoints, and for those that changed hands. Records them as done.
    pub(super) fn follow(&mut self, tables: &Tables, changed: &BTreeSet<EndpointId>) -> Plan {
        let mut indices = std::mem::take(&mut self.moved);
        indices.extend(changed.iter().filter_map(|id| self.by_endpoint.get(id)).flatten());
        self.plan(tables, indices.into_iter().flat_map(keys))
    }

    /// The writes when any interface may be outdated.
    pub(super) fn settle(&mut self, tables: &Tables) -> Plan {
        self.moved.clear();
        let of_holders = self.holders.keys().copied().flat_map(keys);
        let all: BTreeSet<ListsKey> = self.there.keys().copied().chain(of_holders).collect();
        self.plan(tables, all.into_iter())
    }

    fn plan(&mut self, tables: &Tables, all: impl Iterator<Item = ListsKey>) -> Plan {
        let mut plan = Plan::default();
        for key in all {
            let found = self.holders.get(&key.ifindex).and_then(|id| tables.endpoints.get(id));
            let wanted = found.and_then(|found| match key.family {
                4 => Some(found.v4),
                6 => Some(found.v6),
                _ => None,
            });
            if self.there.get(&key) == wanted.as_ref() {
                continue;
            }
            match wanted {
                Some(lists) => {
                    plan.writes.push((key.to_bytes(), lists.to_bytes()));
                    self.there.insert(key, lists);
                }
                None => {
                    plan.removals.push(key.to_bytes());
                    self.there.remove(&key);
                }
            }
        }
        plan
    }
}

fn keys(ifindex: u32) -> impl Iterator<Item = ListsKey> {
    [4, 6].into_iter().map(move |family| ListsKey { ifindex, family })
}
