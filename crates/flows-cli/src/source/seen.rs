//! What a stream has delivered: after a reconnect it repeats some flows, and late flows correct earlier ones.

use crate::flow::Flow;
use flows::{Counters, FlowKey};
use std::collections::BTreeMap;

/// How long a flow may be repeated, in seconds.
const MEMORY: i64 = 600;

/// The flows of the last minutes.
#[derive(Debug, Default)]
pub struct Seen {
    flows: BTreeMap<(i64, FlowKey), Counters>,
    newest: i64,
}

/// How a flow relates to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The first of its kind.
    New,
    /// A known flow with other counters.
    Correction,
    /// A known, unchanged flow.
    Nothing,
}

impl Seen {
    /// Records a flow.
    pub fn note(&mut self, flow: &Flow) -> News {
        if flow.start > self.newest {
            self.newest = flow.start;
            self.flows = self.flows.split_off(&(self.newest.saturating_sub(MEMORY), FlowKey::default()));
        }
        match self.flows.insert((flow.start, flow.key.clone()), flow.counters) {
            None => News::New,
            Some(known) if known == flow.counters => News::Nothing,
            Some(_) => News::Correction,
        }
    }

    /// The start of the newest flow; `None` before the first.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        (!self.flows.is_empty()).then_some(self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_corrected_flows() {
        let flow = |start, packets_in| Flow {
            key: FlowKey::default(),
            start,
            end: start + 15,
            source_labels: flows::Labels::default(),
            dest_labels: flows::Labels::default(),
            counters: Counters { packets_in, ..Counters::default() },
        };
        let mut seen = Seen::default();
        assert_eq!(seen.newest(), None);
        assert_eq!(seen.note(&flow(1000, 1)), News::New);
        assert_eq!(seen.note(&flow(1015, 1)), News::New);
        assert_eq!(seen.note(&flow(1000, 1)), News::Nothing);
        assert_eq!(seen.note(&flow(1000, 2)), News::Correction);
        assert_eq!(seen.note(&flow(1000, 2)), News::Nothing);
        assert_eq!(seen.newest(), Some(1015));
        assert_eq!(seen.note(&flow(5000, 2)), News::New);
        assert_eq!(seen.flows.len(), 1, "memory is bounded");
    }
}
