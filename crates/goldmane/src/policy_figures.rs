//! Figures of what each policy allowed, denied and passed: opt-in, and bounded in the number of series.
//!
//! Calico's Goldmane has no such figures. They count enforced decisions; staged policies are in `Statistics`. A policy
//! for which there is no room is not shown, and its flows are counted as such: a series is never replaced by another,
//! because counters that come and go are worse than missing counters.

use flows::ring::KnownKey;
use flows::{Action, Counters, Direction, FlowKey, PolicyName};
use hashbrown::HashMap;
use telemetry::{Figure, FigureKind};

type Name = (PolicyName, Action, Direction);

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    packets: u64,
    bytes: u64,
    connections: u64,
}

/// The series.
#[derive(Debug, Default)]
pub(crate) struct PolicyTotals {
    most: usize,
    numbers: HashMap<Name, u32>,
    totals: Vec<Total>,
    /// The series of each key, by its slot; the key's number shows whether the slot still belongs to it.
    by_slot: Vec<(u64, Box<[u32]>)>,
    without: u64,
}

impl PolicyTotals {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Counts a flow for the policies that decided about it.
    pub(crate) fn count(&mut self, known: KnownKey, key: &FlowKey, counters: &Counters) {
        let slot = known.slot() as usize;
        if self.by_slot.get(slot).is_none_or(|(id, _)| *id != known.id()) {
            let series = self.series(key);
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, Default::default());
            }
            self.by_slot[slot] = (known.id(), series);
        }
        let series = &self.by_slot[slot].1;
        self.without += u64::from(series.len() < key.trace.enforced.len());
        for number in series {
            let total = &mut self.totals[*number as usize];
            total.packets += counters.packets_in + counters.packets_out;
            total.bytes += counters.bytes_in + counters.bytes_out;
            total.connections += counters.started;
        }
    }

    fn series(&mut self, key: &FlowKey) -> Box<[u32]> {
        let direction = key.reporter.direction();
        let mut found = Vec::new();
        for hit in &key.trace.enforced {
            let Some(policy) = hit.policy() else { continue };
            let name = (policy.clone(), hit.action, direction);
            let number = match self.numbers.get(&name) {
                Some(number) => *number,
                None if self.totals.len() >= self.most => continue,
                None => {
                    let number = u32::try_from(self.totals.len()).unwrap_or(u32::MAX);
                    self.totals.push(Total::default());
                    self.numbers.insert(name, number);
                    number
                }
            };
            found.push(number);
        }
        found.into()
    }

    /// Adds the series to the metrics page.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) fn show(&self, page: &mut Vec<Figure>) {
        let mut names: Vec<(&Name, u32)> =
            self.numbers.iter().map(|(name, number)| (name, *number)).collect();
        names.sort_unstable();
        let mut count = |name, help, value: fn(&Total) -> u64| {
            let values = names.iter().map(|((policy, action, direction), number)| {
                let direction = match direction {
                    Direction::Ingress => "ingress",
                    Direction::Egress => "egress",
                };
                let labels = format!(
                    "kind={:?},tier={:?},namespace={:?},name={:?},action={:?},direction={direction:?}",
                    policy.kind.as_str(),
                    &*policy.tier,
                    &*policy.namespace,
                    &*policy.name,
                    action.as_str().to_lowercase(),
                );
                (labels, value(&self.totals[*number as usize]) as f64)
            });
            page.push(Figure { name, kind: FigureKind::Counter, help, values: values.collect() });
        };
        count(
            "goldmane_policy_packets_total",
            "Packets that a policy decided about, as nodes reported them.",
            |total| total.packets,
        );
        count("goldmane_policy_bytes_total", "Their bytes.", |total| total.bytes);
        count("goldmane_policy_connections_total", "Connections that a policy decided about.", |total| {
            total.connections
        });
        page.push(Figure {
            name: "goldmane_policy_flows_without_series_total",
            kind: FigureKind::Counter,
            help: "Flows of policies for which there was no room among the per-policy metrics.",
            values: vec![(String::new(), self.without as f64)],
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::aggregator::{Aggregator, AggregatorOptions};
    use flows::{FlowKey, Reporter, Trace};
    use goldmane_api::convert::encode_key;
    use goldmane_api::proto::{Flow, FlowUpdate};
    use prost::Message as _;
    use std::sync::Arc;
    use telemetry::Metrics;

    const BEGIN: i64 = 1_700_000_010;

    /// The figures of policies after flows with these decisions, each with one packet in and two out.
    fn lines(most_policy_series: usize, flows: &[(Reporter, &[&str])]) -> Vec<String> {
        let options = AggregatorOptions { most_policy_series, ..AggregatorOptions::default() };
        let aggregator = Aggregator::new(options, Arc::new(|| BEGIN));
        for (number, (reporter, hits)) in (0..).zip(flows) {
            let enforced = hits.iter().map(|text| text.parse().unwrap()).collect();
            let trace = Arc::new(Trace { enforced, pending: vec![] });
            let key = FlowKey { reporter: *reporter, trace, ..FlowKey::default() };
            let flow = Flow {
                key: encode_key(&key).into(),
                start_time: BEGIN - number,
                packets_in: 1,
                packets_out: 2,
                bytes_in: 100,
                num_connections_started: 1,
                ..Flow::default()
            };
            let message = FlowUpdate { flow: Some(flow) }.encode_to_vec();
            aggregator.ingest(&Arc::from("node"), |counting| {
                counting.update(&message);
                // A repetition: it does not count twice.
                counting.update(&message);
            });
        }
        let metrics = Metrics::default();
        crate::figures::register(&metrics, &aggregator);
        let page = metrics.page();
        page.lines().filter(|line| line.starts_with("goldmane_policy_")).map(str::to_owned).collect()
    }

    #[test]
    fn policies_have_counters_if_enabled() {
        let flows: [(Reporter, &[&str]); 3] = [
            (Reporter::Dst, &["0|first|gnp:all|pass|1", "1|default|np:shop/web|deny|-1"]),
            (Reporter::Src, &["0|default|np:shop/web|allow|0"]),
            (Reporter::Src, &["0|default|np:shop/web|allow|0"]),
        ];
        assert_eq!(lines(0, &flows), [""; 0]);
        let found = lines(10, &flows);
        let web = "kind=\"CalicoNetworkPolicy\",tier=\"default\",namespace=\"shop\",name=\"web\"";
        for line in [
            format!("goldmane_policy_packets_total{{{web},action=\"allow\",direction=\"egress\"}} 6"),
            format!("goldmane_policy_packets_total{{{web},action=\"deny\",direction=\"ingress\"}} 3"),
            format!("goldmane_policy_bytes_total{{{web},action=\"allow\",direction=\"egress\"}} 200"),
            format!("goldmane_policy_connections_total{{{web},action=\"allow\",direction=\"egress\"}} 2"),
            "goldmane_policy_packets_total{kind=\"GlobalNetworkPolicy\",tier=\"first\",namespace=\"\",name=\"all\",\
             action=\"pass\",direction=\"ingress\"} 3"
                .to_owned(),
            "goldmane_policy_flows_without_series_total 0".to_owned(),
        ] {
            assert!(found.contains(&line), "{line}: {found:#?}");
        }
        assert_eq!(found.len(), 3 * 3 + 1);
        // There is room for one policy; every flow has a different one.
        let found = lines(1, &flows);
        assert_eq!(found.len(), 3 + 1, "{found:#?}");
        assert!(found.contains(&"goldmane_policy_flows_without_series_total 3".to_owned()), "{found:#?}");
    }
}
