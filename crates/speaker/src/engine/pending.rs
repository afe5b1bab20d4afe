//! Announcements and withdrawals waiting to be sent, in runs of prefixes that share an announcement.
//!
//! If a prefix changes again before it was sent, only the last change counts. Duplicates are removed when a part is
//! taken out, and when the queue has doubled since the last check; so a slow peer costs at most two entries per prefix,
//! and a table that passes through in order costs no check at all.

use ipnet::IpNet;
use rib::Announcement;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The maximum number of prefixes in a run, so that parts are of about equal size.
const LONGEST: usize = 4096;
/// A queue shorter than this is not checked.
const SHORT: usize = 64 * 1024;

/// Prefixes that share an announcement, or that are withdrawn.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) announcement: Option<Arc<Announcement>>,
    pub(super) prefixes: Vec<IpNet>,
}

impl Run {
    fn takes(&self, announcement: Option<&Arc<Announcement>>) -> bool {
        self.prefixes.len() < LONGEST
            && match (&self.announcement, announcement) {
                (None, None) => true,
                (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
                _ => false,
            }
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Pending {
    runs: VecDeque<Run>,
    /// The number of entries.
    len: usize,
    /// Whether each prefix is greater than the previous one, so that there are no duplicates.
    ascending: bool,
    /// The length at which duplicates are removed.
    look_at: usize,
}

impl Default for Pending {
    fn default() -> Self {
        Self { runs: VecDeque::new(), len: 0, ascending: true, look_at: SHORT }
    }
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of waiting prefixes; one that changed again may be counted twice.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Queues the announcement or withdrawal of a prefix.
    pub(super) fn put(&mut self, prefix: IpNet, announcement: Option<&Arc<Announcement>>) {
        let last = self.runs.back_mut();
        self.ascending &= last.as_ref().and_then(|run| run.prefixes.last()).is_none_or(|last| *last < prefix);
        match last {
            Some(run) if run.takes(announcement) => run.prefixes.push(prefix),
            _ => self.runs.push_back(Run { announcement: announcement.cloned(), prefixes: vec![prefix] }),
        }
        self.len += 1;
        if self.len >= self.look_at {
            if !self.ascending {
                keep_last(self.runs.make_contiguous());
                self.runs.retain(|run| !run.prefixes.is_empty());
                self.len = self.runs.iter().map(|run| run.prefixes.len()).sum();
            }
            self.look_at = SHORT.max(2 * self.len);
        }
    }

    /// Takes about this many of the oldest entries out: withdrawals first, then one run per announcement.
    pub(super) fn take(&mut self, about: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut count = 0;
        while count < about
            && let Some(run) = self.runs.pop_front()
        {
            count += run.prefixes.len();
            runs.push(run);
        }
        self.len -= count;
        if !self.ascending {
            keep_last(&mut runs);
        }
        if self.runs.is_empty() {
            *self = Self::default();
        }
        grouped(runs)
    }
}

/// Keeps each prefix only in the last run that contains it.
fn keep_last(runs: &mut [Run]) {
    let mut seen = HashSet::new();
    for run in runs.iter_mut().rev() {
        // All entries of one run are the same, so any of them will do.
        run.prefixes.retain(|prefix| seen.insert(*prefix));
    }
}

/// Merges runs with equal announcements, in the order of their first prefixes, after one run for withdrawals.
fn grouped(mut runs: Vec<Run>) -> Vec<Run> {
    if runs.len() < 2 {
        return runs;
    }
    let mut places: HashMap<Option<*const Announcement>, usize> = HashMap::new();
    let mut groups: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs.drain(..) {
        match places.entry(run.announcement.as_ref().map(Arc::as_ptr)) {
            std::collections::hash_map::Entry::Occupied(place) => {
                groups[*place.get()].prefixes.extend(run.prefixes);
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(groups.len());
                groups.push(run);
            }
        }
    }
    if let Some(withdrawn) = places.get(&None) {
        groups[..=*withdrawn].rotate_right(1);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn announcement(number: u32) -> Arc<Announcement> {
        let attributes = bgp_wire::Attributes { med: Some(number), ..Default::default() };
        Arc::new(Announcement { attributes, next_hop: IpAddr::from([10, 0, 0, 1]).into() })
    }

    fn net(number: u32) -> IpNet {
        IpNet::from(IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number)))
    }

    fn shown(runs: &[Run]) -> Vec<String> {
        let show = |run: &Run| {
            let med = run.announcement.as_ref().and_then(|one| one.attributes.med);
            let nets: Vec<String> = run.prefixes.iter().map(|net| net.addr().to_string()).collect();
            format!("{} {}", med.map_or_else(|| "gone".to_owned(), |med| med.to_string()), nets.join(" "))
        };
        runs.iter().map(show).collect()
    }

    #[test]
    fn the_last_change_of_a_prefix_counts() {
        let (one, two) = (announcement(1), announcement(2));
        let mut pending = Pending::default();
        for (number, what) in [(1, Some(&one)), (2, Some(&two)), (3, Some(&one)), (2, None), (1, Some(&two))]
        {
            pending.put(net(number), what);
        }
        assert_eq!(shown(&pending.take(100)), ["gone 10.0.0.2", "1 10.0.0.3", "2 10.0.0.1"]);
        assert!(pending.is_empty());
    }

    #[test]
    fn equal_announcements_are_one_run_even_if_built_twice() {
        let mut pending = Pending::default();
        pending.put(net(1), Some(&announcement(1)));
        pending.put(net(2), Some(&announcement(1)));
        assert_eq!(shown(&pending.take(100)), ["1 10.0.0.1 10.0.0.2"]);
    }

    #[test]
    fn a_peer_that_reads_nothing_costs_at_most_two_entries_per_prefix() {
        let (one, two) = (announcement(1), announcement(2));
        let mut pending = Pending::default();
        for round in 0..40 {
            for number in 0..10_000 {
                pending.put(net(number), Some(if round % 2 == 0 { &one } else { &two }));
            }
        }
        assert!(pending.len() < SHORT, "{}", pending.len());
        let mut last = HashMap::new();
        while !pending.is_empty() {
            for run in pending.take(5000) {
                let med = run.announcement.and_then(|one| one.attributes.med);
                last.extend(run.prefixes.into_iter().map(|prefix| (prefix, med)));
            }
        }
        assert_eq!(last.len(), 10_000);
        assert!(last.values().all(|med| *med == Some(2)));
    }

    #[test]
    fn parts_are_about_as_large_as_requested() {
        let one = announcement(1);
        let mut pending = Pending::default();
        (0..12_288).for_each(|number| pending.put(net(number), Some(&one)));
        let sizes: Vec<usize> = std::iter::from_fn(|| {
            let runs = pending.take(LONGEST + 1);
            (!runs.is_empty()).then(|| runs.iter().map(|run| run.prefixes.len()).sum())
        })
        .collect();
        assert_eq!(sizes, [2 * LONGEST, LONGEST]);
    }
}
