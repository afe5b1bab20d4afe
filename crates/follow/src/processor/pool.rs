//! Address pools: the feed's key of a pool is its range, the store's its name, and two names may have the same range.
//! Then the lowest name gets it; the others wait.

use super::{Outputs, Processor};
use api::Resource;
use ipnet::IpNet;
use model::convert::{self, Faults};
use model::feed::{FeedEntry, FeedKey, IpPool};
use model::{Key, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Converts address pools. There are few, so all of them are kept.
#[derive(Debug, Default)]
pub struct Pools {
    by_name: BTreeMap<String, Known>,
    names: BTreeMap<IpNet, BTreeSet<String>>,
}

#[derive(Debug)]
struct Known {
    pool: IpPool,
    revision: String,
    seen: bool,
}

fn name_of(key: &Key) -> &str {
    key.as_resource().map_or("", |key| key.name.as_str())
}

impl Pools {
    /// Reports the pool that now has a range, or that there is none.
    fn tell_range(&self, cidr: IpNet, switched: bool, outputs: &mut Outputs) {
        let first = self.names.get(&cidr).and_then(BTreeSet::first).and_then(|name| self.by_name.get(name));
        let pool = first.map(|known| Box::new(known.pool.clone()));
        let revision = first.map_or("", |known| &known.revision);
        outputs.push(FeedEntry::IpPool(cidr, pool), revision);
        if let Some(output) = outputs.entries.last_mut() {
            // Objects written in one transaction have the same revision.
            output.replaces = switched && first.is_some();
        }
    }

    fn forget(&mut self, name: &str, outputs: &mut Outputs) {
        let Some(known) = self.by_name.remove(name) else { return };
        let cidr = known.pool.cidr;
        let Some(names) = self.names.get_mut(&cidr) else { return };
        let was_first = names.first().is_some_and(|first| first == name);
        names.remove(name);
        if names.is_empty() {
            self.names.remove(&cidr);
        }
        if was_first {
            self.tell_range(cidr, true, outputs);
        }
    }
}

impl Processor for Pools {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let Value::Resource(Resource::IPPool(pool)) = value else {
            outputs.faults.add("kind", "this is not an address pool");
            return;
        };
        let name = name_of(key).to_owned();
        let mut faults = Faults::new();
        let Some(pool) = convert::set::pool(pool.spec, &mut faults) else {
            outputs.faults.append(faults);
            self.keep(key);
            for key in self.keys(key) {
                outputs.push_unreadable(key.gone(), revision);
            }
            return;
        };
        let cidr = pool.cidr;
        if self.by_name.get(&name).is_some_and(|known| known.pool.cidr != cidr) {
            self.forget(&name, outputs);
        }
        let names = self.names.entry(cidr).or_default();
        let first_before = names.first().cloned();
        names.insert(name.clone());
        let is_first = names.first() == Some(&name);
        self.by_name.insert(name.clone(), Known { pool, revision: revision.to_owned(), seen: true });
        if is_first {
            let switched = first_before.is_some_and(|first| first != name);
            self.tell_range(cidr, switched, outputs);
        }
    }

    fn remove(&mut self, key: &Key, outputs: &mut Outputs) {
        self.forget(name_of(key), outputs);
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        let name = name_of(key);
        let Some(known) = self.by_name.get(name) else { return Vec::new() };
        let is_first = self.names.get(&known.pool.cidr).and_then(BTreeSet::first).is_some_and(|n| n == name);
        is_first.then_some(FeedKey::IpPool(known.pool.cidr)).into_iter().collect()
    }

    fn begin(&mut self) {
        self.by_name.values_mut().for_each(|known| known.seen = false);
    }

    fn keep(&mut self, key: &Key) {
        if let Some(known) = self.by_name.get_mut(name_of(key)) {
            known.seen = true;
        }
    }

    fn finish(&mut self, outputs: &mut Outputs) {
        let gone: Vec<String> =
            self.by_name.iter().filter(|(_, known)| !known.seen).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.forget(&name, outputs);
        }
    }
}
