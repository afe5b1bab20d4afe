//! Reads maps of policy left by an earlier process back into tables. Elements that we would not write are reported, so
//! that they are removed.

use crate::error::Error;
use crate::store::Store;
use bpf_policy::layout::{Bytes, Lists, ListsKey};
use bpf_policy::{Table, Tables};
use std::collections::BTreeMap;

/// The maps of policy.
pub(crate) const ADDRESSES: [&str; 2] = ["bpfp_v4_addr", "bpfp_v6_addr"];
pub(crate) const NETS: [&str; 2] = ["bpfp_v4_net", "bpfp_v6_net"];
pub(crate) const PAIRS: [&str; 2] = ["bpfp_v4_pair", "bpfp_v6_pair"];
pub(crate) const PORTS: &str = "bpfp_port";
pub(crate) const SEGMENTS: &str = "bpfp_segment";
pub(crate) const ROWS: &str = "bpfp_row";
pub(crate) const RULES: &str = "bpfp_rule";
pub(crate) const LISTS: &str = "bpfp_lists";

/// The contents of the maps.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) tables: Tables,
    pub(crate) lists: BTreeMap<ListsKey, Lists>,
    /// Keys of elements that are not ours, by map.
    pub(crate) foreign: BTreeMap<&'static str, Vec<Vec<u8>>>,
}

/// Reads all maps of policy.
pub(crate) fn read(store: &impl Store) -> Result<Found, Error> {
    let mut found = Found::default();
    let Found { tables, lists, foreign } = &mut found;
    for map in ADDRESSES {
        into_table(store, map, &mut tables.addresses, foreign)?;
    }
    for map in NETS {
        into_table(store, map, &mut tables.nets, foreign)?;
    }
    for map in PAIRS {
        into_table(store, map, &mut tables.pairs, foreign)?;
    }
    into_table(store, PORTS, &mut tables.ports, foreign)?;
    into_table(store, SEGMENTS, &mut tables.segments, foreign)?;
    into_table(store, ROWS, &mut tables.rows, foreign)?;
    into_table(store, RULES, &mut tables.rules, foreign)?;
    for (key, value) in store.read(LISTS)? {
        match (ListsKey::decode(&key), Lists::decode(&value)) {
            (Some(key), Some(value)) => _ = lists.insert(key, value),
            _ => foreign.entry(LISTS).or_default().push(key),
        }
    }
    Ok(found)
}

fn into_table<K: Bytes + Ord + Clone, V: Bytes + PartialEq>(
    store: &impl Store,
    map: &'static str,
    table: &mut Table<K, V>,
    foreign: &mut BTreeMap<&'static str, Vec<Vec<u8>>>,
) -> Result<(), Error> {
    if store.room(map).is_none() {
        return Ok(());
    }
    for (key, value) in store.read(map)? {
        match (K::decode(&key), V::decode(&value)) {
            (Some(key), Some(value)) => table.set(key, value),
            _ => foreign.entry(map).or_default().push(key),
        }
    }
    Ok(())
}
