//! Combines flows of short intervals into those of a longer one.

use flows::collector::CollectedFlow;
use flows::{FlowKey, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The flows so far.
#[derive(Debug)]
pub(super) struct Interval {
    start: i64,
    flows: BTreeMap<FlowKey, CollectedFlow>,
}

impl Interval {
    pub(super) fn new(start: i64) -> Self {
        Self { start, flows: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, flows: Vec<CollectedFlow>) {
        for flow in flows {
            match self.flows.get_mut(&without_pending(&flow.key)) {
                Some(known) => {
                    known.source_labels = known.source_labels.intersection(&flow.source_labels);
                    known.dest_labels = known.dest_labels.intersection(&flow.dest_labels);
                    // Connections that existed before are already counted: only those that began since are added.
                    let live = known.counters.live.saturating_add(flow.counters.started);
                    known.counters.add(&flow.counters);
                    known.counters.live = live;
                    // The newest pending policies apply.
                    known.key = flow.key;
                }
                None => drop(self.flows.insert(without_pending(&flow.key), flow)),
            }
        }
    }

    /// Returns the flows of the interval that ends now; the next one starts empty.
    pub(super) fn take(&mut self, now: i64) -> Vec<CollectedFlow> {
        let start = std::mem::replace(&mut self.start, now);
        let flows = std::mem::take(&mut self.flows).into_values();
        flows.map(|flow| CollectedFlow { start, end: now, ..flow }).collect()
    }
}

fn without_pending(key: &FlowKey) -> FlowKey {
    if key.trace.pending.is_empty() {
        return key.clone();
    }
    let trace = Trace { enforced: key.trace.enforced.clone(), pending: Vec::new() };
    FlowKey { trace: Arc::new(trace), ..key.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flows::{Counters, Labels};

    #[test]
    fn seconds_are_combined_into_an_interval() {
        let flow = |start, port, pending: &[&str], labels: &[&str], counters| CollectedFlow {
            key: FlowKey {
                dest_port: port,
                trace: Arc::new(Trace {
                    enforced: vec![],
                    pending: pending.iter().map(|text| text.parse().unwrap()).collect(),
                }),
                ..FlowKey::default()
            },
            start,
            end: start + 1,
            source_labels: labels.iter().collect::<Labels>(),
            dest_labels: Labels::default(),
            counters,
        };
        let one = Counters { packets_in: 5, bytes_in: 50, started: 2, live: 2, ..Counters::default() };
        let two = Counters {
            packets_in: 1,
            bytes_in: 10,
            started: 1,
            completed: 1,
            live: 3,
            ..Counters::default()
        };
        let mut interval = Interval::new(10);
        let tried = "0|default|sgnp:tried|deny|0";
        interval.add(vec![flow(10, 80, &[], &["a=1", "b=1"], one)]);
        interval.add(vec![flow(11, 80, &[tried], &["a=1"], two), flow(11, 81, &[], &[], one)]);
        let flows = interval.take(25);
        assert_eq!(flows.len(), 2);
        let sum = Counters {
            packets_in: 6,
            bytes_in: 60,
            started: 3,
            completed: 1,
            live: 3,
            ..Counters::default()
        };
        assert_eq!(flows[0], CollectedFlow { start: 10, end: 25, ..flow(0, 80, &[tried], &["a=1"], sum) });
        assert_eq!(flows[1].counters, one);
        assert!(interval.take(40).is_empty());
    }
}
