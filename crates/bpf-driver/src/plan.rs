//! The difference between the desired and the actual contents of a map. Pure.

use crate::store::Element;
use std::collections::{BTreeMap, HashMap};

/// The required changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Elements that are missing or have another value.
    pub(crate) writes: Vec<Element>,
    /// Keys that should not exist.
    pub(crate) removals: Vec<Vec<u8>>,
}

impl Plan {
    /// The changes from the actual to the desired elements.
    pub(crate) fn between(there: Vec<Element>, wanted: impl Iterator<Item = Element>) -> Self {
        let mut left: HashMap<Vec<u8>, Vec<u8>> = there.into_iter().collect();
        let writes = wanted.filter(|(key, value)| left.remove(key).as_ref() != Some(value)).collect();
        let mut removals: Vec<Vec<u8>> = left.into_keys().collect();
        removals.sort_unstable();
        Self { writes, removals }
    }

    /// The changes between two kept values.
    pub(crate) fn from_kept(there: &BTreeMap<Vec<u8>, Vec<u8>>, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) -> Self {
        let element = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let writes = wanted.iter().filter(|(key, value)| there.get(*key) != Some(value)).map(element);
        let removals = there.keys().filter(|key| !wanted.contains_key(*key)).cloned();
        Self { writes: writes.collect(), removals: removals.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn contents() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
        proptest::collection::btree_map(
            proptest::collection::vec(0_u8..4, 1..3),
            proptest::collection::vec(0_u8..3, 1),
            0..12,
        )
    }

    proptest! {
        #[test]
        fn a_plan_leads_to_the_desired_contents_and_touches_nothing_else(there in contents(), wanted in contents()) {
            let plan = Plan::between(there.clone().into_iter().collect(), wanted.clone().into_iter());
            prop_assert_eq!(&plan, &Plan::from_kept(&there, &wanted));
            let mut result = there.clone();
            for (key, value) in &plan.writes {
                prop_assert_ne!(there.get(key), Some(value), "it was there already");
                result.insert(key.clone(), value.clone());
            }
            for key in &plan.removals {
                prop_assert!(result.remove(key).is_some());
            }
            prop_assert_eq!(result, wanted);
        }
    }
}
