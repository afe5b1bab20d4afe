//! How much traffic each policy, or each of its rules, allowed, denied and passed.

use super::{PolicyMatch, QueryError, TimeRange};
use crate::key::{Action, Direction, Reporter};
use crate::ring::{Counters, Snapshot};
use crate::trace::{PolicyHit, PolicyName, Trace};
use hashbrown::HashMap;

/// The quantity to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatisticType {
    /// Packets.
    #[default]
    Packets,
    /// Bytes.
    Bytes,
    /// Live connections; over several buckets, those of the last one.
    LiveConnections,
}

/// What is counted separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// Each policy.
    #[default]
    Policy,
    /// Each rule of a policy, per direction.
    PolicyRule,
}

/// A request for statistics.
#[derive(Clone, Debug)]
pub struct StatisticsRequest {
    /// From the bucket that contains the start up to, but not including, the one that contains the end.
    pub range: TimeRange,
    /// The quantity to count.
    pub of: StatisticType,
    /// What is counted separately.
    pub group_by: GroupBy,
    /// Only matching policies, if set.
    pub policy: Option<PolicyMatch>,
    /// Whether to return a value per bucket instead of a sum.
    pub is_series: bool,
}

/// Values: one per bucket, or one in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Allowed, towards the reporting end.
    pub allowed_in: u64,
    /// Allowed, away from the reporting end.
    pub allowed_out: u64,
    /// Denied, towards the reporting end.
    pub denied_in: u64,
    /// Denied, away from the reporting end.
    pub denied_out: u64,
    /// Passed on to the next tier, towards the reporting end.
    pub passed_in: u64,
    /// Passed on to the next tier, away from the reporting end.
    pub passed_out: u64,
}

/// The statistics of a policy or rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsResult {
    /// The policy.
    pub policy: PolicyName,
    /// The rule's index, action and direction, if grouped by rule.
    pub rule: Option<(i64, Action, Direction)>,
    /// The start of each bucket with data; empty for sums.
    pub times: Vec<i64>,
    /// One value per time, or a single sum.
    pub values: Vec<Series>,
}

/// The subject of a result. Results have its order.
type Group = (PolicyName, Option<(i64, Action, Direction)>);

/// The statistics of a range, ordered by policy and rule.
///
/// # Errors
/// When the range is not within the history.
pub fn statistics(
    snapshot: &Snapshot,
    request: &StatisticsRequest,
) -> Result<Vec<StatisticsResult>, QueryError> {
    let TimeRange { gte, lt } = request.range;
    let (begin, end) = (snapshot.begin(), snapshot.end());
    if gte < begin || lt >= end {
        return Err(QueryError::OutsideOfHistory { gte, lt, begin, end });
    }
    let mut groups = Groups::new(snapshot, request);
    for bucket in snapshot.buckets(snapshot.number(gte)..snapshot.number(lt)) {
        for (slot, record) in bucket.frozen.iter().flat_map(|frozen| frozen.traces.iter()) {
            groups.add(slot, &record.sum.counters);
        }
        for record in bucket.open.iter().flat_map(|open| open.records()) {
            if let Some(entry) = snapshot.keys().get(record.slot) {
                groups.add(entry.trace_slot(), &record.counters);
            }
        }
        groups.end_bucket(bucket.number * snapshot.interval());
    }
    Ok(groups.finish())
}

/// What a trace contributes to: its reporter, and groups by number with their action.
type Share = (Reporter, Vec<(u32, Action)>);

/// Groups are numbered, so that names are compared once per trace instead of once per bucket.
struct Groups<'a> {
    snapshot: &'a Snapshot,
    request: &'a StatisticsRequest,
    numbers: HashMap<Group, u32>,
    /// By trace slot.
    shares: Vec<Option<Share>>,
    /// By group: the sum of the current bucket, and whether it has data.
    now: Vec<(Series, bool)>,
    /// By group: times and values.
    results: Vec<(Vec<i64>, Vec<Series>)>,
    /// The groups in the current bucket.
    touched: Vec<u32>,
}

impl<'a> Groups<'a> {
    fn new(snapshot: &'a Snapshot, request: &'a StatisticsRequest) -> Self {
        Self {
            snapshot,
            request,
            numbers: HashMap::new(),
            shares: Vec::new(),
            now: Vec::new(),
            results: Vec::new(),
            touched: Vec::new(),
        }
    }

    fn add(&mut self, slot: u32, counters: &Counters) {
        let place = slot as usize;
        if self.shares.get(place).is_none_or(Option::is_none) {
            let share = self.share(slot);
            if self.shares.len() <= place {
                self.shares.resize_with(place + 1, || None);
            }
            self.shares[place] = Some(share);
        }
        let Some(Some((reporter, groups))) = self.shares.get(place) else { return };
        let (more_in, more_out) = values(self.request.of, counters, *reporter);
        for (number, action) in groups {
            let (series, is_touched) = &mut self.now[*number as usize];
            if !std::mem::replace(is_touched, true) {
                self.touched.push(*number);
            }
            let (sum_in, sum_out) = match action {
                Action::Allow => (&mut series.allowed_in, &mut series.allowed_out),
                Action::Deny => (&mut series.denied_in, &mut series.denied_out),
                Action::Pass => (&mut series.passed_in, &mut series.passed_out),
                Action::Unspecified => continue,
            };
            *sum_in = sum_in.saturating_add(more_in);
            *sum_out = sum_out.saturating_add(more_out);
        }
    }

    fn share(&mut self, slot: u32) -> Share {
        let Some((trace, reporter)) = self.snapshot.keys().trace(slot) else { return Share::default() };
        let mut number = |(group, action): (Group, Action)| {
            let next = u32::try_from(self.results.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(group).or_insert(next);
            if number == next {
                self.results.push((Vec::new(), Vec::new()));
                self.now.push((Series::default(), false));
            }
            (number, action)
        };
        (*reporter, share(self.request, trace, *reporter).into_iter().map(&mut number).collect())
    }

    fn end_bucket(&mut self, time: i64) {
        for number in self.touched.drain(..) {
            let (series, _) = std::mem::take(&mut self.now[number as usize]);
            let (times, values) = &mut self.results[number as usize];
            match (values.last_mut(), self.request.is_series) {
                (_, true) => {
                    times.push(time);
                    values.push(series);
                }
                (None, false) => values.push(series),
                // Live connections do not add up over time.
                (Some(last), false) if self.request.of == StatisticType::LiveConnections => *last = series,
                (Some(sum), false) => sum.add(&series),
            }
        }
    }

    fn finish(self) -> Vec<StatisticsResult> {
        let mut groups: Vec<(Group, u32)> = self.numbers.into_iter().collect();
        groups.sort_unstable();
        let mut results = self.results;
        let result = |((policy, rule), number): (Group, u32)| {
            let (times, values) = std::mem::take(&mut results[number as usize]);
            StatisticsResult { policy, rule, times, values }
        };
        // A group without data in any bucket is not in the range.
        groups.into_iter().map(result).filter(|result| !result.values.is_empty()).collect()
    }
}

/// The groups that a flow of this trace counts towards, each once, with its first action.
fn share(request: &StatisticsRequest, trace: &Trace, reporter: Reporter) -> Vec<(Group, Action)> {
    let mut groups: Vec<(Group, Action)> = Vec::new();
    // Like Calico, once per policy and rule: a rule in both traces counts once.
    let mut rules: Vec<(&PolicyName, i64, Action)> = Vec::new();
    for hit in trace.enforced.iter().chain(&trace.pending) {
        let Some(policy) = hit.policy().filter(|policy| passes(request, policy, hit)) else { continue };
        if rules.contains(&(policy, hit.rule(), hit.action)) {
            continue;
        }
        rules.push((policy, hit.rule(), hit.action));
        let rule = match request.group_by {
            GroupBy::Policy => None,
            GroupBy::PolicyRule => Some((hit.rule(), hit.action, reporter.direction())),
        };
        groups.push(((policy.clone(), rule), hit.action));
    }
    groups
}

fn passes(request: &StatisticsRequest, policy: &PolicyName, hit: &PolicyHit) -> bool {
    request.policy.as_ref().is_none_or(|wanted| {
        (wanted.action == Action::Unspecified || wanted.action == hit.action)
            && wanted.passes_policy(policy.kind, &policy.tier, &policy.namespace, &policy.name)
    })
}

/// The counts towards the reporting end, and away from it.
fn values(of: StatisticType, counters: &Counters, reporter: Reporter) -> (u64, u64) {
    match (of, reporter.direction()) {
        (StatisticType::Packets, _) => (counters.packets_in, counters.packets_out),
        (StatisticType::Bytes, _) => (counters.bytes_in, counters.bytes_out),
        (StatisticType::LiveConnections, Direction::Ingress) => (counters.live, 0),
        (StatisticType::LiveConnections, Direction::Egress) => (0, counters.live),
    }
}

impl Series {
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.allowed_in, other.allowed_in),
            (&mut self.allowed_out, other.allowed_out),
            (&mut self.denied_in, other.denied_in),
            (&mut self.denied_out, other.denied_out),
            (&mut self.passed_in, other.passed_in),
            (&mut self.passed_out, other.passed_out),
        ] {
            *mine = mine.saturating_add(theirs);
        }
    }
}
