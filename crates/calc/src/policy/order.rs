//! The order in which policies are evaluated: tiers by their order, and in each tier the active policies by theirs.
//!
//! Existing tiers come first, then lower orders (none comes last), then names. Policies are sorted by order (none comes
//! last), then by name, namespace and kind.

use super::table::{PolicyRef, PolicyTable};
use crate::symbols::Symbol;
use messages::{PolicyId, TierName};
use model::feed::{RuleAction, Tier};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A policy at its place in a tier.
#[derive(Clone, Debug)]
struct Placed {
    order: f64,
    id: PolicyId,
    policy: PolicyRef,
}

impl Placed {
    /// Name, namespace and kind, separated by slashes and compared as one text.
    fn text(&self) -> impl Iterator<Item = u8> {
        let id = &*self.id;
        id.name.bytes().chain(*b"/").chain(id.namespace.bytes()).chain(*b"/").chain(id.kind.as_str().bytes())
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.total_cmp(&other.order).then_with(|| self.text().cmp(other.text()))
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Placed {}

#[derive(Debug, Default)]
struct TierRow {
    /// The tier in the feed; `None` if it does not exist.
    tier: Option<Tier>,
    policies: BTreeSet<Placed>,
}

/// A tier that has active policies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankedTier {
    pub(crate) name: TierName,
    pub(crate) default_action: RuleAction,
    /// The rank after that of its last policy.
    pub(crate) end: u32,
}

/// Tiers and active policies in order.
#[derive(Debug, Default)]
pub(crate) struct PolicyOrder {
    tiers: BTreeMap<TierName, TierRow>,
    /// The active policies by rank.
    ranked: Vec<PolicyRef>,
    ranked_tiers: Vec<RankedTier>,
    stale: bool,
}

impl PolicyOrder {
    /// The number of tiers that exist.
    pub(crate) fn tier_count(&self) -> usize {
        self.tiers.values().filter(|row| row.tier.is_some()).count()
    }

    /// Adds, changes or removes a tier. Returns whether that concerns active policies.
    pub(crate) fn set_tier(&mut self, name: &TierName, tier: Option<Tier>) -> bool {
        if tier.is_none() && !self.tiers.contains_key(name) {
            return false;
        }
        let row = self.tiers.entry(name.clone()).or_default();
        if row.tier == tier {
            return false;
        }
        row.tier = tier;
        let concerns = !row.policies.is_empty();
        if !concerns && row.tier.is_none() {
            self.tiers.remove(name);
        }
        self.stale |= concerns;
        concerns
    }

    /// Adds an active policy.
    pub(crate) fn insert(&mut self, tier: &TierName, order: f64, id: &PolicyId, policy: PolicyRef) {
        let row = self.tiers.entry(tier.clone()).or_default();
        row.policies.insert(Placed { order, id: id.clone(), policy });
        self.stale = true;
    }

    /// Removes a policy that is no longer active, or no longer has this order in this tier.
    pub(crate) fn remove(&mut self, tier: &TierName, order: f64, id: &PolicyId, policy: PolicyRef) {
        let Some(row) = self.tiers.get_mut(tier) else { return };
        row.policies.remove(&Placed { order, id: id.clone(), policy });
        if row.policies.is_empty() && row.tier.is_none() {
            self.tiers.remove(tier);
        }
        self.stale = true;
    }

    /// Numbers the policies again, if anything changed.
    pub(crate) fn rank(&mut self, table: &mut PolicyTable) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut tiers: Vec<(&TierName, &TierRow)> =
            self.tiers.iter().filter(|(_, row)| !row.policies.is_empty()).collect();
        tiers.sort_by(|a, b| compare_tiers(*a, *b));
        self.ranked.clear();
        self.ranked_tiers.clear();
        for (name, row) in tiers {
            for placed in &row.policies {
                if let Some(active) = table.get_mut(placed.policy).and_then(|row| row.active.as_mut()) {
                    active.rank = u32::try_from(self.ranked.len()).expect("fewer than four billion policies");
                }
                self.ranked.push(placed.policy);
            }
            self.ranked_tiers.push(RankedTier {
                name: name.clone(),
                // A tier that does not exist has no action; then whatever no rule matches is denied.
                default_action: row.tier.as_ref().map_or(RuleAction::Deny, |tier| tier.default_action),
                end: u32::try_from(self.ranked.len()).expect("fewer than four billion policies"),
            });
        }
    }

    /// The tiers that have active policies, in order.
    pub(crate) fn tiers(&self) -> &[RankedTier] {
        &self.ranked_tiers
    }

    /// The policy with this rank.
    pub(crate) fn policy(&self, rank: u32) -> Option<PolicyRef> {
        self.ranked.get(rank as usize).copied()
    }
}

fn compare_tiers((name_a, a): (&TierName, &TierRow), (name_b, b): (&TierName, &TierRow)) -> Ordering {
    let order = |row: &TierRow| row.tier.as_ref().and_then(|tier| tier.order).map(|order| order + 0.0);
    let by_order = match (order(a), order(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    };
    a.tier.is_none().cmp(&b.tier.is_none()).then(by_order).then_with(|| name_a.cmp(name_b))
}

/// The name of a tier in the table of policies.
pub(crate) fn tier_name(table: &PolicyTable, tier: Symbol) -> TierName {
    table.tiers.get(tier).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::PolicyOrder;
    use crate::policy::selectors::SelectorRef;
    use crate::policy::table::{ActivePolicy, PolicyTable};
    use api::Kind;
    use messages::PolicyId;
    use model::feed::{Policy, RuleAction, Tier};
    use model::v1::PolicyKey;
    use std::sync::Arc;

    fn insert(
        order: &mut PolicyOrder,
        table: &mut PolicyTable,
        tier: &str,
        place: Option<f64>,
        namespace: &str,
    ) {
        let key = PolicyKey { kind: Kind::NetworkPolicy, namespace: namespace.into(), name: "p".into() };
        let policy = Policy { tier: tier.into(), order: place, ..Policy::default() };
        let mut row = table.row(&key, &policy, SelectorRef(0));
        let id: PolicyId = Arc::new(key);
        row.active = Some(Box::new(ActivePolicy { id: id.clone(), sets: Box::new([]), rank: 0 }));
        let place = row.order;
        let policy = table.insert(row);
        order.insert(&tier.into(), place, &id, policy);
    }

    fn ranked(order: &PolicyOrder, table: &PolicyTable) -> String {
        let mut texts = Vec::new();
        let mut rank = 0;
        for tier in order.tiers() {
            let mut names = Vec::new();
            while rank < tier.end {
                let row = order.policy(rank).and_then(|policy| table.get(policy)).unwrap();
                assert_eq!(row.active.as_ref().unwrap().rank, rank);
                names.push(row.key().namespace);
                rank += 1;
            }
            texts.push(format!("{}({}): {}", tier.name, tier.default_action.as_str(), names.join(" ")));
        }
        texts.join(", ")
    }

    #[test]
    fn tiers_and_policies_are_ordered() {
        let (mut order, mut table) = (PolicyOrder::default(), PolicyTable::default());
        insert(&mut order, &mut table, "b", None, "last");
        insert(&mut order, &mut table, "b", Some(1.0), "n2");
        insert(&mut order, &mut table, "b", Some(1.0), "n1");
        insert(&mut order, &mut table, "b", Some(-5.0), "first");
        insert(&mut order, &mut table, "a", Some(0.0), "x");
        order.rank(&mut table);
        assert_eq!(ranked(&order, &table), "a(deny): x, b(deny): first n1 n2 last", "neither tier is there");
        assert!(order.set_tier(&"b".into(), Some(Tier { order: None, default_action: RuleAction::Pass })));
        order.rank(&mut table);
        assert_eq!(ranked(&order, &table), "b(next-tier): first n1 n2 last, a(deny): x");
        assert!(
            order.set_tier(&"a".into(), Some(Tier { order: Some(9.0), default_action: RuleAction::Deny }))
        );
        assert!(!order.set_tier(&"c".into(), Some(Tier::default())), "no policies there");
        order.rank(&mut table);
        assert_eq!(ranked(&order, &table), "a(deny): x, b(next-tier): first n1 n2 last");
        assert_eq!(order.tier_count(), 3);
        assert!(!order.set_tier(&"c".into(), None) && order.set_tier(&"a".into(), None));
        assert_eq!(order.tier_count(), 1);
    }
}
