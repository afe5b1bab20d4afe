//! Tables that were changed step by step equal those built from scratch for the same state, and the keys reported as
//! changed are those that differ.

use crate::state::{
    ADDRESS_SETS, HOSTS, POLICIES, PORT_SETS, PROFILES, State, WORKLOADS, host, member, members, policy,
    policy_id, profile, profile_id, set_type, state, workload, workload_id,
};
use bpf_policy::{Policies, Table, Tables};
use messages::{HostEndpoint, HostEndpointName, IpSetMember, Policy, Profile, ToDataplane, WorkloadEndpoint};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Change {
    Set(&'static str, BTreeSet<IpSetMember>),
    Member(&'static str, IpSetMember),
    SetGone(&'static str),
    Policy(usize, Option<Policy>),
    Profile(usize, Option<Profile>),
    Workload(&'static str, Option<Box<WorkloadEndpoint>>),
    Host(&'static str, Option<Box<HostEndpoint>>),
    Flush,
}

fn change() -> impl Strategy<Value = Change> {
    let set = || select([&ADDRESS_SETS[..], &PORT_SETS[..]].concat());
    let some = |chance| prop::bool::weighted(chance);
    prop_oneof![
        2 => set().prop_flat_map(|id| members(id).prop_map(move |members| Change::Set(id, members))),
        8 => set().prop_flat_map(|id| member(id).prop_map(move |member| Change::Member(id, member))),
        1 => set().prop_map(Change::SetGone),
        3 => (0..POLICIES, policy(), some(0.9))
            .prop_map(|(number, policy, some)| Change::Policy(number, some.then_some(policy))),
        1 => (0..PROFILES, profile(), some(0.9))
            .prop_map(|(number, profile, some)| Change::Profile(number, some.then_some(profile))),
        3 => select(WORKLOADS.to_vec()).prop_flat_map(move |name| (workload(name), some(0.7)).prop_map(
            move |(endpoint, some)| Change::Workload(name, some.then(|| Box::new(endpoint))))),
        2 => select(HOSTS.to_vec()).prop_flat_map(move |name| (host(name), some(0.7)).prop_map(
            move |(endpoint, some)| Change::Host(name, some.then(|| Box::new(endpoint))))),
        6 => Just(Change::Flush),
    ]
}

/// Applies a change to the state, and returns its message.
fn apply(state: &mut State, change: Change) -> Option<ToDataplane> {
    Some(match change {
        Change::Set(id, members) => {
            state.sets.insert(id.into(), members.clone());
            let members = members.into_iter().collect();
            ToDataplane::IpSetUpdate { id: id.into(), set_type: set_type(id), members }
        }
        Change::Member(id, member) => {
            let members = state.sets.entry(id.into()).or_default();
            let (mut added, mut removed) = (Vec::new(), Vec::new());
            if members.remove(&member) {
                removed.push(member);
            } else {
                members.insert(member);
                added.push(member);
            }
            ToDataplane::IpSetDelta { id: id.into(), added, removed }
        }
        Change::SetGone(id) => {
            state.sets.remove(id);
            ToDataplane::IpSetRemove(id.into())
        }
        Change::Policy(number, policy) => {
            let id = policy_id(number);
            match policy.map(Arc::new) {
                Some(policy) => {
                    state.policies.insert(id.clone(), policy.clone());
                    ToDataplane::PolicyUpdate(id, policy)
                }
                None => {
                    state.policies.remove(&id);
                    ToDataplane::PolicyRemove(id)
                }
            }
        }
        Change::Profile(number, profile) => {
            let id = profile_id(number);
            match profile.map(Arc::new) {
                Some(profile) => {
                    state.profiles.insert(id.clone(), profile.clone());
                    ToDataplane::ProfileUpdate(id, profile)
                }
                None => {
                    state.profiles.remove(&id);
                    ToDataplane::ProfileRemove(id)
                }
            }
        }
        Change::Workload(name, endpoint) => {
            let id = workload_id(name);
            match endpoint {
                Some(endpoint) => {
                    state.workloads.insert(id.clone(), (*endpoint).clone());
                    ToDataplane::WorkloadEndpointUpdate(id, endpoint)
                }
                None => {
                    state.workloads.remove(&id);
                    ToDataplane::WorkloadEndpointRemove(id)
                }
            }
        }
        Change::Host(name, endpoint) => {
            let id = HostEndpointName::from(name);
            match endpoint {
                Some(endpoint) => {
                    state.hosts.insert(id.clone(), (*endpoint).clone());
                    ToDataplane::HostEndpointUpdate(id, endpoint)
                }
                None => {
                    state.hosts.remove(&id);
                    ToDataplane::HostEndpointRemove(id)
                }
            }
        }
        Change::Flush => return None,
    })
}

/// A map that is maintained from changed keys alone.
struct Kept<K, V>(BTreeMap<K, V>);

impl<K: Ord + Clone + Debug, V: Clone + PartialEq + Debug> Kept<K, V> {
    fn follow(&mut self, table: &mut Table<K, V>) -> Result<(), TestCaseError> {
        for key in table.take_changed() {
            match table.get(&key) {
                Some(value) => _ = self.0.insert(key, value.clone()),
                None => _ = self.0.remove(&key),
            }
        }
        prop_assert!(self.0.iter().eq(table.iter()));
        Ok(())
    }
}

fn equal(changed: &Policies, fresh: &Policies) -> Result<(), TestCaseError> {
    let (one, other): (&Tables, &Tables) = (changed.tables(), fresh.tables());
    prop_assert_eq!(&one.endpoints, &other.endpoints);
    prop_assert_eq!(&one.addresses, &other.addresses);
    prop_assert_eq!(&one.nets, &other.nets);
    prop_assert_eq!(&one.pairs, &other.pairs);
    prop_assert_eq!(&one.ports, &other.ports);
    prop_assert_eq!(&one.segments, &other.segments);
    prop_assert_eq!(&one.rules, &other.rules);
    prop_assert_eq!(&one.rows, &other.rows);
    prop_assert_eq!(changed.classes(), fresh.classes());
    prop_assert_eq!(changed.lists(), fresh.lists());
    prop_assert_eq!(changed.conditions(), fresh.conditions());
    prop_assert_eq!(changed.has_logs(), fresh.has_logs());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn step_by_step_equals_from_scratch(start in state(), changes in vec(change(), 1..40)) {
        let mut state = start;
        let mut policies = state.fresh();
        let (mut rows, mut addresses, mut endpoints) =
            (Kept(BTreeMap::new()), Kept(BTreeMap::new()), Kept(BTreeMap::new()));
        for change in changes.into_iter().chain([Change::Flush]) {
            match apply(&mut state, change) {
                Some(message) => policies.update(&message),
                None => {
                    policies.flush();
                    let tables = policies.tables_mut();
                    rows.follow(&mut tables.rows)?;
                    addresses.follow(&mut tables.addresses)?;
                    endpoints.follow(&mut tables.endpoints)?;
                    equal(&policies, &state.fresh())?;
                }
            }
        }
        // Removing everything leaves nothing behind.
        let everything = state.messages();
        for message in everything.into_iter().rev() {
            policies.update(&match message {
                ToDataplane::IpSetUpdate { id, .. } => ToDataplane::IpSetRemove(id),
                ToDataplane::PolicyUpdate(id, _) => ToDataplane::PolicyRemove(id),
                ToDataplane::ProfileUpdate(id, _) => ToDataplane::ProfileRemove(id),
                ToDataplane::WorkloadEndpointUpdate(id, _) => ToDataplane::WorkloadEndpointRemove(id),
                ToDataplane::HostEndpointUpdate(id, _) => ToDataplane::HostEndpointRemove(id),
                other => other,
            });
        }
        policies.flush();
        equal(&policies, &Policies::default())?;
    }
}
