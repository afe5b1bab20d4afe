//! A slow, obvious aggregator to compare the ring and its queries with: all flows in a list.

use crate::key::{Action, EndpointType, FlowKey, Peer, Reporter};
use crate::labels::Labels;
use crate::query::{
    Filter, GroupBy, HintType, HintsRequest, ListRequest, Page, PolicyMatch, Sort, StatisticType,
    StatisticsRequest, StringMatch, TimeRange,
};
use crate::ring::{Counters, LabelTexts, Ring, RingOptions};
use crate::trace::{PolicyKind, Trace};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const INTERVAL: i64 = 15;
pub(crate) const BUCKETS: i64 = 40;
pub(crate) const BEGIN: i64 = 1_000_000;

/// An event for an aggregator.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A flow: the number of its key, its age, the number of its labels, its counters.
    Add(usize, i64, usize, Counters),
    /// Time passes.
    Roll(i64),
    /// A reader takes a look.
    Look,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counters = prop::array::uniform7(0..2000u64).prop_map(Counters::of_fields);
    // Most flows are recent, some arrive late, some too late.
    let age = prop_oneof![6 => 0..45i64, 2 => -40..700i64];
    let step = prop_oneof![
        12 => (0..KEYS, age, 0..4usize, counters).prop_map(|(key, age, labels, count)| Step::Add(key, age, labels, count)),
        4 => (1..40i64).prop_map(Step::Roll),
        1 => (100..900i64).prop_map(Step::Roll),
        2 => Just(Step::Look),
    ];
    prop::collection::vec(step, 0..120)
}

pub(crate) const KEYS: usize = 6;

/// Keys that differ in everything that filters and sorts compare.
pub(crate) fn key(number: usize) -> FlowKey {
    let peer =
        |kind, namespace: &str, name: &str| Peer { kind, namespace: namespace.into(), name: name.into() };
    let hits = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    let (name, namespace) =
        [("web-*", "shop"), ("db-*", "shop"), ("pub", "-"), ("pvt", "-"), ("a", "b"), ("b", "a")][number];
    let enforced: &[&str] = match number {
        0 => &["0|default|np:shop/web|allow|0"],
        1 => &["0|first|gnp:all|pass|1", "1|default|np:shop/web|deny|2"],
        2 => &["0|default|np:shop/web|deny|-1"],
        3 => &["0|__PROFILE__|pro:kns.shop|allow|0"],
        4 => &["0|default|np:shop/web|allow|0"],
        _ => &[],
    };
    let pending: &[&str] = if number == 4 {
        &["0|default|np:shop/web|allow|0", "1|default|snp:b/tried|deny|0"]
    } else {
        enforced
    };
    FlowKey {
        source: peer(EndpointType::Workload, namespace, name),
        dest: peer(EndpointType::Workload, "shop", ["web-*", "db-*"][number % 2]),
        dest_port: [80, 443][number % 2],
        protocol: ["tcp", "udp"][number / 3].into(),
        reporter: [Reporter::Src, Reporter::Dst][number % 2],
        action: [Action::Allow, Action::Deny][usize::from(number == 1 || number == 2)],
        trace: Arc::new(Trace { enforced: hits(enforced), pending: hits(pending) }),
        ..FlowKey::default()
    }
}

pub(crate) fn labels(number: usize) -> Labels {
    [&["a=1", "b=1"][..], &["a=1", "c=1"], &["a=1", "b=1", "c=1"], &[]][number].iter().collect()
}

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) id: u64,
    pub(crate) bucket: i64,
    pub(crate) key: usize,
    pub(crate) labels: Labels,
    pub(crate) counters: Counters,
}

/// The list, next to the ring under test.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) ring: Ring,
    pub(crate) now: i64,
    pub(crate) flows: Vec<Counted>,
    last_id: u64,
}

impl Model {
    pub(crate) fn new() -> Self {
        let options =
            RingOptions { interval: INTERVAL, buckets: usize::try_from(BUCKETS).unwrap(), most_keys: 1000 };
        Self { ring: Ring::new(options, BEGIN), now: BEGIN, flows: Vec::new(), last_id: 0 }
    }

    pub(crate) fn first_bucket(&self) -> i64 {
        self.now.div_euclid(INTERVAL) + 2 - BUCKETS
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Add(number, age, set, counters) => {
                let (start, set) = (self.now - age, labels(*set));
                let texts = || set.texts().iter().map(|text| text.as_bytes());
                let pair = LabelTexts { source: texts(), dest: texts() };
                let key = key(*number);
                match self.ring.find(&key) {
                    Some(known) => drop(self.ring.add_known(known, start, counters, &pair)),
                    None => drop(self.ring.add(&key, start, counters, &pair)),
                }
                let bucket = start.div_euclid(INTERVAL);
                if (self.first_bucket()..self.first_bucket() + BUCKETS).contains(&bucket) {
                    let known = self.flows.iter().find(|flow| flow.key == *number).map(|flow| flow.id);
                    let id = known.unwrap_or_else(|| {
                        self.last_id += 1;
                        self.last_id
                    });
                    self.flows.push(Counted { id, bucket, key: *number, labels: set, counters: *counters });
                }
            }
            Step::Roll(time) => {
                self.now += time;
                self.ring.roll(self.now);
                let first = self.first_bucket();
                self.flows.retain(|flow| flow.bucket >= first);
            }
            Step::Look => {}
        }
    }

    /// The flows of some buckets by key: id, first and last bucket, labels, counters.
    pub(crate) fn sums(
        &self,
        buckets: impl Fn(i64) -> bool,
    ) -> BTreeMap<usize, (u64, i64, i64, Labels, Counters)> {
        let mut sums: BTreeMap<usize, (u64, i64, i64, Labels, Counters)> = BTreeMap::new();
        for flow in self.flows.iter().filter(|flow| buckets(flow.bucket)) {
            let sum = sums.entry(flow.key).or_insert_with(|| {
                (flow.id, flow.bucket, flow.bucket, flow.labels.clone(), Counters::default())
            });
            (sum.1, sum.2) = (sum.1.min(flow.bucket), sum.2.max(flow.bucket));
            sum.3 = sum.3.intersection(&flow.labels);
            sum.4.add(&flow.counters);
        }
        // Live connections are those of the last bucket.
        for (key, sum) in &mut sums {
            let last = self.flows.iter().filter(|flow| flow.key == *key && flow.bucket == sum.2);
            sum.4.live = last.map(|flow| flow.counters.live).sum();
        }
        sums
    }
}

fn ranges() -> impl Strategy<Value = TimeRange> {
    (-20..700i64, 1..500i64).prop_map(|(age, length)| TimeRange { gte: -age, lt: length - age })
}

fn matches() -> impl Strategy<Value = Vec<StringMatch>> {
    let text = prop::sample::select(vec![
        "web-*",
        "we",
        "shop",
        "-",
        "Global",
        "PUBLIC NETWORK",
        "pvt",
        "tcp",
        "a",
        "",
    ]);
    let one =
        (text, any::<bool>()).prop_map(|(value, is_fuzzy)| StringMatch { value: value.to_owned(), is_fuzzy });
    prop::collection::vec(one, 0..2)
}

fn policies() -> impl Strategy<Value = PolicyMatch> {
    (prop::sample::select(vec![0, 1, 2, 3, 9, 10]), matches(), matches(), 0..4i32).prop_map(
        |(kind, name, tier, action)| PolicyMatch {
            kind: PolicyKind::from_number(kind),
            tier: tier.into_iter().next(),
            namespace: None,
            name: name.into_iter().next(),
            action: Action::from_number(action),
        },
    )
}

fn filters() -> impl Strategy<Value = Filter> {
    let actions = || prop::collection::vec((1..4i32).prop_map(Action::from_number), 0..2);
    let texts = (matches(), matches(), matches(), matches(), matches());
    let others =
        (actions(), actions(), prop::collection::vec(policies(), 0..2), 0..3i32, prop::bool::weighted(0.2));
    (texts, others).prop_map(|(texts, (actions, pending_actions, policies, reporter, with_port))| Filter {
        source_names: texts.0,
        source_namespaces: texts.1,
        dest_names: texts.2,
        dest_namespaces: texts.3,
        protocols: texts.4,
        dest_ports: if with_port { vec![80] } else { vec![] },
        actions,
        pending_actions,
        policies,
        reporter: Reporter::from_number(reporter),
    })
}

/// Half of the filters let everything pass, so that there are results to compare.
fn usual_filters() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::default()), filters()]
}

fn pages() -> impl Strategy<Value = Page> {
    (0..3u64, 0..4u64).prop_map(|(number, size)| Page { number, size })
}

/// Times are relative to the current one.
pub(crate) fn lists() -> impl Strategy<Value = ListRequest> {
    let sorts = [Sort::Time, Sort::DestName, Sort::DestNamespace, Sort::SourceName, Sort::SourceNamespace];
    (ranges(), usual_filters(), prop::sample::select(sorts.to_vec()), pages())
        .prop_map(|(range, filter, sort, page)| ListRequest { range, filter, sort, page })
}

pub(crate) fn hint_requests() -> impl Strategy<Value = HintsRequest> {
    let types = [
        HintType::DestName,
        HintType::SourceName,
        HintType::DestNamespace,
        HintType::SourceNamespace,
        HintType::PolicyTier,
        HintType::PolicyName,
        HintType::PolicyKind,
        HintType::PolicyNamespace,
    ];
    (prop::sample::select(types.to_vec()), ranges(), usual_filters(), pages())
        .prop_map(|(of, range, filter, page)| HintsRequest { of, range, filter, page })
}

pub(crate) fn statistics_requests() -> impl Strategy<Value = StatisticsRequest> {
    let types = vec![StatisticType::Packets, StatisticType::Bytes, StatisticType::LiveConnections];
    let groups = vec![GroupBy::Policy, GroupBy::PolicyRule];
    let policy = prop_oneof![Just(None), policies().prop_map(Some)];
    (ranges(), prop::sample::select(types), prop::sample::select(groups), policy, any::<bool>()).prop_map(
        |(range, of, group_by, policy, is_series)| StatisticsRequest {
            range,
            of,
            group_by,
            policy,
            is_series,
        },
    )
}
