//! The writes to maps, and their order.

use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use std::collections::BTreeMap;

/// The contents of the maps.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents<F: Family> {
    /// `…_nat_fe3`.
    pub frontends: BTreeMap<FrontendKey<F>, Frontend>,
    /// `…_nat_be`.
    pub backends: BTreeMap<BackendKey, Backend<F>>,
    /// `…_mglv2`.
    pub maglev: BTreeMap<BackendKey, Backend<F>>,
}

impl<F: Family> Default for Contents<F> {
    fn default() -> Self {
        Self { frontends: BTreeMap::new(), backends: BTreeMap::new(), maglev: BTreeMap::new() }
    }
}

/// The differences of the maps.
#[derive(Clone, Debug, PartialEq)]
pub struct MapChanges<F: Family> {
    pub(crate) frontends: BTreeMap<FrontendKey<F>, Option<Frontend>>,
    pub(crate) backends: BTreeMap<BackendKey, Option<Backend<F>>>,
    pub(crate) maglev: BTreeMap<BackendKey, Option<Backend<F>>>,
}

impl<F: Family> Default for MapChanges<F> {
    fn default() -> Self {
        Self { frontends: BTreeMap::new(), backends: BTreeMap::new(), maglev: BTreeMap::new() }
    }
}

/// One of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NatMap {
    /// `…_nat_fe3`.
    Frontends,
    /// `…_nat_be`.
    Backends,
    /// `…_mglv2`.
    Maglev,
}

/// Elements of one map to be written at once: either only elements to set, or only keys to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which map.
    pub map: NatMap,
    /// The keys and values to set.
    pub set: Vec<(Vec<u8>, Vec<u8>)>,
    /// The keys to remove.
    pub remove: Vec<Vec<u8>>,
}

impl<F: Family> MapChanges<F> {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty() && self.backends.is_empty() && self.maglev.is_empty()
    }

    /// The writes in order, without empty ones. No frontend ever refers to a missing backend: removed frontends are
    /// deleted first, then backends are written, then the other frontends, and unused backends are deleted last.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let set_backends = |map, entries: &BTreeMap<BackendKey, Option<Backend<F>>>| {
            let set = entries.iter().filter_map(|(key, value)| Some((key.bytes(), value.as_ref()?.bytes())));
            Step { map, set: set.collect(), remove: Vec::new() }
        };
        let remove_backends = |map, entries: &BTreeMap<BackendKey, Option<Backend<F>>>| {
            let gone = entries.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.bytes());
            Step { map, set: Vec::new(), remove: gone.collect() }
        };
        let gone = self.frontends.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.bytes());
        let set =
            self.frontends.iter().filter_map(|(key, value)| Some((key.bytes(), value.as_ref()?.bytes())));
        let steps = [
            Step { map: NatMap::Frontends, set: Vec::new(), remove: gone.collect() },
            set_backends(NatMap::Backends, &self.backends),
            set_backends(NatMap::Maglev, &self.maglev),
            Step { map: NatMap::Frontends, set: set.collect(), remove: Vec::new() },
            remove_backends(NatMap::Maglev, &self.maglev),
            remove_backends(NatMap::Backends, &self.backends),
        ];
        steps.into_iter().filter(|step| !step.set.is_empty() || !step.remove.is_empty()).collect()
    }
}

/// Records the change of a list of values under one id.
pub(crate) fn list<F: Family>(
    changes: &mut BTreeMap<BackendKey, Option<Backend<F>>>,
    id: u32,
    before: &[Backend<F>],
    after: &[Backend<F>],
) {
    for (ordinal, place) in (0..).zip(0..before.len().max(after.len())) {
        if before.get(place) != after.get(place) {
            changes.insert(BackendKey { id, ordinal }, after.get(place).copied());
        }
    }
}
