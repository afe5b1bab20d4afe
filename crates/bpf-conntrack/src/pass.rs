//! One pass over a map: reads in batches, decides, and deletes entries whose judgement still holds.

use crate::nat::Destinations;
use crate::sweep::{Glance, Reason, Report, Sweep, Verdict, stub};
use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Value, flags};

/// The clock, and the pacing of a pass in steps of one batch.
pub trait Paced {
    /// Nanoseconds of the monotonic clock.
    fn now(&self) -> u64;

    /// Called after a batch of this many entries. It may wait; returning false ends the pass.
    fn after_batch(&mut self, entries: usize) -> bool;
}

struct Doomed<F: Family> {
    key: Key<F>,
    value: Value<F>,
    reason: Reason,
}

/// Makes one pass over the map.
///
/// # Errors
/// When the kernel refuses.
pub fn sweep<F: Family>(
    map: &bpf::Map,
    sweep: &mut Sweep<F>,
    nat: &impl Destinations<F>,
    paced: &mut impl Paced,
) -> bpf::Result<Report> {
    let table = bpf::Table::<Key<F>, Value<F>>::new(map)?;
    let get = |key: &Key<F>| table.get(key).ok().flatten();
    let mut report = Report::default();
    let (mut doomed, mut resets) = (Vec::new(), Vec::new());
    let mut outcome = Ok(());
    let mut goes_on = true;
    sweep.pass_begins(nat.generation());
    let visited = map.visit_batches(|keys, values| {
        if !goes_on || outcome.is_err() {
            return;
        }
        let now = paced.now();
        let pairs = keys.chunks_exact(Key::<F>::SIZE).zip(values.chunks_exact(Value::<F>::SIZE));
        let count = pairs.len();
        for (key, value) in pairs {
            let is_counted =
                Glance::new(key, value).is_some_and(|glance| glance.has_maglev || glance.has_limits);
            if !is_counted && sweep.is_plainly_live(now, key, value) {
                continue;
            }
            let (key, value) = (Key::read(key), Value::read(value));
            count_maglev(&mut report, value.flags);
            count_limited(&mut report, &value);
            match sweep.decide(now, &key, &value, nat, get) {
                Verdict::Keep => {}
                Verdict::Delete(reason) => doomed.push(Doomed { key, value, reason }),
                Verdict::SendReset => resets.push(key),
            }
        }
        report.entries += count as u64;
        outcome = delete(map, &table, &mut doomed, &mut report);
        for key in resets.drain(..) {
            // Read again, because programs keep counting in it.
            if let Some(value) = get(&key).filter(|_| outcome.is_ok()) {
                outcome = table.set(&key, &Value { flags: value.flags | flags::SEND_RESET, ..value });
                report.resets += 1;
            }
        }
        goes_on = paced.after_batch(count);
    });
    let outcome = visited.and(outcome);
    if outcome.is_err() || !goes_on {
        sweep.pass_was_left();
    }
    outcome?;
    if goes_on {
        sweep.pass_is_over();
    }
    Ok(report)
}

fn count_maglev(report: &mut Report, bits: u32) {
    if bits & flags::MAGLEV == 0 {
        return;
    }
    if bits & flags::EXTERNAL_LOCAL != 0 {
        report.maglev_local += 1;
    } else if bits & flags::NODE_PORT_FORWARD != 0 {
        report.maglev_remote += 1;
    }
}

/// Counts a connection towards the limits of its workloads, until it ends. An unanswered one has no device yet.
fn count_limited<F: Family>(report: &mut Report, value: &Value<F>) {
    let (Entry::Normal(tracking) | Entry::Reverse(tracking)) = &value.entry else { return };
    let (there, back) = match tracking.b_to_a.opener {
        true => (&tracking.b_to_a, &tracking.a_to_b),
        false => (&tracking.a_to_b, &tracking.b_to_a),
    };
    let is_over = there.fin && back.fin || there.rst || back.rst;
    if is_over {
        return;
    }
    for (flag, leg, is_to_workload) in
        [(flags::LIMIT_EGRESS, there, false), (flags::LIMIT_INGRESS, back, true)]
    {
        if value.flags & flag != 0 && leg.device != 0 {
            *report.limited.entry((leg.device, is_to_workload)).or_default() += 1;
        }
    }
}

/// Whether the judgement still holds. Idleness ends with the next packet; but packets to a vanished backend are the
/// very reason why their entry is removed, so there it only must be the same flow.
fn is_same<F: Family>(reason: Reason, current: &Value<F>, judged: &Value<F>) -> bool {
    if reason != Reason::StaleNat {
        return current.last_seen == judged.last_seen;
    }
    match (&current.entry, &judged.entry) {
        (Entry::Normal(_), Entry::Normal(_)) => true,
        (Entry::Forward(now, _), Entry::Forward(then, _)) => now == then,
        (Entry::Reverse(now), Entry::Reverse(then)) => {
            (now.original_address, now.original_port) == (then.original_address, then.original_port)
        }
        _ => false,
    }
}

/// Deletes entries whose judgement still holds, and their own stubs.
fn delete<F: Family>(
    map: &bpf::Map,
    table: &bpf::Table<'_, Key<F>, Value<F>>,
    doomed: &mut Vec<Doomed<F>>,
    report: &mut Report,
) -> bpf::Result<()> {
    let mut keys = Vec::with_capacity(doomed.len());
    for Doomed { key, value, reason } in doomed.drain(..) {
        let Some(current) = table.get(&key)? else { continue };
        if !is_same(reason, &current, &value) {
            report.revived += 1;
            continue;
        }
        keys.push(key.bytes());
        *report.deleted.entry(reason).or_default() += 1;
        let Some(stub) = stub(&key, &value) else { continue };
        let leads_here =
            |value: &Value<F>| matches!(&value.entry, Entry::Forward(reverse, _) if *reverse == key);
        if table.get(&stub)?.as_ref().is_some_and(leads_here) {
            keys.push(stub.bytes());
            *report.deleted.entry(reason).or_default() += 1;
        }
    }
    map.remove_many(&keys).map(drop)
}
