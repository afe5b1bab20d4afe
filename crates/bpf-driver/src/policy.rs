//! Writes tables of policy to their maps, in the order of `docs/ebpf.md` (section "Order of writes").
//!
//! While this process knows the contents of the maps, only changed keys are written: new lists beside those that
//! interfaces still use, classes, the lists of interfaces, and then the rest without the old lists. When it does not
//! know them (after a start or a failure) everything is read, and if interfaces have lists that are no longer wanted,
//! the transition to the new ones uses a [`bridge`]. Unused elements are removed once no packet can still be using
//! them.
//!
//! A policy that does not fit is not written at all.

mod differences;
mod lists;

use crate::error::Error;
use crate::plan::Plan;
use crate::reading::{self, ADDRESSES, Found, LISTS, NETS, PAIRS, PORTS, ROWS, RULES, SEGMENTS};
use crate::store::{Element, Store};
use bpf_policy::layout::{Bytes, ListId, Lists, PairKey};
use bpf_policy::{Policies, Table, Tables, bridge};
use differences::{changed, changed_by_version, check_room, class_differences, classes, split_dead};
use ipnet::IpNet;
pub use lists::Holders;
use lists::InterfaceLists;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Longer than judging a packet takes, which is microseconds.
const GRACE: Duration = Duration::from_millis(100);

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The number of elements that were written or removed.
    pub changes: usize,
    /// Whether the maps are complete; false while room has to be made first.
    pub is_complete: bool,
    /// When to apply again.
    pub again_in: Option<Duration>,
}

/// The maps of policy, and what is known of their contents.
#[derive(Debug, Default)]
pub struct PolicyMaps {
    /// Whether the maps hold the tables as of the last time changed keys were taken from them.
    is_known: bool,
    lists: InterfaceLists,
    /// Unused elements by map, and since when they are unused.
    garbage: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    garbage_since: Option<Instant>,
    changes: usize,
}

impl PolicyMaps {
    /// Makes the next attempt read everything, as others may have changed the maps.
    pub fn invalidate(&mut self) {
        self.is_known = false;
    }

    /// Sets the endpoints of interfaces; their lists are written by the next [`Self::apply`].
    pub fn set_holders(&mut self, holders: Holders) {
        self.lists.set_holders(holders);
    }

    /// Updates the maps to the policy, at a cost proportional to what changed.
    ///
    /// # Errors
    /// When the policy does not fit, or the kernel refuses; then everything is read again with the next attempt.
    pub fn apply(
        &mut self,
        store: &mut impl Store,
        policies: &mut Policies,
        now: Instant,
    ) -> Result<Applied, Error> {
        self.changes = 0;
        let outcome = match self.is_known {
            true => self.follow(store, policies, now),
            false => self.settle(store, policies, now),
        };
        self.is_known = outcome.is_ok();
        let is_complete = outcome?;
        let again_in = self.garbage_since.map(|since| (since + GRACE).saturating_duration_since(now));
        Ok(Applied { changes: self.changes, is_complete, again_in })
    }

    fn follow(
        &mut self,
        store: &mut impl Store,
        policies: &mut Policies,
        now: Instant,
    ) -> Result<bool, Error> {
        if self.garbage_since.is_some_and(|since| since + GRACE <= now) {
            self.remove_garbage(store)?;
        }
        policies.grow();
        if let Err(error) = check_room(store, policies.tables()) {
            // The maps keep their contents; the way from there to a policy that fits is worked out later.
            policies.shrink();
            return Err(error);
        }
        if self.has_no_room_for_both(store, policies.tables()) {
            return Ok(false);
        }
        self.write(store, policies.tables_mut(), now)?;
        let changed = policies.tables_mut().endpoints.take_changed();
        // A single write sets all lists of an interface.
        let plan = self.lists.follow(policies.tables(), &changed);
        self.write_plan(store, LISTS, &plan)?;
        policies.shrink();
        self.write(store, policies.tables_mut(), now)?;
        Ok(true)
    }

    /// Updates the maps when their contents are not known.
    fn settle(
        &mut self,
        store: &mut impl Store,
        policies: &mut Policies,
        now: Instant,
    ) -> Result<bool, Error> {
        policies.flush();
        check_room(store, policies.tables())?;
        let Found { tables: mut found, lists: found_lists, foreign } = reading::read(store)?;
        for (map, keys) in foreign {
            self.remove(store, map, &keys)?;
        }
        let new = policies.tables();
        let wanted: BTreeSet<ListId> = new.segments.iter().map(|(key, _)| key.list).collect();
        let in_use: BTreeSet<ListId> = found_lists.values().flat_map(Lists::all).collect();
        let dead = split_dead(&mut found, |list| in_use.contains(&list) || wanted.contains(&list));
        for (map, keys) in dead {
            self.remove(store, map, &keys)?;
        }
        let between = match in_use.difference(&wanted).any(|list| *list != ListId::NONE) {
            true => bridge(&found, new),
            false => Tables::default(),
        };
        self.garbage.clear();
        self.lists.found(found_lists);
        self.settle_table(store, SEGMENTS, (&found.segments, &new.segments), &Table::default(), now)?;
        self.settle_table(store, RULES, (&found.rules, &new.rules), &Table::default(), now)?;
        self.settle_table(store, PORTS, (&found.ports, &new.ports), &Table::default(), now)?;
        self.settle_table(store, ROWS, (&found.rows, &new.rows), &between.rows, now)?;
        for (map, writes) in classes(&between) {
            self.write_plan(store, map, &Plan { writes, removals: Vec::new() })?;
        }
        let plan = self.lists.settle(new);
        self.write_plan(store, LISTS, &plan)?;
        for (map, plan) in class_differences(&found, new) {
            self.write_plan(store, map, &plan)?;
        }
        let tables = policies.tables_mut();
        drop((tables.segments.take_changed(), tables.rules.take_changed(), tables.ports.take_changed()));
        drop((tables.rows.take_changed(), tables.addresses.take_changed(), tables.nets.take_changed()));
        drop((tables.pairs.take_changed(), tables.endpoints.take_changed()));
        Ok(true)
    }

    /// Writes the missing elements of a table and of the bridge, and marks the others as unused.
    fn settle_table<K: Bytes + Ord + Clone, V: Bytes + PartialEq>(
        &mut self,
        store: &mut impl Store,
        map: &'static str,
        (found, wanted): (&Table<K, V>, &Table<K, V>),
        between: &Table<K, V>,
        now: Instant,
    ) -> Result<(), Error> {
        let missing = |(key, value): &(&K, &V)| found.get(key) != Some(value);
        let element = |(key, value): (&K, &V)| (key.to_bytes(), value.to_bytes());
        let of_both = || between.iter().filter(|(key, _)| wanted.get(key).is_none());
        let writes: Vec<Element> =
            wanted.iter().filter(missing).chain(of_both().filter(missing)).map(element).collect();
        let (room, sum) = (store.room(map).unwrap_or_default(), found.len() + writes.len());
        if sum > room {
            return Err(Error::TooMany { map, wanted: sum, room });
        }
        let old = found.iter().filter(|(key, _)| wanted.get(key).is_none()).map(|(key, _)| key);
        let garbage = old.chain(of_both().map(|(key, _)| key)).map(Bytes::to_bytes);
        self.discard(map, garbage, now);
        self.write_plan(store, map, &Plan { writes, removals: Vec::new() })
    }

    /// Writes the changes of the tables.
    fn write(&mut self, store: &mut impl Store, tables: &mut Tables, now: Instant) -> Result<(), Error> {
        let fixed = [
            (RULES, changed(&mut tables.rules)),
            (SEGMENTS, changed(&mut tables.segments)),
            (PORTS, changed(&mut tables.ports)),
            (ROWS, changed(&mut tables.rows)),
        ];
        for (map, plan) in fixed {
            if let Some(garbage) = self.garbage.get_mut(map) {
                plan.writes.iter().for_each(|(key, _)| _ = garbage.remove(key));
            }
            self.write_plan(store, map, &Plan { removals: Vec::new(), writes: plan.writes })?;
            self.discard(map, plan.removals.into_iter(), now);
        }
        let addresses = changed_by_version(&mut tables.addresses, IpAddr::is_ipv6);
        let nets = changed_by_version(&mut tables.nets, |net: &IpNet| net.addr().is_ipv6());
        let pairs = changed_by_version(&mut tables.pairs, |pair: &PairKey| pair.address.is_ipv6());
        for (maps, plans) in [(ADDRESSES, addresses), (NETS, nets), (PAIRS, pairs)] {
            for (map, plan) in maps.into_iter().zip(plans) {
                self.write_plan(store, map, &plan)?;
            }
        }
        Ok(())
    }

    fn write_plan(&mut self, store: &mut impl Store, map: &'static str, plan: &Plan) -> Result<(), Error> {
        if store.room(map).is_none() {
            return Ok(());
        }
        if !plan.writes.is_empty() {
            store.write(map, &plan.writes)?;
            self.changes += plan.writes.len();
        }
        self.remove(store, map, &plan.removals)
    }

    fn remove(&mut self, store: &mut impl Store, map: &'static str, keys: &[Vec<u8>]) -> Result<(), Error> {
        if !keys.is_empty() {
            store.remove(map, keys)?;
            self.changes += keys.len();
        }
        Ok(())
    }

    fn discard(&mut self, map: &'static str, keys: impl Iterator<Item = Vec<u8>>, now: Instant) {
        let garbage = self.garbage.entry(map).or_default();
        garbage.extend(keys);
        if !garbage.is_empty() {
            // The newest element determines the time: all must have been unused for that long.
            self.garbage_since = Some(now);
        }
    }

    fn remove_garbage(&mut self, store: &mut impl Store) -> Result<(), Error> {
        self.garbage_since = None;
        for (map, keys) in std::mem::take(&mut self.garbage) {
            self.remove(store, map, &keys.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Whether unused elements must be removed to make room for the rest.
    fn has_no_room_for_both(&self, store: &impl Store, tables: &Tables) -> bool {
        let sizes = [
            (SEGMENTS, tables.segments.len()),
            (RULES, tables.rules.len()),
            (PORTS, tables.ports.len()),
            (ROWS, tables.rows.len()),
        ];
        sizes.into_iter().any(|(map, wanted)| {
            let garbage = self.garbage.get(map).map_or(0, BTreeSet::len);
            garbage > 0 && wanted + garbage > store.room(map).unwrap_or_default()
        })
    }
}
