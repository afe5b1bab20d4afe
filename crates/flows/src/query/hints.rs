//! The values of a field in the flows of a range, offered as values for a filter.

use super::list::Wanted;
use super::{Filter, Page, Paged, Sort, TimeRange};
use crate::key::{FlowKey, Text};
use crate::ring::Snapshot;
use crate::trace::{Decider, PolicyHit, PolicyKind};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The field whose values are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintType {
    /// Names of destinations.
    DestName,
    /// Names of sources.
    SourceName,
    /// Namespaces of destinations.
    DestNamespace,
    /// Namespaces of sources.
    SourceNamespace,
    /// Tiers of policies.
    PolicyTier,
    /// Names of policies.
    PolicyName,
    /// Kinds of policies.
    PolicyKind,
    /// Namespaces of policies.
    PolicyNamespace,
}

/// A request for the values of a field.
#[derive(Clone, Debug)]
pub struct HintsRequest {
    /// The field.
    pub of: HintType,
    /// The buckets that begin in this range are searched.
    pub range: TimeRange,
    /// The flows to search.
    pub filter: Filter,
    /// The page of the results.
    pub page: Page,
}

/// The values, sorted and without duplicates. Profiles contribute none; the end of a tier contributes those of the
/// policy that caused it.
#[must_use]
pub fn hints(snapshot: &Snapshot, request: &HintsRequest) -> Paged<Text> {
    let wanted = Wanted::new(snapshot, &request.filter);
    let mut seen = vec![false; snapshot.keys().slots()];
    for part in snapshot.parts(snapshot.beginning_in(request.range.gte, request.range.lt)) {
        part.each_slot(|slot| seen[slot as usize] = true);
    }
    let mut values: BTreeSet<Text> = BTreeSet::new();
    let slots = (0..).zip(seen).filter(|(_, seen)| *seen);
    for (slot, _) in slots.filter(|(slot, _)| wanted.passes(*slot)) {
        if let Some(entry) = snapshot.keys().get(slot) {
            collect(request.of, entry.key(), &mut |value| {
                if !values.contains(value) {
                    values.insert(Arc::from(value));
                }
            });
        }
    }
    request.page.take(values.into_iter().collect())
}

fn collect(of: HintType, key: &FlowKey, take: &mut dyn FnMut(&str)) {
    let hits = || key.trace.enforced.iter().chain(&key.trace.pending);
    let mut each = |value: &dyn Fn(&PolicyHit) -> &str| {
        hits().filter(|hit| hit.kind() != PolicyKind::Profile).for_each(|hit| take(value(hit)));
    };
    match of {
        HintType::DestName => take(Sort::DestName.value(key)),
        HintType::SourceName => take(Sort::SourceName.value(key)),
        HintType::DestNamespace => take(Sort::DestNamespace.value(key)),
        HintType::SourceNamespace => take(Sort::SourceNamespace.value(key)),
        HintType::PolicyTier => each(&|hit| match &hit.by {
            Decider::Rule { policy, .. } | Decider::EndOfTier { trigger: Some(policy), .. } => &policy.tier,
            Decider::EndOfTier { tier, .. } => tier,
        }),
        HintType::PolicyName => each(&|hit| hit.policy().map_or("", |policy| &policy.name)),
        HintType::PolicyKind => {
            each(&|hit| hit.policy().map_or_else(|| hit.kind().as_str(), |policy| policy.kind.as_str()));
        }
        HintType::PolicyNamespace => each(&|hit| hit.policy().map_or("", |policy| &policy.namespace)),
    }
}
