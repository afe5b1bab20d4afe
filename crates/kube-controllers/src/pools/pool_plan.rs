//! The condition and the finalizer of each pool: a function of all pools at once.

use super::objects::Wanted;
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The condition that shows whether addresses can be assigned from the pool.
pub(crate) const ALLOCATABLE: &str = "Allocatable";

/// The relevant parts of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolFacts {
    /// Its range; `None` if it cannot be parsed.
    pub cidr: Option<IpNet>,
    /// Whether an administrator disabled it.
    pub disabled: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// When it was created, in Kubernetes' format, which sorts by time.
    pub created: String,
    /// The value of its condition; `None` if it has not been written yet.
    pub allocatable: Option<bool>,
    /// Whether it has our finalizer.
    pub has_finalizer: bool,
}

/// The decision about a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Its condition.
    pub condition: Wanted,
    /// Its finalizer.
    pub finalizer: Finalizer,
}

/// What to do with a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// Leave it as it is.
    Keep,
    /// Add it.
    Add,
    /// Remove it at once.
    Remove,
    /// Release all claims on blocks of this range, and remove it when the last block is gone.
    RemoveWithLastBlock(IpNet),
}

/// Decides about all pools. Of several overlapping pools, an open one stays open; if none is open, the oldest wins. A
/// pool that is being deleted keeps its range until it is gone.
#[must_use]
pub(crate) fn decide(pools: &BTreeMap<String, PoolFacts>) -> BTreeMap<String, Decision> {
    let mut order: Vec<(&String, &PoolFacts)> = pools.iter().collect();
    order.sort_by(|(name, pool), (other_name, other)| {
        (rank(pool), &pool.created, name).cmp(&(rank(other), &other.created, other_name))
    });
    let mut taken: Vec<IpNet> = Vec::new();
    let mut decisions = BTreeMap::new();
    for (name, pool) in order {
        let Some(cidr) = pool.cidr else {
            tracing::warn!(pool = name, "the range of this pool cannot be read");
            continue;
        };
        let (status, reason, message) = if pool.disabled {
            (false, "PoolDisabled", "IPPool.Spec.Disabled is true")
        } else if pool.is_deleting {
            taken.push(cidr);
            (false, "Terminating", "IPPool is being deleted")
        } else if taken.iter().any(|other| other.contains(&cidr) || cidr.contains(other)) {
            (false, "CIDROverlap", "CIDR overlaps another pool; disabled to prevent IP allocation conflicts.")
        } else {
            taken.push(cidr);
            (true, "OK", "IPPool is available for IP allocation.")
        };
        let finalizer = match (pool.is_deleting, pool.has_finalizer, status) {
            (true, true, _) => Finalizer::RemoveWithLastBlock(cidr),
            // Blocks in this range belong to the open pool, so they must not delay this one.
            (false, true, false) => Finalizer::Remove,
            (false, false, true) => Finalizer::Add,
            _ => Finalizer::Keep,
        };
        let condition = Wanted { kind: ALLOCATABLE, status, reason, message: message.to_owned() };
        decisions.insert(name.clone(), Decision { condition, finalizer });
    }
    decisions
}

/// The order of precedence: open pools, pools being deleted, closed pools, new pools.
fn rank(pool: &PoolFacts) -> u8 {
    match (pool.is_deleting, pool.allocatable) {
        (false, Some(true)) => 0,
        (true, _) => 1,
        (false, Some(false)) => 2,
        (false, None) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(cidr: &str, created: &str, allocatable: Option<bool>) -> PoolFacts {
        PoolFacts {
            cidr: cidr.parse().ok(),
            disabled: false,
            is_deleting: false,
            created: created.to_owned(),
            allocatable,
            has_finalizer: allocatable == Some(true),
        }
    }

    fn check(pools: &[(&str, PoolFacts)], expected: &[(&str, &str, Finalizer)]) {
        let pools = pools.iter().map(|(name, pool)| ((*name).to_owned(), pool.clone())).collect();
        let decisions = decide(&pools);
        let found: Vec<(&str, &str, Finalizer)> = decisions
            .iter()
            .map(|(name, decision)| (name.as_str(), decision.condition.reason, decision.finalizer))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn of_overlapping_pools_one_is_open() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        // None was open: the older one wins, regardless of the names.
        check(
            &[("a", pool("10.0.0.0/16", new, None)), ("b", pool("10.0.1.0/24", old, None))],
            &[("a", "CIDROverlap", Finalizer::Keep), ("b", "OK", Finalizer::Add)],
        );
        // One was open: it stays open.
        check(
            &[("a", pool("10.0.0.0/16", new, Some(true))), ("b", pool("10.0.1.0/24", old, Some(false)))],
            &[("a", "OK", Finalizer::Keep), ("b", "CIDROverlap", Finalizer::Keep)],
        );
        check(
            &[("a", pool("10.0.0.0/16", old, None)), ("b", pool("fd00::/64", old, None))],
            &[("a", "OK", Finalizer::Add), ("b", "OK", Finalizer::Add)],
        );
    }

    #[test]
    fn disabled_pools_do_not_block_others_but_pools_being_deleted_do() {
        let old = "2026-01-01T00:00:00Z";
        let disabled = PoolFacts { disabled: true, ..pool("10.0.0.0/16", old, Some(true)) };
        check(
            &[("a", disabled), ("b", pool("10.0.1.0/24", old, Some(false)))],
            &[("a", "PoolDisabled", Finalizer::Remove), ("b", "OK", Finalizer::Add)],
        );
        let leaving = PoolFacts { is_deleting: true, ..pool("10.0.0.0/16", old, Some(true)) };
        let range = "10.0.0.0/16".parse().expect("a range");
        check(
            &[("a", leaving), ("b", pool("10.0.1.0/24", old, Some(false)))],
            &[
                ("a", "Terminating", Finalizer::RemoveWithLastBlock(range)),
                ("b", "CIDROverlap", Finalizer::Keep),
            ],
        );
    }

    #[test]
    fn unreadable_pools_are_left_alone() {
        check(&[("a", pool("ten", "", None))], &[]);
    }
}
