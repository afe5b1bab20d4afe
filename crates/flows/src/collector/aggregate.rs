//! The flows of one interval: connections with the same key become one.

use crate::key::FlowKey;
use crate::labels::Labels;
use crate::ring::Counters;
use crate::trace::{PolicyHit, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A flow of one node over one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedFlow {
    /// What identifies it.
    pub key: FlowKey,
    /// When the interval began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// The labels that all sources had.
    pub source_labels: Labels,
    /// The labels that all destinations had.
    pub dest_labels: Labels,
    /// The figures.
    pub counters: Counters,
}

#[derive(Debug)]
struct Collected {
    source_labels: Labels,
    dest_labels: Labels,
    counters: Counters,
    pending: Vec<PolicyHit>,
}

/// The flows so far. The key has no pending policies: the newest ones count for all.
#[derive(Debug, Default)]
pub(crate) struct Aggregate(BTreeMap<FlowKey, Collected>);

impl Aggregate {
    pub(crate) fn add(
        &mut self,
        key: &FlowKey,
        labels: (&Labels, &Labels),
        counters: &Counters,
        pending: &[PolicyHit],
    ) {
        match self.0.get_mut(key) {
            Some(known) => {
                known.source_labels = known.source_labels.intersection(labels.0);
                known.dest_labels = known.dest_labels.intersection(labels.1);
                known.counters.add(counters);
                if known.pending != pending {
                    known.pending = pending.to_vec();
                }
            }
            None => {
                let collected = Collected {
                    source_labels: labels.0.clone(),
                    dest_labels: labels.1.clone(),
                    counters: *counters,
                    pending: pending.to_vec(),
                };
                self.0.insert(key.clone(), collected);
            }
        }
    }

    /// The flows of the interval that ends now; the next one begins empty.
    pub(crate) fn take(&mut self, start: i64, end: i64) -> Vec<CollectedFlow> {
        let flow = |(key, collected): (FlowKey, Collected)| CollectedFlow {
            key: match collected.pending.is_empty() {
                true => key,
                false => {
                    let trace = Trace { enforced: key.trace.enforced.clone(), pending: collected.pending };
                    FlowKey { trace: Arc::new(trace), ..key }
                }
            },
            start,
            end,
            source_labels: collected.source_labels,
            dest_labels: collected.dest_labels,
            counters: collected.counters,
        };
        std::mem::take(&mut self.0).into_iter().map(flow).collect()
    }
}
