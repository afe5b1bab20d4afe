//! Encoded records of buckets that no longer change: variable-length numbers, ordered by slot.
//!
//! Slots and counters are stored apart, so that a reader that only needs to know which flows exist reads one byte per
//! flow.

use super::counters::{Counters, Sum};

/// One record: labels and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of its label set among those of its key.
    pub(crate) variant: u8,
    /// The counters.
    pub(crate) sum: Sum,
}

/// Records of one or more buckets, by slot.
#[derive(Debug, Default)]
pub(crate) struct Records {
    first: i64,
    is_span: bool,
    slots: Box<[u8]>,
    rows: Box<[u8]>,
}

/// Encodes records, whose slots must ascend.
#[derive(Debug)]
pub(crate) struct Writer {
    first: i64,
    is_span: bool,
    last_slot: u32,
    slots: Vec<u8>,
    rows: Vec<u8>,
}

impl Writer {
    /// Starts records for one bucket, or for a span of several that begins with it.
    pub(crate) fn new(first: i64, is_span: bool) -> Self {
        Self { first, is_span, last_slot: 0, slots: Vec::new(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, slot: u32, record: &Record) {
        write(&mut self.slots, u64::from(slot - self.last_slot));
        self.last_slot = slot;
        self.rows.push(record.variant);
        if self.is_span {
            let offset = |bucket: i64| u64::try_from(bucket - self.first).unwrap_or(0);
            write(&mut self.rows, offset(record.sum.first));
            write(&mut self.rows, offset(record.sum.last));
        }
        for field in record.sum.counters.fields() {
            write(&mut self.rows, field);
        }
    }

    pub(crate) fn finish(self) -> Records {
        Records {
            first: self.first,
            is_span: self.is_span,
            slots: self.slots.into_boxed_slice(),
            rows: self.rows.into_boxed_slice(),
        }
    }
}

impl Records {
    /// The slots in ascending order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        let (mut rest, mut slot) = (&*self.slots, 0u32);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            slot += u32::try_from(read(&mut rest)).unwrap_or(0);
            Some(slot)
        })
    }

    /// The records in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Record)> + '_ {
        let mut rows = &*self.rows;
        self.slots().map(move |slot| (slot, self.row(&mut rows)))
    }

    fn row(&self, rows: &mut &[u8]) -> Record {
        let (variant, rest) = rows.split_first().map_or((0, *rows), |(variant, rest)| (*variant, rest));
        *rows = rest;
        let (mut first, mut last) = (self.first, self.first);
        if self.is_span {
            let mut bucket = || self.first + i64::try_from(read(rows)).unwrap_or(0);
            (first, last) = (bucket(), bucket());
        }
        let mut fields = [0; 7];
        for field in &mut fields {
            *field = read(rows);
        }
        Record { variant, sum: Sum { first, last, counters: Counters::of_fields(fields) } }
    }

    /// The encoded size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.slots.len() + self.rows.len()
    }
}

fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest seven bits")]
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than 0x80")]
    bytes.push(number as u8);
}

#[inline]
fn read(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_records_are_read_back(
            gaps in prop::collection::vec((1..5000u32, any::<u8>(), any::<[u64; 7]>(), 0..60u32, 0..16i64), 0..40),
            is_span: bool,
        ) {
            let (first, mut slot) = (1000, 0);
            let mut writer = Writer::new(first, is_span);
            let mut expected = Vec::new();
            for (gap, variant, fields, shift, offset) in gaps {
                slot += gap;
                let counters = Counters::of_fields(fields.map(|field| field >> shift));
                let last = if is_span { first + offset } else { first };
                let record = Record { variant, sum: Sum { first, last, counters } };
                writer.push(slot, &record);
                expected.push((slot, record));
            }
            let records = writer.finish();
            prop_assert_eq!(records.iter().collect::<Vec<_>>(), expected);
        }
    }
}
