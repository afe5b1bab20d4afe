//! Writes the same bytes as Go. A message is one registered struct inside another struct's interface field, with the
//! definitions that the stream has not had yet.

use crate::number::{put_bytes, put_int, put_uint};
use crate::types::{TypeId, Types};
use std::collections::BTreeSet;

/// Writes one struct: zero fields are omitted, the others are preceded by the distance from the previous one.
pub struct StructWriter<'a> {
    out: &'a mut Vec<u8>,
    last: Option<u64>,
}

impl<'a> StructWriter<'a> {
    /// Starts a struct at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: None }
    }

    /// Starts a field. Fields must be written in order.
    pub fn field(&mut self, index: u64) -> &mut Vec<u8> {
        let distance = match self.last {
            None => index + 1,
            Some(last) => index - last,
        };
        put_uint(self.out, distance);
        self.last = Some(index);
        self.out
    }

    /// Writes a text; an empty one is zero.
    pub fn text(&mut self, index: u64, text: &str) {
        self.bytes(index, text.as_bytes());
    }

    /// Writes bytes; an empty slice is zero.
    pub fn bytes(&mut self, index: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            put_bytes(self.field(index), bytes);
        }
    }

    /// Writes a signed number.
    pub fn int(&mut self, index: u64, number: i64) {
        if number != 0 {
            put_int(self.field(index), number);
        }
    }

    /// Writes an unsigned number.
    pub fn uint(&mut self, index: u64, number: u64) {
        if number != 0 {
            put_uint(self.field(index), number);
        }
    }

    /// Writes a boolean.
    pub fn bool(&mut self, index: u64, value: bool) {
        self.uint(index, u64::from(value));
    }

    /// Ends the struct.
    pub fn end(self) {
        self.out.push(0);
    }
}

/// One direction of a connection as Go writes it: tracks which definitions the other side has.
#[derive(Clone, Debug)]
pub struct Stream<'t> {
    types: &'t Types,
    sent: BTreeSet<TypeId>,
}

impl<'t> Stream<'t> {
    /// Creates a stream of these types; none of them has been sent.
    #[must_use]
    pub fn new(types: &'t Types) -> Self {
        Self { types, sent: BTreeSet::new() }
    }

    /// Appends a message: `envelope` is a struct whose first field is an interface that contains a `kind`, registered
    /// as `name`, with this value.
    ///
    /// Go splits a message in the middle where its type is new: the beginning of the envelope is in the segment of the
    /// first definition, and the rest follows after the last.
    pub fn message(&mut self, envelope: TypeId, name: &str, kind: TypeId, value: &[u8], out: &mut Vec<u8>) {
        for definition in self.missing(envelope) {
            put_bytes(out, &definition);
        }
        let mut segment = Vec::with_capacity(name.len() + value.len() + 32);
        put_int(&mut segment, envelope.0);
        put_uint(&mut segment, 1);
        put_bytes(&mut segment, name.as_bytes());
        for definition in self.missing(kind) {
            segment.extend_from_slice(&definition);
            put_bytes(out, &segment);
            segment.clear();
        }
        put_int(&mut segment, kind.0);
        put_bytes(&mut segment, value);
        segment.push(0);
        put_bytes(out, &segment);
    }

    /// The definitions that a type requires and the other side does not have: itself, then its parts.
    fn missing(&mut self, id: TypeId) -> Vec<Vec<u8>> {
        let Some(definition) = self.types.get(id) else { return Vec::new() };
        if !self.sent.insert(id) {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        definition.put_definition(id, &mut bytes);
        let mut all = vec![bytes];
        for part in definition.parts() {
            all.extend(self.missing(part));
        }
        all
    }
}
