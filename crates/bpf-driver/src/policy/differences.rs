//! Differences between tables and maps, and whether tables fit. Pure.

use crate::error::Error;
use crate::plan::Plan;
use crate::reading::{ADDRESSES, NETS, PAIRS, PORTS, ROWS, RULES, SEGMENTS};
use crate::store::{Element, Store};
use bpf_policy::layout::{Bytes, ListId};
use bpf_policy::{Table, Tables};
use std::collections::BTreeMap;

/// Checks that every table fits into its map.
pub(super) fn check_room(store: &impl Store, tables: &Tables) -> Result<(), Error> {
    let fits = |map: &'static str, wanted: usize| match store.room(map) {
        Some(room) if wanted > room => Err(Error::TooMany { map, wanted, room }),
        _ => Ok(()),
    };
    fits(SEGMENTS, tables.segments.len())?;
    fits(RULES, tables.rules.len())?;
    fits(PORTS, tables.ports.len())?;
    fits(ROWS, tables.rows.len())?;
    let by_version = |maps: [&'static str; 2], all: usize, v6: &dyn Fn() -> usize| {
        // Counted separately only if both versions together might not fit.
        if maps.iter().filter_map(|map| store.room(map)).all(|room| all <= room) {
            return Ok(());
        }
        let v6 = v6();
        fits(maps[0], all - v6).and_then(|()| fits(maps[1], v6))
    };
    by_version(ADDRESSES, tables.addresses.len(), &|| {
        tables.addresses.iter().filter(|(address, _)| address.is_ipv6()).count()
    })?;
    by_version(NETS, tables.nets.len(), &|| {
        tables.nets.iter().filter(|(net, _)| net.addr().is_ipv6()).count()
    })?;
    by_version(PAIRS, tables.pairs.len(), &|| {
        tables.pairs.iter().filter(|(pair, _)| pair.address.is_ipv6()).count()
    })
}

pub(super) fn changed<K: Bytes + Ord + Clone, V: Bytes + PartialEq>(table: &mut Table<K, V>) -> Plan {
    let [one, _] = changed_by_version(table, |_| false);
    one
}

/// The changes of a table, for IPv4 and for IPv6.
pub(super) fn changed_by_version<K: Bytes + Ord + Clone, V: Bytes + PartialEq>(
    table: &mut Table<K, V>,
    is_v6: impl Fn(&K) -> bool,
) -> [Plan; 2] {
    let mut plans = [Plan::default(), Plan::default()];
    for key in table.take_changed() {
        let plan = &mut plans[usize::from(is_v6(&key))];
        match table.get(&key) {
            Some(value) => plan.writes.push((key.to_bytes(), value.to_bytes())),
            None => plan.removals.push(key.to_bytes()),
        }
    }
    plans
}

/// All classes of these tables, by map.
pub(super) fn classes(tables: &Tables) -> BTreeMap<&'static str, Vec<Element>> {
    let mut all: BTreeMap<&'static str, Vec<Element>> = BTreeMap::new();
    for (address, class) in tables.addresses.iter() {
        let map = ADDRESSES[usize::from(address.is_ipv6())];
        all.entry(map).or_default().push((address.to_bytes(), class.to_bytes()));
    }
    for (net, class) in tables.nets.iter() {
        let map = NETS[usize::from(net.addr().is_ipv6())];
        all.entry(map).or_default().push((net.to_bytes(), class.to_bytes()));
    }
    for (pair, class) in tables.pairs.iter() {
        let map = PAIRS[usize::from(pair.address.is_ipv6())];
        all.entry(map).or_default().push((pair.to_bytes(), class.to_bytes()));
    }
    all
}

/// The differences between found and desired classes, by map.
pub(super) fn class_differences(found: &Tables, wanted: &Tables) -> BTreeMap<&'static str, Plan> {
    let (mut there, mut wanted) = (classes(found), classes(wanted));
    let maps = ADDRESSES.into_iter().chain(NETS).chain(PAIRS);
    maps.map(|map| {
        let (there, wanted) = (there.remove(map), wanted.remove(map));
        (map, Plan::between(there.unwrap_or_default(), wanted.unwrap_or_default().into_iter()))
    })
    .collect()
}

/// Removes unused lists from the tables; returns the keys of their elements, by map.
pub(super) fn split_dead(
    tables: &mut Tables,
    lives: impl Fn(ListId) -> bool,
) -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    fn split<K: Bytes + Ord + Clone, V: Clone + PartialEq>(
        table: &mut Table<K, V>,
        lives: impl Fn(&K) -> bool,
    ) -> Vec<Vec<u8>> {
        let (mut live, mut dead) = (Table::default(), Vec::new());
        for (key, value) in table.iter() {
            match lives(key) {
                true => live.set(key.clone(), value.clone()),
                false => dead.push(key.to_bytes()),
            }
        }
        if !dead.is_empty() {
            *table = live;
        }
        dead
    }
    BTreeMap::from([
        (SEGMENTS, split(&mut tables.segments, |key| lives(key.list))),
        (RULES, split(&mut tables.rules, |key| lives(key.list))),
        (PORTS, split(&mut tables.ports, |key| lives(key.list))),
        (ROWS, split(&mut tables.rows, |key| lives(key.list))),
    ])
}
