//! After every single element written or removed, each interface's lists give the verdict from before or the final one;
//! and no unused elements remain. Of thousands of elements a random part is checked.

use crate::state::{POLICIES, State, WORKLOADS, packet, policy, policy_id, state};
use bpf_driver::{Error, Holders, PolicyMaps, Store};
use bpf_policy::layout::{Bytes, ListId, Lists, ListsKey};
use bpf_policy::{EndpointId, Packet, Policies, Table, Tables, Verdict, evaluate};
use messages::{Policy, ToDataplane};
use model::IpVersion;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One in this many elements is checked.
const STRIDE: usize = 29;

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Maps that are plain values, with a check after each element.
struct Fake<'a> {
    maps: Contents,
    rooms: BTreeMap<&'static str, usize>,
    writes: usize,
    /// Refuses everything after this many writes.
    fails_after: Option<usize>,
    /// Elements whose number leaves this remainder are checked.
    rest: usize,
    look: Box<dyn FnMut(&Contents) + 'a>,
}

impl<'a> Fake<'a> {
    fn new(maps: Contents) -> Self {
        Self { maps, rooms: BTreeMap::new(), writes: 0, fails_after: None, rest: 0, look: Box::new(|_| {}) }
    }

    fn step(&mut self) -> Result<(), Error> {
        self.writes += 1;
        if self.writes % STRIDE == self.rest {
            (self.look)(&self.maps);
        }
        match self.fails_after {
            Some(last) if self.writes > last => Err(Error::Missing("patience")),
            _ => Ok(()),
        }
    }
}

impl Store for Fake<'_> {
    fn room(&self, map: &str) -> Option<usize> {
        Some(self.rooms.get(map).copied().unwrap_or(100_000))
    }

    fn read(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        Ok(self.maps.get(map).cloned().unwrap_or_default().into_iter().collect())
    }

    fn write(&mut self, map: &str, elements: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        for (key, value) in elements {
            self.maps.entry(map.to_owned()).or_default().insert(key.clone(), value.clone());
            assert!(self.maps[map].len() <= self.room(map).unwrap(), "{map} is full");
            self.step()?;
        }
        Ok(())
    }

    fn remove(&mut self, map: &str, keys: &[Vec<u8>]) -> Result<(), Error> {
        for key in keys {
            self.maps.entry(map.to_owned()).or_default().remove(key);
            self.step()?;
        }
        Ok(())
    }
}

fn table<K: Bytes + Ord + Clone, V: Bytes + PartialEq>(contents: &Contents, maps: &[&str]) -> Table<K, V> {
    let mut table = Table::default();
    for (key, value) in maps.iter().filter_map(|map| contents.get(*map)).flatten() {
        table.set(K::decode(key).expect("a key"), V::decode(value).expect("a value"));
    }
    table
}

fn tables(contents: &Contents) -> Tables {
    Tables {
        addresses: table(contents, &["bpfp_v4_addr", "bpfp_v6_addr"]),
        nets: table(contents, &["bpfp_v4_net", "bpfp_v6_net"]),
        pairs: table(contents, &["bpfp_v4_pair", "bpfp_v6_pair"]),
        ports: table(contents, &["bpfp_port"]),
        segments: table(contents, &["bpfp_segment"]),
        rows: table(contents, &["bpfp_row"]),
        rules: table(contents, &["bpfp_rule"]),
        ..Tables::default()
    }
}

/// The programs' verdicts about each packet on each interface, in and out.
fn verdicts(contents: &Contents, packets: &[Packet]) -> Vec<Verdict> {
    let tables = tables(contents);
    let lists: Table<ListsKey, Lists> = table(contents, &["bpfp_lists"]);
    let mut all = Vec::new();
    for packet in packets {
        let family = if packet.source.is_ipv6() { 6 } else { 4 };
        for (ifindex, _) in (1..).zip(WORKLOADS) {
            let lists = lists.get(&ListsKey { ifindex, family }).copied().unwrap_or_default();
            for list in [lists.ingress, lists.egress] {
                all.push(if list == ListId::NONE {
                    Verdict::Deny
                } else {
                    evaluate(&tables, list, packet).verdict
                });
            }
        }
    }
    all
}

/// The interfaces of the state's workloads, numbered from 1.
fn holders(state: &State) -> Holders {
    let number = |name: &str| {
        let place = WORKLOADS.iter().position(|one| *one == name).expect("a workload's interface");
        u32::try_from(place + 1).expect("few interfaces")
    };
    let workloads = state.workloads.iter();
    workloads.map(|(id, one)| (number(&one.name), EndpointId::Workload(id.clone()))).collect()
}

/// A driver that has not written anything.
fn new_maps(state: &State) -> PolicyMaps {
    let mut maps = PolicyMaps::default();
    maps.set_holders(holders(state));
    maps
}

/// Writes the first state; returns the maps' contents and the driver.
fn begin(start: &State) -> (Contents, PolicyMaps, Policies) {
    let (mut maps, mut policies) = (new_maps(start), start.fresh());
    let mut store = Fake::new(Contents::new());
    let now = Instant::now();
    maps.apply(&mut store, &mut policies, now).expect("written");
    maps.apply(&mut store, &mut policies, now + Duration::from_secs(1)).expect("nothing to write");
    (store.maps, maps, policies)
}

/// Applies, checking after each element.
fn watched(
    contents: Contents,
    maps: &mut PolicyMaps,
    policies: &mut Policies,
    packets: &[Packet],
    rest: usize,
) -> Result<Contents, TestCaseError> {
    let mut seen: Vec<Vec<Verdict>> = vec![verdicts(&contents, packets)];
    let mut store = Fake::new(contents);
    store.rest = rest;
    store.look = Box::new(|contents| seen.push(verdicts(contents, packets)));
    let now = Instant::now();
    for seconds in [0, 1, 2] {
        let applied = maps.apply(&mut store, policies, now + Duration::from_secs(seconds));
        prop_assert!(applied.expect("applied").is_complete);
    }
    let contents = std::mem::take(&mut store.maps);
    drop(store);
    let (before, after) = (seen[0].clone(), verdicts(&contents, packets));
    for (step, now) in seen.iter().enumerate() {
        for (place, verdict) in now.iter().enumerate() {
            prop_assert!(
                *verdict == before[place] || *verdict == after[place],
                "step {} of {}: {:?}, before {:?}, after {:?}",
                step,
                seen.len(),
                verdict,
                before[place],
                after[place]
            );
        }
    }
    Ok(contents)
}

fn wanted(state: &State) -> Contents {
    begin(state).0
}

fn without_empty(mut contents: Contents) -> Contents {
    contents.retain(|_, map| !map.is_empty());
    contents
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    vec(prop_oneof![packet(IpVersion::V4), packet(IpVersion::V6)], 4)
}

fn change(state: &mut State, changes: &[(usize, Policy)]) -> Vec<ToDataplane> {
    let messages = changes.iter().map(|(number, policy)| {
        let (id, policy) = (policy_id(*number), Arc::new(policy.clone()));
        state.policies.insert(id.clone(), policy.clone());
        ToDataplane::PolicyUpdate(id, policy)
    });
    messages.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn changing_policies_apply_before_or_after_at_every_element(
        start in state(), changes in vec((0..POLICIES, policy()), 1..4), packets in packets(), rest in 0..STRIDE,
    ) {
        let (contents, mut maps, mut policies) = begin(&start);
        let mut state = start;
        change(&mut state, &changes).iter().for_each(|message| policies.update(message));
        let contents = watched(contents, &mut maps, &mut policies, &packets, rest)?;
        prop_assert_eq!(without_empty(contents), without_empty(wanted(&state)));
    }

    #[test]
    fn a_new_process_reuses_the_maps_and_changes_them_as_safely(
        start in state(), changes in vec((0..POLICIES, policy()), 0..4), packets in packets(), rest in 0..STRIDE,
    ) {
        let (contents, ..) = begin(&start);
        let mut state = start;
        change(&mut state, &changes);
        let mut policies = state.fresh();
        if changes.is_empty() {
            let mut store = Fake::new(contents.clone());
            new_maps(&state).apply(&mut store, &mut policies, Instant::now()).expect("applied");
            prop_assert_eq!(store.writes, 0, "the same state is there already");
        }
        let contents = watched(contents, &mut new_maps(&state), &mut policies, &packets, rest)?;
        prop_assert_eq!(without_empty(contents), without_empty(wanted(&state)));
    }

    /// Killed after any element: the next process continues from there.
    #[test]
    fn a_process_that_was_killed_leaves_nothing_behind(
        start in state(), changes in vec((0..POLICIES, policy()), 1..4), packets in packets(), after in 0_usize..60,
        rest in 0..STRIDE,
    ) {
        let (contents, mut maps, mut policies) = begin(&start);
        let mut state = start;
        change(&mut state, &changes).iter().for_each(|message| policies.update(message));
        let mut store = Fake::new(contents);
        store.fails_after = Some(after);
        let _ = maps.apply(&mut store, &mut policies, Instant::now());
        let contents = watched(store.maps, &mut new_maps(&state), &mut state.fresh(), &packets, rest)?;
        prop_assert_eq!(without_empty(contents), without_empty(wanted(&state)));
    }

    /// A policy that does not fit changes nothing, and the error names the map that is too small; when one fits again,
    /// it is written.
    #[test]
    fn a_policy_that_does_not_fit_leaves_the_previous_one(
        start in state(), changes in vec((0..POLICIES, policy()), 1..4),
    ) {
        let (contents, mut maps, mut policies) = begin(&start);
        let mut store = Fake::new(contents.clone());
        store.rooms.insert("bpfp_rule", contents["bpfp_rule"].len());
        let mut state = start.clone();
        change(&mut state, &changes).iter().for_each(|message| policies.update(message));
        if let Err(refused) = maps.apply(&mut store, &mut policies, Instant::now()) {
            let is_named = matches!(refused, Error::TooMany { map: "bpfp_rule", .. });
            prop_assert!(is_named, "{}", refused);
            prop_assert_eq!(store.writes, 0);
            for (number, _) in &changes {
                let id = policy_id(*number);
                policies.update(&match start.policies.get(&id) {
                    Some(policy) => ToDataplane::PolicyUpdate(id, policy.clone()),
                    None => ToDataplane::PolicyRemove(id),
                });
            }
            let applied = maps.apply(&mut store, &mut policies, Instant::now()).expect("it fits again");
            prop_assert!(applied.is_complete);
            prop_assert_eq!(store.writes, 0, "it is what is there");
        }
    }

    /// Interfaces appear, vanish and change hands while policy changes: each has the lists of its current holder.
    #[test]
    fn interfaces_have_the_lists_of_their_current_holder(
        start in state(),
        steps in vec((vec((1_u32..6, 0..WORKLOADS.len()), 0..4), vec((0..POLICIES, policy()), 0..2), 0..8_usize), 1..6),
    ) {
        let (contents, mut maps, mut policies) = begin(&start);
        let (mut state, mut store) = (start.clone(), Fake::new(contents));
        let ids: Vec<_> = start.workloads.keys().cloned().collect();
        for (held, changes, other) in steps {
            let id = |place: usize| ids.get(place).cloned().map(EndpointId::Workload);
            maps.set_holders(held.iter().filter_map(|(index, place)| Some((*index, id(*place)?))).collect());
            change(&mut state, &changes).iter().for_each(|message| policies.update(message));
            // A workload vanishes or returns.
            if let Some(id) = ids.get(other) {
                policies.update(&match state.workloads.remove(id) {
                    Some(_) => ToDataplane::WorkloadEndpointRemove(id.clone()),
                    None => {
                        let endpoint = start.workloads[id].clone();
                        state.workloads.insert(id.clone(), endpoint.clone());
                        ToDataplane::WorkloadEndpointUpdate(id.clone(), Box::new(endpoint))
                    }
                });
            }
            prop_assert!(maps.apply(&mut store, &mut policies, Instant::now()).expect("applied").is_complete);
            let mut expected: BTreeMap<ListsKey, Lists> = BTreeMap::new();
            let holders: Holders = held.iter().filter_map(|(index, place)| Some((*index, id(*place)?))).collect();
            for (ifindex, id) in holders {
                if let Some(found) = policies.tables().endpoints.get(&id) {
                    expected.insert(ListsKey { ifindex, family: 4 }, found.v4);
                    expected.insert(ListsKey { ifindex, family: 6 }, found.v6);
                }
            }
            let found: Table<ListsKey, Lists> = table(&store.maps, &["bpfp_lists"]);
            let found: BTreeMap<ListsKey, Lists> = found.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
