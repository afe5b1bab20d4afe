//! The objects that a batch of changes touches, and how they differ afterwards.

use super::{Owner, Served, Services};
use crate::changes::{self, MapChanges};
use crate::claims::PortName;
use crate::render::Pool;
use bpf::layout::Family;
use bpf::layout::nat::{Frontend, FrontendKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The previous state of everything that a batch touched.
pub(super) struct Batch<F: Family> {
    pub(super) frontends: BTreeMap<FrontendKey<F>, Option<Frontend>>,
    pub(super) pools: BTreeMap<Owner<F>, Option<(u32, Pool<F>)>>,
}

impl<F: Family> Services<F> {
    pub(super) fn retract(
        &mut self,
        port: &Arc<PortName>,
        old: &Served<F>,
        new: Option<&Served<F>>,
        batch: &mut Batch<F>,
    ) {
        for wanted in &old.rendered.frontends {
            let precedence = old.precedence(port, wanted.rank);
            self.touch(&wanted.key, batch);
            self.claims.remove(&wanted.key, &precedence);
        }
        for (node, pool) in old.rendered.pools() {
            let owner = (port.clone(), node);
            let Some(id) = self.ids.get(&owner) else { continue };
            if new.is_none_or(|new| new.rendered.pool(node).is_none()) {
                self.ids.release(&owner);
            }
            batch.pools.entry(owner).or_insert_with(|| Some((id, pool.clone())));
        }
    }

    pub(super) fn install(&mut self, port: &Arc<PortName>, new: &Served<F>, batch: &mut Batch<F>) {
        for (node, _) in new.rendered.pools() {
            let owner = (port.clone(), node);
            self.ids.of(&owner);
            batch.pools.entry(owner).or_insert(None);
        }
        for wanted in &new.rendered.frontends {
            let id = self.ids.of(&(port.clone(), wanted.node));
            self.touch(&wanted.key, batch);
            self.claims.insert(
                wanted.key,
                new.precedence(port, wanted.rank),
                Frontend { id, ..wanted.value },
            );
        }
    }

    fn touch(&self, key: &FrontendKey<F>, batch: &mut Batch<F>) {
        batch.frontends.entry(*key).or_insert_with(|| self.claims.get(key).map(|(_, value)| *value));
    }

    /// The differences of everything that was touched.
    pub(super) fn finish(&self, batch: Batch<F>) -> MapChanges<F> {
        let mut changes = MapChanges::default();
        for (key, before) in batch.frontends {
            let after = self.claims.get(&key).map(|(_, value)| *value);
            if before != after {
                changes.frontends.insert(key, after);
            }
        }
        for (owner, before) in batch.pools {
            let after = self.served(&owner.0).and_then(|served| served.rendered.pool(owner.1));
            let now = self.ids.get(&owner);
            let (empty, nothing) = (Vec::new(), Vec::new());
            let (was, old, old_table) = match &before {
                Some((id, pool)) => (Some(*id), &pool.backends, &pool.maglev),
                None => (None, &empty, &nothing),
            };
            let (new, new_table) = after.map_or((&empty, &nothing), |pool| (&pool.backends, &pool.maglev));
            if let Some(id) = was.or(now) {
                changes::list(&mut changes.backends, id, old, new);
                changes::list(&mut changes.maglev, id, old_table, new_table);
            }
        }
        changes
    }
}
