//! Transitions between states: at every step, old lists decide as before, and new ones as they will.

use crate::state::{POLICIES, packet, policy, policy_id, state};
use bpf_policy::layout::ListId;
use bpf_policy::{Packet, Table, Tables, bridge, evaluate};
use messages::ToDataplane;
use model::IpVersion;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    vec(prop_oneof![packet(IpVersion::V4), packet(IpVersion::V6)], 24)
}

fn add<K: Ord + Clone, V: Clone + PartialEq>(to: &mut Table<K, V>, from: &Table<K, V>) {
    from.iter().for_each(|(key, value)| to.set(key.clone(), value.clone()));
}

/// Everything that does not change when an address gets another class.
fn add_lists(to: &mut Tables, from: &Tables) {
    add(&mut to.segments, &from.segments);
    add(&mut to.rules, &from.rules);
    add(&mut to.ports, &from.ports);
    add(&mut to.rows, &from.rows);
}

fn add_classes(to: &mut Tables, from: &Tables) {
    add(&mut to.addresses, &from.addresses);
    add(&mut to.nets, &from.nets);
    add(&mut to.pairs, &from.pairs);
}

fn lists(tables: &Tables) -> BTreeSet<ListId> {
    tables.segments.iter().map(|(key, _)| key.list).collect()
}

fn agree(one: &Tables, other: &Tables, list: ListId, packets: &[Packet]) -> Result<(), TestCaseError> {
    for packet in packets {
        prop_assert_eq!(evaluate(one, list, packet), evaluate(other, list, packet), "{:?}", packet);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The old maps with the bridge's classes, before and after interfaces get their new lists.
    #[test]
    fn with_a_bridge_both_states_hold(from in state(), to in state(), packets in packets()) {
        let (from, to) = (from.fresh(), to.fresh());
        let (old, new) = (from.tables(), to.tables());
        let between = bridge(old, new);
        let mut maps = old.clone();
        add_lists(&mut maps, new);
        add_lists(&mut maps, &between);
        let (before, after) = (lists(old), lists(new));
        add_classes(&mut maps, &between);
        for list in before.difference(&after) {
            agree(&maps, old, *list, &packets)?;
        }
        for list in &after {
            agree(&maps, new, *list, &packets)?;
        }
    }

    /// Half of the bridge's classes are written: unused new lists do not matter, the old ones do.
    #[test]
    fn with_half_a_bridge_the_old_state_holds(from in state(), to in state(), packets in packets(), odd: bool) {
        let (from, to) = (from.fresh(), to.fresh());
        let (old, new) = (from.tables(), to.tables());
        let between = bridge(old, new);
        let mut maps = old.clone();
        add_lists(&mut maps, new);
        add_lists(&mut maps, &between);
        for (place, (address, class)) in between.addresses.iter().enumerate() {
            if (place % 2 == 0) == odd {
                maps.addresses.set(*address, *class);
            }
        }
        for (place, (net, class)) in between.nets.iter().enumerate() {
            if (place % 2 == 1) == odd {
                maps.nets.set(*net, *class);
            }
        }
        let after = lists(new);
        for list in lists(old).difference(&after) {
            agree(&maps, old, *list, &packets)?;
        }
    }

    /// A policy changes: until interfaces have their new lists, the old ones decide the same with the new classes.
    #[test]
    fn grown_tables_keep_the_old_lists(
        start in state(), number in 0..POLICIES, changed in policy(), packets in packets(),
    ) {
        let mut policies = start.fresh();
        let old = policies.tables().clone();
        policies.update(&ToDataplane::PolicyUpdate(policy_id(number), Arc::new(changed)));
        policies.grow();
        for list in lists(&old) {
            agree(policies.tables(), &old, list, &packets)?;
        }
        let grown = policies.tables().clone();
        policies.shrink();
        let new = policies.tables();
        for list in lists(new) {
            agree(&grown, new, list, &packets)?;
        }
    }
}
