//! The contents of one feed, and the changes of each step. Pure: no lock, no clock, no task.
//!
//! A value is encoded once, when it arrives. Snapshots and change messages consist of the same bytes.

use model::feed::Status;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use typha_wire::outgoing::kvs_segment;
use typha_wire::{Change, EncodedUpdate};

/// One key that was added, changed or removed. Encoded by its creator, not under the lock of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input(EncodedUpdate);

impl Input {
    /// Creates an input from a key with its serialised value, `None` when it is gone; the store's version, and the
    /// version that was removed from a resource.
    #[must_use]
    pub fn new(path: &str, value: Option<&[u8]>, revision: &str, resource_version: &str) -> Self {
        let value = value.filter(|value| !value.is_empty());
        let (revision, resource_version) =
            if value.is_some() { (revision, resource_version) } else { ("", "") };
        Self(EncodedUpdate::new(path, value, revision, resource_version))
    }
}

/// An entry, found by its path.
#[derive(Clone, Debug)]
struct Stored(EncodedUpdate);

impl Borrow<[u8]> for Stored {
    fn borrow(&self) -> &[u8] {
        self.0.path()
    }
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.0.path() == other.0.path()
    }
}

impl Eq for Stored {}

impl PartialOrd for Stored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.path().cmp(other.0.path())
    }
}

/// The changes of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The added, changed and removed entries; empty when only the status changed.
    pub changes: Vec<(EncodedUpdate, Change)>,
    /// The status after the step.
    pub status: Status,
}

impl Step {
    /// The approximate size of its message, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.changes.iter().map(|(update, _)| update.size()).sum()
    }

    /// The message with the changes; empty when only the status changed.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        if self.changes.is_empty() {
            return Vec::new();
        }
        let mut body = Vec::with_capacity(self.size());
        self.changes.iter().for_each(|(update, change)| update.put(*change, &mut body));
        kvs_segment(self.changes.len(), &body)
    }
}

/// Counters for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Updates received.
    pub updates: u64,
    /// Those of the updates that changed nothing.
    pub skipped: u64,
    /// Steps created.
    pub steps: u64,
    /// Changes in all of them.
    pub changes: u64,
}

/// The entries of a feed.
#[derive(Debug)]
pub struct Cache {
    entries: BTreeSet<Stored>,
    bytes: usize,
    status: Status,
    largest_step: usize,
    counts: Counts,
}

impl Cache {
    /// Creates an empty cache. No step has more than `largest_step` changes.
    #[must_use]
    pub fn new(largest_step: usize) -> Self {
        Self {
            entries: BTreeSet::new(),
            bytes: 0,
            status: Status::WaitForDatastore,
            largest_step: largest_step.max(1),
            counts: Counts::default(),
        }
    }

    /// Applies updates; returns the resulting steps. An update that does not change the value creates none, whatever
    /// its revision.
    pub fn apply(&mut self, inputs: impl IntoIterator<Item = Input>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut changes = Vec::new();
        for input in inputs {
            self.counts.updates += 1;
            let Some(change) = self.change(input) else {
                self.counts.skipped += 1;
                continue;
            };
            changes.push(change);
            if changes.len() >= self.largest_step {
                steps.push(self.step(std::mem::take(&mut changes)));
            }
        }
        if !changes.is_empty() {
            changes.shrink_to_fit();
            steps.push(self.step(changes));
        }
        steps
    }

    /// Records a status; returns a step if it is new.
    pub fn set_status(&mut self, status: Status) -> Option<Step> {
        if self.status == status {
            return None;
        }
        self.status = status;
        self.counts.steps += 1;
        Some(Step { changes: Vec::new(), status })
    }

    fn step(&mut self, changes: Vec<(EncodedUpdate, Change)>) -> Step {
        self.counts.steps += 1;
        self.counts.changes += changes.len() as u64;
        Step { changes, status: self.status }
    }

    fn change(&mut self, Input(update): Input) -> Option<(EncodedUpdate, Change)> {
        if update.value().is_empty() {
            let gone = self.entries.take(update.path())?;
            self.bytes -= gone.0.size();
            return Some((update, Change::Deleted));
        }
        self.bytes += update.size();
        let old = self.entries.replace(Stored(update.clone()));
        let Some(Stored(old)) = old else { return Some((update, Change::New)) };
        self.bytes -= old.size();
        (old.value() != update.value()).then_some((update, Change::Updated))
    }

    /// All entries, in path order.
    pub fn entries(&self) -> impl Iterator<Item = &EncodedUpdate> {
        self.entries.iter().map(|stored| &stored.0)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes used by the entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &str, value: &str) -> Input {
        Input::new(path, Some(value.as_bytes()), "9", "")
    }

    #[test]
    fn updates_without_changes_create_no_step() {
        let mut cache = Cache::new(100);
        assert_eq!(cache.apply([input("/a", "1"), input("/b", "2")])[0].changes.len(), 2);
        let again = Input::new("/a", Some(b"1"), "10", "");
        assert_eq!(cache.apply([again, input("/nobody", "")]), []);
        assert_eq!(cache.counts(), Counts { updates: 4, skipped: 2, steps: 1, changes: 2 });
        assert_eq!(cache.apply([input("/a", "")]).len(), 1);
        assert_eq!(cache.apply([input("/a", "")]), []);
        let left: Vec<&[u8]> = cache.entries().map(EncodedUpdate::path).collect();
        assert_eq!(left, [b"/b"]);
        assert_eq!(cache.bytes(), cache.entries().map(EncodedUpdate::size).sum::<usize>());
    }

    #[test]
    fn steps_are_bounded_and_entries_are_in_byte_order() {
        let mut cache = Cache::new(2);
        let steps = cache.apply(["/c", "/a", "/B", "/b", "/a/"].map(|path| input(path, "x")));
        assert_eq!(steps.iter().map(|step| step.changes.len()).collect::<Vec<_>>(), [2, 2, 1]);
        let order: Vec<&[u8]> = cache.entries().map(EncodedUpdate::path).collect();
        assert_eq!(order, [&b"/B"[..], b"/a", b"/a/", b"/b", b"/c"]);
    }

    #[test]
    fn a_status_is_a_step_of_its_own() {
        let mut cache = Cache::new(2);
        assert_eq!(cache.set_status(Status::WaitForDatastore), None);
        let step = cache.set_status(Status::InSync).unwrap();
        assert_eq!((step.changes.len(), step.status, step.message().len()), (0, Status::InSync, 0));
        assert_eq!(cache.apply([input("/a", "1")])[0].status, Status::InSync);
    }
}
