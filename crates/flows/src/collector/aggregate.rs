//! The flows of one interval: connections with the same key are merged into one.

use crate::key::FlowKey;
use crate::labels::Labels;
use crate::ring::Counters;
use crate::trace::{PolicyHit, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A flow of one node over one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedFlow {
    /// The flow's identity.
    pub key: FlowKey,
    /// When the interval began, in seconds since 1970.
    pub start: i64,
    /// When the interval ended.
    pub end: i64,
    /// The labels that all sources have in common.
    pub source_labels: Labels,
    /// The labels that all destinations have in common.
    pub dest_labels: Labels,
    /// Packets, bytes and connections of the interval.
    pub counters: Counters,
}

#[derive(Debug)]
struct Collected {
    source_labels: Labels,
    dest_labels: Labels,
    counters: Counters,
    pending: Vec<PolicyHit>,
}

/// The flows so far. Keys have no pending policies: the newest pending trace applies to the whole flow.
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

    /// Returns the flows of the interval that ends now and starts an empty one.
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
