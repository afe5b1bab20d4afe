//! Records of a bucket that still changes.

use super::counters::Counters;
use hashbrown::HashMap;

/// A record that may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRecord {
    pub(crate) slot: u32,
    pub(crate) variant: u8,
    /// The revision of its last change.
    pub(crate) revision: u64,
    pub(crate) counters: Counters,
}

/// The open records of a bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    places: HashMap<u32, u32>,
    records: Vec<OpenRecord>,
}

impl Open {
    pub(crate) fn records(&self) -> &[OpenRecord] {
        &self.records
    }

    /// Returns the record of a slot, and whether it is new.
    pub(crate) fn record(&mut self, slot: u32, variant: u8) -> (&mut OpenRecord, bool) {
        let next = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        let place = *self.places.entry(slot).or_insert(next);
        let is_new = place == next;
        if is_new {
            self.records.push(OpenRecord { slot, variant, revision: 0, counters: Counters::default() });
        }
        (&mut self.records[place as usize], is_new)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&OpenRecord> {
        self.places.get(&slot).and_then(|place| self.records.get(*place as usize))
    }
}
