//! The start: adopts the ids in the maps, and updates the maps to the desired contents.

use super::{Owner, Services, port_name};
use crate::changes::{Contents, MapChanges};
use crate::claims::Precedence;
use crate::render::Pool;
use bpf::layout::Family;
use bpf::layout::nat::{BackendKey, FrontendKey};
use model::feed::NamespacedName;
use std::collections::BTreeMap;
use std::sync::Arc;

impl<F: Family> Services<F> {
    /// Called when all objects are known, with the contents of the maps: adopts the ids in use, and returns the writes.
    /// Later calls, after maps were read again or a write failed, only return the differences.
    pub fn begin(&mut self, actual: &Contents<F>) -> MapChanges<F> {
        if !self.has_begun {
            self.has_begun = true;
            self.adopt(actual);
            let all = self.entries.keys().cloned().collect();
            drop(self.refresh_all(all));
        }
        self.difference(actual)
    }

    /// The desired contents of the maps.
    fn contents(&self) -> Contents<F> {
        let frontends = self.claims.iter().map(|(key, value)| (*key, *value)).collect();
        let mut contents = Contents { frontends, ..Contents::default() };
        for (port, served) in self.entries.values().flat_map(|entry| &entry.served) {
            for (node, pool) in served.rendered.pools() {
                let Some(id) = self.ids.get(&(port.clone(), node)) else { continue };
                let numbered = |list: &[_]| -> Vec<_> {
                    (0..)
                        .zip(list.to_vec())
                        .map(|(ordinal, value)| (BackendKey { id, ordinal }, value))
                        .collect()
                };
                contents.backends.extend(numbered(&pool.backends));
                contents.maglev.extend(numbered(&pool.maglev));
            }
        }
        contents
    }

    fn difference(&self, actual: &Contents<F>) -> MapChanges<F> {
        fn of<K: Ord + Copy, V: PartialEq + Copy>(
            wanted: &BTreeMap<K, V>,
            actual: &BTreeMap<K, V>,
        ) -> BTreeMap<K, Option<V>> {
            let set = wanted.iter().filter(|(key, value)| actual.get(key) != Some(value));
            let gone = actual.keys().filter(|key| !wanted.contains_key(key));
            set.map(|(key, value)| (*key, Some(*value))).chain(gone.map(|key| (*key, None))).collect()
        }
        let wanted = self.contents();
        MapChanges {
            frontends: of(&wanted.frontends, &actual.frontends),
            backends: of(&wanted.backends, &actual.backends),
            maglev: of(&wanted.maglev, &actual.maglev),
        }
    }

    /// Adopts the ids of frontends that are still wanted.
    fn adopt(&mut self, actual: &Contents<F>) {
        let mut best: BTreeMap<FrontendKey<F>, (Precedence, Owner<F>)> = BTreeMap::new();
        for (name, entry) in &self.entries {
            for (port, served) in self.serve(name, entry) {
                for wanted in &served.rendered.frontends {
                    let claim = (served.precedence(&port, wanted.rank), (port.clone(), wanted.node));
                    let first = best.entry(wanted.key).or_insert_with(|| claim.clone());
                    if claim < *first {
                        *first = claim;
                    }
                }
            }
        }
        let all = actual.frontends.values().map(|frontend| frontend.id);
        for id in all.chain(actual.backends.keys().chain(actual.maglev.keys()).map(|key| key.id)) {
            self.ids.avoid(id);
        }
        let claims =
            best.into_iter().filter_map(|(key, (_, owner))| Some((actual.frontends.get(&key)?.id, owner)));
        self.refused_ids = self.ids.adopt(claims);
        let api = NamespacedName { namespace: "default".to_owned(), name: "kubernetes".to_owned() };
        let Some(service) = self.entries.get(&api).and_then(|entry| entry.service.as_ref()) else { return };
        for port in &service.ports {
            let name = Arc::new(port_name(&api, port));
            let Some(id) = self.ids.get(&(name.clone(), None)) else { continue };
            let keys = (0..).map(|ordinal| BackendKey { id, ordinal });
            let backends: Vec<_> = keys.map_while(|key| actual.backends.get(&key).copied()).collect();
            self.adopted.insert(name, Pool { backends, local: 0, maglev: Vec::new() });
        }
    }
}
