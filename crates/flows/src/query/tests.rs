//! Every query gives the same answer as the slow model.

use super::*;
use crate::key::{Action, Direction, Reporter};
use crate::model::{INTERVAL, Model, hint_requests, key, lists, statistics_requests, steps};
use crate::trace::{Decider, PolicyHit, PolicyKind, PolicyName};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn absolute(range: TimeRange, now: i64) -> TimeRange {
    TimeRange { gte: now + range.gte, lt: now + range.lt }
}

/// Whether a bucket begins in a range.
fn begins_in(range: TimeRange) -> impl Fn(i64) -> bool {
    move |bucket| (range.gte..range.lt).contains(&(bucket * INTERVAL))
}

fn page_of<T: Clone>(all: &[T], page: Page) -> (u64, u64, Vec<T>) {
    let (total, size) = (all.len() as u64, page.size);
    match size {
        0 => (u64::from(total > 0), total, all.to_vec()),
        _ if page.number * size >= total => (0, 0, Vec::new()),
        _ => {
            let place = |number: u64| usize::try_from(number).unwrap();
            let rest = all.iter().skip(place(page.number * size));
            (total.div_ceil(size), total, rest.take(place(size)).cloned().collect())
        }
    }
}

fn check_list(model: &Model, request: &ListRequest) -> Result<(), TestCaseError> {
    let request = ListRequest { range: absolute(request.range, model.now), ..request.clone() };
    let mut expected: Vec<_> = model
        .sums(begins_in(request.range))
        .into_iter()
        .filter(|(number, _)| request.filter.passes(&key(*number)))
        .map(|(number, (id, first, last, labels, counters))| {
            (id, number, first * INTERVAL, (last + 1) * INTERVAL, labels, counters)
        })
        .collect();
    expected.sort_by_key(|(id, number, start, ..)| {
        let key = key(*number);
        let value = match request.sort {
            Sort::Time => String::new(),
            Sort::DestName => key.dest.name.to_string(),
            Sort::DestNamespace => key.dest.namespace.to_string(),
            Sort::SourceName => key.source.name.to_string(),
            Sort::SourceNamespace => key.source.namespace.to_string(),
        };
        (value, if request.sort == Sort::Time { -start } else { 0 }, *id)
    });
    let (pages, results, expected) = page_of(&expected, request.page);
    let found = list(&model.ring.snapshot(), &request);
    prop_assert_eq!((found.total_pages, found.total_results), (pages, results));
    prop_assert_eq!(found.items.len(), expected.len());
    for (row, (id, number, start, end, labels, counters)) in found.items.iter().zip(expected) {
        prop_assert_eq!((row.entry.id(), row.entry.key()), (id, &key(number)));
        prop_assert_eq!((row.start, row.end, row.counters), (start, end, counters));
        prop_assert_eq!((&row.source_labels, &row.dest_labels), (&labels, &labels));
    }
    Ok(())
}

fn check_hints(model: &Model, request: &HintsRequest) -> Result<(), TestCaseError> {
    let request = HintsRequest { range: absolute(request.range, model.now), ..request.clone() };
    let mut expected = BTreeSet::new();
    for number in model.sums(begins_in(request.range)).into_keys() {
        let key = key(number);
        if !request.filter.passes(&key) {
            continue;
        }
        let policies = key.trace.enforced.iter().chain(&key.trace.pending).filter_map(PolicyHit::policy);
        let policies = policies.filter(|policy| policy.kind != PolicyKind::Profile);
        let each = |value: fn(&PolicyName) -> &str| {
            policies.map(|policy| value(policy).to_owned()).collect::<Vec<_>>()
        };
        expected.extend(match request.of {
            HintType::DestName => vec![key.dest.name.to_string()],
            HintType::SourceName => vec![key.source.name.to_string()],
            HintType::DestNamespace => vec![key.dest.namespace.to_string()],
            HintType::SourceNamespace => vec![key.source.namespace.to_string()],
            HintType::PolicyTier => each(|policy| &policy.tier),
            HintType::PolicyName => each(|policy| &policy.name),
            HintType::PolicyKind => each(|policy| policy.kind.as_str()),
            HintType::PolicyNamespace => each(|policy| &policy.namespace),
        });
    }
    let expected: Vec<String> = expected.into_iter().collect();
    let found = hints(&model.ring.snapshot(), &request);
    let values: Vec<String> = found.items.iter().map(ToString::to_string).collect();
    prop_assert_eq!((found.total_pages, found.total_results, values), page_of(&expected, request.page));
    Ok(())
}

type Rule = Option<(i64, Action, Direction)>;

fn check_statistics(model: &Model, request: &StatisticsRequest) -> Result<(), TestCaseError> {
    let range = absolute(request.range, model.now);
    let request = StatisticsRequest { range, ..request.clone() };
    let snapshot = model.ring.snapshot();
    let found = statistics(&snapshot, &request);
    if range.gte < snapshot.begin() || range.lt >= snapshot.end() {
        prop_assert!(found.is_err());
        return Ok(());
    }
    let mut expected: BTreeMap<(PolicyName, Rule), BTreeMap<i64, Series>> = BTreeMap::new();
    let buckets = range.gte.div_euclid(INTERVAL)..range.lt.div_euclid(INTERVAL);
    for flow in model.flows.iter().filter(|flow| buckets.contains(&flow.bucket)) {
        let key = key(flow.key);
        let mut seen = BTreeSet::new();
        for hit in key.trace.enforced.iter().chain(&key.trace.pending) {
            let policy = match &hit.by {
                Decider::Rule { policy, .. } => policy.clone(),
                Decider::EndOfTier { trigger, .. } => trigger.clone().unwrap(),
            };
            let hit_of_policy =
                PolicyHit { by: Decider::Rule { policy: policy.clone(), rule: 0 }, ..hit.clone() };
            if request.policy.as_ref().is_some_and(|wanted| !wanted.passes(&hit_of_policy)) {
                continue;
            }
            if !seen.insert((policy.clone(), hit.rule(), hit.action)) {
                continue;
            }
            let direction =
                if key.reporter == Reporter::Src { Direction::Egress } else { Direction::Ingress };
            let rule =
                (request.group_by == GroupBy::PolicyRule).then_some((hit.rule(), hit.action, direction));
            let series = expected.entry((policy, rule)).or_default().entry(flow.bucket).or_default();
            let (more_in, more_out) = match request.of {
                StatisticType::Packets => (flow.counters.packets_in, flow.counters.packets_out),
                StatisticType::Bytes => (flow.counters.bytes_in, flow.counters.bytes_out),
                StatisticType::LiveConnections if direction == Direction::Ingress => (flow.counters.live, 0),
                StatisticType::LiveConnections => (0, flow.counters.live),
            };
            let (sum_in, sum_out) = match hit.action {
                Action::Allow => (&mut series.allowed_in, &mut series.allowed_out),
                Action::Deny => (&mut series.denied_in, &mut series.denied_out),
                _ => (&mut series.passed_in, &mut series.passed_out),
            };
            *sum_in += more_in;
            *sum_out += more_out;
        }
    }
    let found = found.unwrap();
    prop_assert_eq!(found.len(), expected.len());
    for (result, ((policy, rule), series)) in found.iter().zip(expected) {
        prop_assert_eq!((&result.policy, result.rule), (&policy, rule));
        if request.is_series {
            let times: Vec<i64> = series.keys().map(|bucket| bucket * INTERVAL).collect();
            prop_assert_eq!(&result.times, &times);
            prop_assert_eq!(&result.values, &series.into_values().collect::<Vec<_>>());
            continue;
        }
        let sum = |field: fn(&Series) -> u64| match request.of {
            StatisticType::LiveConnections => series.values().last().map_or(0, field),
            _ => series.values().map(field).sum(),
        };
        let expected = Series {
            allowed_in: sum(|one| one.allowed_in),
            allowed_out: sum(|one| one.allowed_out),
            denied_in: sum(|one| one.denied_in),
            denied_out: sum(|one| one.denied_out),
            passed_in: sum(|one| one.passed_in),
            passed_out: sum(|one| one.passed_out),
        };
        prop_assert_eq!((&result.times, &result.values), (&Vec::new(), &vec![expected]));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn answers_equal_those_of_the_model(
        steps in steps(),
        lists in prop::collection::vec(lists(), 6),
        hints in prop::collection::vec(hint_requests(), 4),
        statistics in prop::collection::vec(statistics_requests(), 6),
    ) {
        let mut model = Model::new();
        for (place, step) in steps.iter().enumerate() {
            model.step(step);
            if place % 24 == 23 || place + 1 == steps.len() {
                lists.iter().try_for_each(|request| check_list(&model, request))?;
                hints.iter().try_for_each(|request| check_hints(&model, request))?;
                statistics.iter().try_for_each(|request| check_statistics(&model, request))?;
            }
        }
    }
}

#[test]
fn ranges_of_requests() {
    let (now, begin) = (10_000, 6_000);
    for (gte, lt, expected) in [
        (0, 0, Some((6_000, 10_000))),
        (-60, 0, Some((9_940, 10_000))),
        (-60, -30, Some((9_940, 9_970))),
        (7_000, 8_000, Some((7_000, 8_000))),
        (8_000, 7_000, None),
        (-30, -30, None),
        (i64::MIN, 0, Some((i64::MIN + 10_000, 10_000))),
    ] {
        let range = TimeRange::resolve(gte, lt, now, begin).ok().map(|range| (range.gte, range.lt));
        assert_eq!(range, expected, "{gte} {lt}");
    }
}

#[test]
fn filters_of_calicos_page() {
    let is = |value: &str, is_fuzzy| vec![StringMatch { value: value.to_owned(), is_fuzzy }];
    let passes = |number: usize, filter: Filter| filter.passes(&key(number));
    let none = Filter::default;
    assert!(none().is_empty() && passes(0, none()));
    for (filter, passing) in [
        (Filter { source_names: is("PUBLIC NETWORK", false), ..none() }, vec![2]),
        (Filter { source_names: is("NETWORK", true), ..none() }, vec![2, 3]),
        (Filter { source_namespaces: is("Global", false), ..none() }, vec![2, 3]),
        (Filter { source_namespaces: is("shop", false), ..none() }, vec![0, 1]),
        (Filter { source_names: is("Web", true), ..none() }, vec![]),
        (Filter { pending_actions: vec![Action::Deny], ..none() }, vec![1, 2, 4]),
        (Filter { actions: vec![Action::Deny], dest_ports: vec![443], ..none() }, vec![1]),
        (Filter { reporter: Reporter::Dst, protocols: is("udp", false), ..none() }, vec![3, 5]),
        // All parts must match one decision: the tier `first` has no deny.
        (
            Filter {
                policies: vec![PolicyMatch {
                    tier: is("first", false).pop(),
                    action: Action::Deny,
                    ..PolicyMatch::default()
                }],
                ..none()
            },
            vec![],
        ),
        // The end of a tier has no name, although its trigger has one.
        (
            Filter {
                policies: vec![PolicyMatch {
                    name: is("web", false).pop(),
                    action: Action::Deny,
                    ..PolicyMatch::default()
                }],
                ..none()
            },
            vec![1],
        ),
        (
            Filter {
                policies: vec![PolicyMatch { kind: PolicyKind::EndOfTier, ..PolicyMatch::default() }],
                ..none()
            },
            vec![2],
        ),
    ] {
        let found: Vec<usize> =
            (0..crate::model::KEYS).filter(|number| filter.passes(&key(*number))).collect();
        assert_eq!(found, passing, "{filter:?}");
    }
}
