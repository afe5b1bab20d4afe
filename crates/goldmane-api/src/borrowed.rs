//! Reads a flow in place, without copying anything.
//!
//! Written by hand, because a server of flows does little else: a generated message allocates memory for every label,
//! only to compare it with known ones. Damaged messages are errors; unknown fields are skipped, as in every reader of
//! this format.

use flows::Counters;

/// Field 1 of an update is the flow.
const FLOW: u64 = 1;
const KEY: u64 = 1;
const SOURCE_LABELS: u64 = 4;
const DEST_LABELS: u64 = 5;

/// A message that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is damaged")]
pub struct Damaged;

/// A flow within the bytes of a message.
#[derive(Clone, Copy, Debug)]
pub struct FlowRef<'a> {
    /// The bytes of the whole flow.
    pub bytes: &'a [u8],
    /// The bytes of its key.
    pub key: &'a [u8],
    /// When it began, in seconds since 1970.
    pub start: i64,
    /// When it ended, in seconds since 1970.
    pub end: i64,
    /// Its counters; negative values are read as zero.
    pub counters: Counters,
    source_labels: Texts<'a>,
    dest_labels: Texts<'a>,
}

impl<'a> FlowRef<'a> {
    /// Reads the flow of a `FlowUpdate`; an empty flow if it has none.
    ///
    /// # Errors
    /// When the bytes are not such a message.
    pub fn of_update(update: &'a [u8]) -> Result<Self, Damaged> {
        let (mut rest, mut flow): (_, &[u8]) = (update, &[]);
        while !rest.is_empty() {
            match field(&mut rest)? {
                (FLOW, Value::Bytes(bytes)) => flow = bytes,
                (FLOW, Value::Number(_)) => return Err(Damaged),
                _ => {}
            }
        }
        Self::read(flow)
    }

    /// Reads a `Flow`.
    ///
    /// # Errors
    /// When the bytes are not such a message.
    pub fn read(flow: &'a [u8]) -> Result<Self, Damaged> {
        let mut read = Self {
            bytes: flow,
            key: &[],
            start: 0,
            end: 0,
            counters: Counters::default(),
            source_labels: Texts { rest: flow, field: SOURCE_LABELS, left: 0 },
            dest_labels: Texts { rest: flow, field: DEST_LABELS, left: 0 },
        };
        let mut rest = flow;
        while !rest.is_empty() {
            let before = rest;
            let (number, value) = field(&mut rest)?;
            match (number, value) {
                (KEY, Value::Bytes(bytes)) => read.key = bytes,
                (SOURCE_LABELS, Value::Bytes(_)) => read.source_labels.found(before),
                (DEST_LABELS, Value::Bytes(_)) => read.dest_labels.found(before),
                (2 | 3 | 6..=12, Value::Number(number_of)) => read.set(number, number_of),
                (KEY..=12, _) => return Err(Damaged),
                _ => {}
            }
        }
        Ok(read)
    }

    /// The labels of the source as `key=value` strings, in the sender's order.
    #[must_use]
    pub fn source_labels(&self) -> Texts<'a> {
        self.source_labels
    }

    /// The labels of the destination as `key=value` strings, in the sender's order.
    #[must_use]
    pub fn dest_labels(&self) -> Texts<'a> {
        self.dest_labels
    }

    fn set(&mut self, field: u64, value: u64) {
        let signed = value.cast_signed();
        let count = u64::try_from(signed).unwrap_or(0);
        match field {
            2 => self.start = signed,
            3 => self.end = signed,
            6 => self.counters.packets_in = count,
            7 => self.counters.packets_out = count,
            8 => self.counters.bytes_in = count,
            9 => self.counters.bytes_out = count,
            10 => self.counters.started = count,
            11 => self.counters.completed = count,
            _ => self.counters.live = count,
        }
    }
}

/// The strings of a repeated field.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// The message from the first of them on.
    rest: &'a [u8],
    field: u64,
    left: usize,
}

impl<'a> Texts<'a> {
    fn found(&mut self, at: &'a [u8]) {
        if self.left == 0 {
            self.rest = at;
        }
        self.left += 1;
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        loop {
            match field(&mut self.rest) {
                Ok((number, Value::Bytes(text))) if number == self.field => return Some(text),
                Ok(_) => {}
                Err(Damaged) => return None,
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Texts<'_> {}

/// Splits off the next of several messages that are each preceded by their length.
///
/// # Errors
/// When fewer bytes follow than the length requires.
pub fn split_message<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Damaged> {
    let length = usize::try_from(varint(rest)?).map_err(|_| Damaged)?;
    let (message, behind) = rest.split_at_checked(length).ok_or(Damaged)?;
    *rest = behind;
    Ok(message)
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a wire type that none of our fields has.
    Other,
}

/// Reads the next field of a message: its number and its value.
#[inline]
fn field<'a>(rest: &mut &'a [u8]) -> Result<(u64, Value<'a>), Damaged> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(rest)?),
        1 => fixed(rest, 8)?,
        2 => Value::Bytes(split_message(rest)?),
        5 => fixed(rest, 4)?,
        _ => return Err(Damaged),
    };
    match tag >> 3 {
        0 => Err(Damaged),
        number => Ok((number, value)),
    }
}

fn fixed<'a>(rest: &mut &'a [u8], length: usize) -> Result<Value<'a>, Damaged> {
    *rest = rest.get(length..).ok_or(Damaged)?;
    Ok(Value::Other)
}

#[inline]
fn varint(rest: &mut &[u8]) -> Result<u64, Damaged> {
    if let Some((byte, behind)) = rest.split_first()
        && *byte < 0x80
    {
        *rest = behind;
        return Ok(u64::from(*byte));
    }
    let mut number = 0;
    for (place, byte) in rest.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            *rest = &rest[place + 1..];
            // The tenth byte has room for one bit only.
            return if place == 9 && *byte > 1 { Err(Damaged) } else { Ok(number) };
        }
    }
    Err(Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::counters;
    use crate::proto::{Flow, FlowUpdate};
    use bytes::Bytes;
    use proptest::prelude::*;
    use prost::Message as _;

    fn any_flow() -> impl Strategy<Value = Flow> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        let labels = || prop::collection::vec(bytes(), 0..4);
        (bytes(), any::<[i64; 9]>(), labels(), labels()).prop_map(|(key, numbers, source, dest)| Flow {
            key,
            start_time: numbers[0],
            end_time: numbers[1],
            source_labels: source,
            dest_labels: dest,
            packets_in: numbers[2],
            packets_out: numbers[3],
            bytes_in: numbers[4] >> 40,
            bytes_out: numbers[5] >> 56,
            num_connections_started: numbers[6],
            num_connections_completed: numbers[7],
            num_connections_live: numbers[8],
        })
    }

    /// Checks that both readers agree, whatever the bytes.
    fn check(bytes: &[u8]) {
        match (FlowRef::of_update(bytes), FlowUpdate::decode(bytes)) {
            (Ok(ours), Ok(update)) => {
                let theirs = update.flow.unwrap_or_default();
                assert_eq!(
                    (ours.key, ours.start, ours.end),
                    (&*theirs.key, theirs.start_time, theirs.end_time)
                );
                assert_eq!(ours.counters, counters(&theirs));
                assert_eq!(ours.source_labels().len(), theirs.source_labels.len());
                assert!(ours.source_labels().eq(theirs.source_labels.iter().map(|text| &**text)));
                assert!(ours.dest_labels().eq(theirs.dest_labels.iter().map(|text| &**text)));
            }
            (Err(Damaged), Err(_)) => {}
            (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
        }
    }

    proptest! {
        #[test]
        fn flows_written_by_generated_code_are_read(flow in any_flow()) {
            check(&FlowUpdate { flow: Some(flow) }.encode_to_vec());
        }

        #[test]
        fn truncated_flows_are_refused(flow in any_flow(), end in 0..400_usize) {
            let bytes = FlowUpdate { flow: Some(flow) }.encode_to_vec();
            check(&bytes[..end % (bytes.len() + 1)]);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(flow) = FlowRef::of_update(&bytes) {
                prop_assert_eq!(flow.source_labels().count(), flow.source_labels().len());
                prop_assert_eq!(flow.dest_labels().count(), flow.dest_labels().len());
            }
        }
    }

    #[test]
    fn fields_of_later_versions_are_skipped() {
        // Fields 13 and 14 of other wire types between labels; then a number where a string must be.
        let flow = [0x22, 1, b'a', 0x6d, 1, 2, 3, 4, 0x71, 1, 2, 3, 4, 5, 6, 7, 8, 0x22, 1, b'b', 0x10, 9];
        let read = FlowRef::read(&flow).unwrap();
        assert_eq!((read.source_labels().collect::<Vec<_>>(), read.start), (vec![&b"a"[..], b"b"], 9));
        assert_eq!(FlowRef::read(&[0x20, 1]).unwrap_err(), Damaged);
        assert!(FlowRef::of_update(&[]).unwrap().key.is_empty());
    }
}
