//! Limits of workloads in `bpfp_rate` and `bpfp_limit`. Counts of programs survive as long as their limit does.

use crate::driver::Driver;
use crate::error::Error;
use crate::store::Store;
use bpf::Layout;
use bpf::layout::limits::{Limit, LimitKey, Rate};
use std::collections::BTreeMap;

const RATES: &str = "bpfp_rate";
pub(crate) const LIMITS: &str = "bpfp_limit";

/// Limits by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedLimits {
    /// Packet rates.
    pub rates: BTreeMap<LimitKey, Rate>,
    /// Connection limits.
    pub limits: BTreeMap<LimitKey, Limit>,
}

impl WantedLimits {
    /// Adds a workload's limits in one direction: packets per second with their burst, and connections; 0 for no limit.
    pub fn add(&mut self, device: u32, is_to_workload: bool, rate: (u64, u64), connections: u32) {
        for family in [4, 6] {
            let key = LimitKey { device, is_to_workload, family };
            if rate.0 > 0 {
                self.rates.insert(key, Rate::new(rate.0, rate.1));
            }
            if connections > 0 {
                self.limits.insert(key, Limit { most: connections, count: 0 });
            }
        }
    }
}

impl Driver {
    /// Updates the maps of limits.
    ///
    /// # Errors
    /// When they do not fit, or the kernel refuses; then they are read again with the next attempt.
    pub fn write_limits(&mut self, wanted: WantedLimits) -> Result<(), Error> {
        if self.limits.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.limits = None;
        let is_rate = |old: &Rate, new: &Rate| (old.interval, old.ahead) == (new.interval, new.ahead);
        bring(&mut self.maps, RATES, &wanted.rates, is_rate, |old, new| Rate { next: old.next, ..*new })?;
        let is_limit = |old: &Limit, new: &Limit| old.most == new.most;
        bring(&mut self.maps, LIMITS, &wanted.limits, is_limit, |old, new| Limit {
            count: old.count,
            ..*new
        })?;
        self.limits = Some(wanted);
        Ok(())
    }
}

fn bring<V: Layout + Copy>(
    store: &mut impl Store,
    map: &'static str,
    wanted: &BTreeMap<LimitKey, V>,
    is_same: impl Fn(&V, &V) -> bool,
    keep: impl Fn(&V, &V) -> V,
) -> Result<(), Error> {
    let Some(room) = store.room(map) else { return Ok(()) };
    if wanted.len() > room {
        return Err(Error::TooMany { map, wanted: wanted.len(), room });
    }
    let found: BTreeMap<LimitKey, V> =
        store.read(map)?.iter().map(|(key, value)| (LimitKey::read(key), V::read(value))).collect();
    let gone: Vec<Vec<u8>> =
        found.keys().filter(|key| !wanted.contains_key(key)).map(Layout::bytes).collect();
    if !gone.is_empty() {
        store.remove(map, &gone)?;
    }
    let missing: Vec<(Vec<u8>, Vec<u8>)> = wanted
        .iter()
        .filter(|(key, value)| !found.get(key).is_some_and(|old| is_same(old, value)))
        .map(|(key, value)| (key.bytes(), found.get(key).map_or(*value, |old| keep(old, value)).bytes()))
        .collect();
    if !missing.is_empty() {
        store.write(map, &missing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Element;

    #[derive(Default)]
    struct Memory(BTreeMap<Vec<u8>, Vec<u8>>, usize);

    impl Store for Memory {
        fn room(&self, _: &str) -> Option<usize> {
            Some(2)
        }

        fn read(&self, _: &str) -> Result<Vec<Element>, Error> {
            Ok(self.0.clone().into_iter().collect())
        }

        fn write(&mut self, _: &str, elements: &[Element]) -> Result<(), Error> {
            self.1 += elements.len();
            self.0.extend(elements.iter().cloned());
            Ok(())
        }

        fn remove(&mut self, _: &str, keys: &[Vec<u8>]) -> Result<(), Error> {
            keys.iter().for_each(|key| _ = self.0.remove(key));
            Ok(())
        }
    }

    fn wanted(most: &[u32]) -> BTreeMap<LimitKey, Limit> {
        let key = |device| LimitKey { device, is_to_workload: true, family: 4 };
        (1..).zip(most).map(|(device, most)| (key(device), Limit { most: *most, count: 0 })).collect()
    }

    fn apply(store: &mut Memory, most: &[u32]) -> Result<(), Error> {
        let is_same = |old: &Limit, new: &Limit| old.most == new.most;
        bring(store, LIMITS, &wanted(most), is_same, |old, new| Limit { count: old.count, ..*new })
    }

    #[test]
    fn counts_of_programs_survive_changes_of_limits() -> Result<(), Error> {
        let mut store = Memory::default();
        apply(&mut store, &[3, 5])?;
        for value in store.0.values_mut() {
            let old = Limit::read(value);
            *value = Limit { count: 2, ..old }.bytes();
        }
        apply(&mut store, &[3, 9])?;
        let found: Vec<Limit> = store.0.values().map(|value| Limit::read(value)).collect();
        assert_eq!(found, [Limit { most: 3, count: 2 }, Limit { most: 9, count: 2 }]);
        assert_eq!(store.1, 3, "only what changed is written");
        apply(&mut store, &[3])?;
        assert_eq!(store.0.len(), 1);
        assert!(matches!(apply(&mut store, &[1, 2, 3]), Err(Error::TooMany { .. })));
        Ok(())
    }
}
