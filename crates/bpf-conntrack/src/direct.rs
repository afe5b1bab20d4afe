//! Removes what is kept of TCP connections that Linux does not track, in case their entries are evicted. It is kept
//! until programs see the connection end, or for as long as Linux would have kept it without programs.
//!
//! Does not write values: a program that judges a new connection of the same ends may be writing at the same time.

use crate::pass::Paced;
use crate::timeouts::Timeouts;
use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::conntrack::{Direct, Entry, Key, Value, flags};
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeSet;

/// How long Linux keeps an idle established connection.
const LINUX: u64 = 432_000 * 1_000_000_000;

/// Connections whose entries are gone, and since when; kept between passes.
#[derive(Clone, Debug, Default)]
pub struct Alone<F: Family> {
    since: HashMap<Key<F>, u64>,
}

impl<F: Family> Alone<F> {
    /// Whether what is kept of a connection can be removed.
    fn is_over(
        &mut self,
        now: u64,
        timeouts: &Timeouts,
        key: &Key<F>,
        kept: &Direct,
        has_entry: bool,
    ) -> bool {
        if has_entry {
            self.since.remove(key);
            return false;
        }
        if !kept.established {
            return now.saturating_sub(kept.time) > timeouts.tcp_syn_sent;
        }
        now.saturating_sub(*self.since.entry(*key).or_insert(now)) > LINUX.max(timeouts.tcp_established)
    }
}

/// Makes one pass over the map; returns how many elements were removed. Connections of `removed` workloads are removed
/// at once.
///
/// # Errors
/// When the kernel refuses.
pub fn sweep_direct<F: Family>(
    direct: &bpf::Map,
    connections: &bpf::Map,
    (alone, timeouts): (&mut Alone<F>, &Timeouts),
    removed: &BTreeSet<F::Address>,
    paced: &mut impl Paced,
) -> bpf::Result<u64> {
    let kept = bpf::Table::<Key<F>, Direct>::new(direct)?;
    let entries = bpf::Table::<Key<F>, Value<F>>::new(connections)?;
    let is_direct =
        |value: Value<F>| value.flags & flags::DIRECT != 0 && matches!(value.entry, Entry::Normal(_));
    let mut gone = 0;
    let mut seen = HashSet::new();
    let (mut outcome, mut goes_on) = (Ok(()), true);
    let visited = direct.visit_batches(|keys, values| {
        if !goes_on || outcome.is_err() {
            return;
        }
        let now = paced.now();
        let pairs = keys.chunks_exact(Key::<F>::SIZE).zip(values.chunks_exact(Direct::SIZE));
        let count = pairs.len();
        let mut doomed = Vec::new();
        for (key, value) in pairs {
            let (key, value) = (Key::<F>::read(key), Direct::read(value));
            let is_removed = removed.contains(&key.address_a) || removed.contains(&key.address_b);
            let has_entry = entries.get(&key).ok().flatten().is_some_and(is_direct);
            if is_removed || alone.is_over(now, timeouts, &key, &value, has_entry) {
                doomed.push((key, value.time));
            } else if !has_entry {
                seen.insert(key);
            }
        }
        for (key, time) in doomed {
            // A different time means that the connection was opened again in the meantime.
            let is_same = kept.get(&key).is_ok_and(|now| now.is_some_and(|now| now.time == time));
            if is_same && outcome.is_ok() {
                outcome = direct.remove(&key.bytes()).map(drop);
                gone += 1;
            }
        }
        goes_on = paced.after_batch(count);
    });
    visited.and(outcome)?;
    if goes_on {
        alone.since.retain(|key, _| seen.contains(key));
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpf::layout::V4;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn kept_as_long_as_linux_would_keep_it() {
        let times = Timeouts::default();
        let key = Key::<V4>::new(6, ([10, 0, 0, 1], 1234), ([10, 0, 0, 2], 80)).0;
        let opened = Direct { time: 100 * SECOND, a_approved: true, ..Direct::default() };
        let established = Direct { b_approved: true, established: true, ..opened };
        let mut alone = Alone::default();
        let mut ask = |seconds: u64, kept: &Direct, has_entry: bool| {
            alone.is_over(seconds * SECOND, &times, &key, kept, has_entry)
        };
        assert!(!ask(120, &opened, false));
        assert!(ask(121, &opened, false), "no answer yet");
        assert!(!ask(121, &opened, true), "its entry counts");
        let later = 10_000_000;
        assert!(!ask(later, &established, true), "its age does not matter");
        assert!(!ask(later, &established, false), "time begins when its entry is gone");
        assert!(!ask(later + 432_000, &established, false));
        assert!(ask(later + 432_001, &established, false));
        assert!(!ask(later + 432_001, &established, true), "it was recalled");
        assert!(!ask(later + 432_002, &established, false));
    }
}
