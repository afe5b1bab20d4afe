//! Decodes one message from its segments.
//!
//! A message is usually one segment. If an interface contains a type that the stream has not defined, Go ends the
//! segment after the definition and continues in the next one. A message that turns out to be incomplete is therefore
//! decoded again from its beginning when more has arrived; its definitions are not recorded a second time.

use crate::Error;
use crate::number::{split_uint, unzigzag};
use crate::types::{Field, MOST_FIELDS, Shape, Type, TypeId, Types};
use bytes::Bytes;

/// Maximum number of segments in a message.
const MOST_PIECES: usize = 32;
/// Maximum nesting of values.
const DEEPEST: u32 = 32;

/// Collects the segments of one message.
#[derive(Debug, Default)]
pub struct Message {
    pieces: Vec<Bytes>,
    size: usize,
    defined: usize,
}

impl Message {
    /// Adds a segment. Calls `read` with the type of the message when it may be complete; returns `None` when more
    /// segments must follow, or when the segment was a definition of its own.
    ///
    /// # Errors
    /// When the stream is malformed, or the message is longer than `limit`.
    pub fn take<T>(
        &mut self,
        segment: Bytes,
        limit: usize,
        types: &mut Types,
        read: impl FnOnce(&mut Reader<'_>, TypeId) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.size += segment.len();
        if self.size > limit {
            return Err(Error::TooLarge { size: self.size as u64, limit });
        }
        if self.pieces.len() >= MOST_PIECES {
            return Err(Error::TooMany("pieces of one message"));
        }
        self.pieces.push(segment);
        let mut reader =
            Reader { types, current: &[], pieces: &self.pieces, known: self.defined, passed: 0, depth: 0 };
        let outcome = reader.whole(read);
        let defined = reader.passed;
        match outcome {
            Ok(value) => {
                *self = Self::default();
                Ok(value)
            }
            Err(Error::NeedSegment) => {
                self.defined = defined;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads the values of one message.
pub struct Reader<'a> {
    types: &'a mut Types,
    current: &'a [u8],
    pieces: &'a [Bytes],
    /// How many definitions of this message were recorded by earlier attempts.
    known: usize,
    /// How many definitions of this message have been passed in this attempt.
    passed: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// The types defined so far in the stream.
    #[must_use]
    pub fn types(&self) -> &Types {
        self.types
    }

    fn whole<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>, TypeId) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.next_piece()?;
        let id = self.int()?;
        if id < 0 {
            self.define(defined(id)?)?;
            return self.at_end().map(|()| None);
        }
        let value = read(self, TypeId(id))?;
        self.at_end()?;
        Ok(Some(value))
    }

    fn at_end(&self) -> Result<(), Error> {
        let left = self.current.len() + self.pieces.iter().map(Bytes::len).sum::<usize>();
        if left == 0 { Ok(()) } else { Err(Error::Extra(left)) }
    }

    fn next_piece(&mut self) -> Result<(), Error> {
        let (first, rest) = self.pieces.split_first().ok_or(Error::NeedSegment)?;
        (self.current, self.pieces) = (first, rest);
        Ok(())
    }

    /// Reads an unsigned number.
    ///
    /// # Errors
    /// When it is incomplete.
    pub fn uint(&mut self) -> Result<u64, Error> {
        let (number, rest) = split_uint(self.current)?.ok_or(Error::Short)?;
        self.current = rest;
        Ok(number)
    }

    /// Reads a signed number.
    ///
    /// # Errors
    /// When it is incomplete.
    pub fn int(&mut self) -> Result<i64, Error> {
        self.uint().map(unzigzag)
    }

    /// Reads a length, and that many bytes.
    ///
    /// # Errors
    /// When they are incomplete.
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let count = self.count()?;
        let (bytes, rest) = self.current.split_at_checked(count).ok_or(Error::Short)?;
        self.current = rest;
        Ok(bytes)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// When it is incomplete, or not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::NotText)
    }

    /// Reads a count of things that take at least one byte each: it is never more than what is left.
    fn count(&mut self) -> Result<usize, Error> {
        let count = usize::try_from(self.uint()?).map_err(|_| Error::Short)?;
        if count > self.current.len() { Err(Error::Short) } else { Ok(count) }
    }

    /// Calls `each` with every field present in a struct. `each` reads the field, or passes it to [`Self::skip`].
    ///
    /// # Errors
    /// When the type is not a struct, or a field is not one of its fields, or `each` fails.
    pub fn structure(
        &mut self,
        id: TypeId,
        mut each: impl FnMut(&mut Self, &Field) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.types.fields(id)?;
        self.down(|reader| {
            reader.raw_struct(|reader, index| {
                let fields = reader.types.fields(id)?;
                let field = usize::try_from(index).ok().and_then(|index| fields.get(index));
                let field = field.ok_or(Error::NoSuchField(index))?.clone();
                each(reader, &field)
            })
        })
    }

    /// Like [`Self::structure`] for many structs of one type: the caller has looked up the fields and gets their indexes.
    ///
    /// # Errors
    /// When `each` fails.
    pub fn raw_struct(
        &mut self,
        mut each: impl FnMut(&mut Self, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = 0u64;
        loop {
            let distance = self.uint()?;
            if distance == 0 {
                return Ok(());
            }
            let index = (next + distance.min(u64::from(u32::MAX))) - 1;
            each(self, index)?;
            next = index + 1;
        }
    }

    /// Calls `each` for every element of a slice.
    ///
    /// # Errors
    /// When the type is not a slice, or there are fewer bytes than elements, or `each` fails.
    pub fn slice(
        &mut self,
        id: TypeId,
        mut each: impl FnMut(&mut Self, TypeId) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let element = self.types.element(id)?;
        self.down(|reader| {
            for _ in 0..reader.count()? {
                each(reader, element)?;
            }
            Ok(())
        })
    }

    /// Reads the contents of an interface: `each` gets the registered name and the type, and must read the whole value.
    /// Returns `None` for a nil interface.
    ///
    /// # Errors
    /// When the value is malformed, or `each` fails or does not read all of it.
    pub fn interface<T>(
        &mut self,
        each: impl FnOnce(&mut Self, &'a str, TypeId) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let name = self.text()?;
        if name.is_empty() {
            return Ok(None);
        }
        self.down(|reader| {
            let id = reader.interface_type()?;
            let count = reader.count()?;
            let left = reader.current.len() - count;
            let value = each(reader, name, id)?;
            match reader.current.len().checked_sub(left) {
                Some(0) => Ok(Some(value)),
                Some(unread) => Err(Error::Extra(unread)),
                None => Err(Error::Short),
            }
        })
    }

    /// Reads definitions until a type follows. Between them the message may continue in another segment; if it does
    /// not, Go writes a length before the rest.
    fn interface_type(&mut self) -> Result<TypeId, Error> {
        loop {
            if self.current.is_empty() {
                self.next_piece()?;
            }
            let id = self.int()?;
            if id >= 0 {
                return Ok(TypeId(id));
            }
            self.define(defined(id)?)?;
            if !self.current.is_empty() {
                self.uint()?;
            }
        }
    }

    /// Reads the zero that precedes a whole value other than a struct.
    ///
    /// # Errors
    /// When it is missing.
    pub fn not_a_struct(&mut self) -> Result<(), Error> {
        match self.uint()? {
            0 => Ok(()),
            other => Err(Error::NoSuchField(other)),
        }
    }

    /// Skips a value of any type.
    ///
    /// # Errors
    /// When it is incomplete.
    pub fn skip(&mut self, id: TypeId) -> Result<(), Error> {
        match id {
            TypeId::BOOL | TypeId::INT | TypeId::UINT | TypeId::FLOAT => self.uint().map(drop),
            TypeId::COMPLEX => self.uint().and_then(|_| self.uint()).map(drop),
            TypeId::BYTES | TypeId::STRING => self.bytes().map(drop),
            TypeId::INTERFACE => self.skip_interface(),
            _ => {
                let shape = &self.types.get(id).ok_or(Error::UnknownType(id.0))?.shape;
                match *shape {
                    Shape::Struct(_) => self.structure(id, |reader, field| reader.skip(field.id)),
                    Shape::Slice(element) | Shape::Array(element, _) => {
                        self.down(|reader| (0..reader.count()?).try_for_each(|_| reader.skip(element)))
                    }
                    Shape::Map(key, element) => self.down(|reader| {
                        (0..reader.count()?).try_for_each(|_| {
                            reader.skip(key)?;
                            reader.skip(element)
                        })
                    }),
                    Shape::Gob | Shape::Binary | Shape::Text => self.bytes().map(drop),
                }
            }
        }
    }

    fn skip_interface(&mut self) -> Result<(), Error> {
        if self.bytes()?.is_empty() {
            return Ok(());
        }
        self.interface_type()?;
        self.bytes().map(drop)
    }

    pub(crate) fn down<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEEPEST {
            return Err(Error::TooMany("levels"));
        }
        self.depth += 1;
        let outcome = work(self);
        self.depth -= 1;
        outcome
    }

    fn define(&mut self, id: TypeId) -> Result<(), Error> {
        let definition = self.definition(id)?;
        self.passed += 1;
        if self.passed <= self.known { Ok(()) } else { self.types.define(id, definition) }
    }

    /// Reads Go's `wireType`: the one field that is present determines the kind of type.
    fn definition(&mut self, id: TypeId) -> Result<Type, Error> {
        let mut found = None;
        self.raw_struct(|reader, kind| {
            let (mut name, mut numbers, mut fields) = (String::new(), [0; 2], Vec::new());
            reader.raw_struct(|reader, part| match (kind, part) {
                (_, 0) => reader.common(&mut name),
                (0 | 1, 1) | (3, 1) => reader.int().map(|element| numbers[0] = element),
                (0 | 3, 2) => reader.int().map(|number| numbers[1] = number),
                (2, 1) => reader.fields(&mut fields),
                _ => Err(Error::BadDefinition(id.0)),
            })?;
            let [first, second] = numbers;
            let shape = match kind {
                0 => Shape::Array(TypeId(first), second),
                1 => Shape::Slice(TypeId(first)),
                2 => Shape::Struct(std::mem::take(&mut fields)),
                3 => Shape::Map(TypeId(first), TypeId(second)),
                4 => Shape::Gob,
                5 => Shape::Binary,
                6 => Shape::Text,
                _ => return Err(Error::BadDefinition(id.0)),
            };
            found = Some(Type { name, shape });
            Ok(())
        })?;
        found.ok_or(Error::BadDefinition(id.0))
    }

    /// Reads Go's `CommonType`: the name, and the number again.
    fn common(&mut self, name: &mut String) -> Result<(), Error> {
        self.raw_struct(|reader, part| match part {
            0 => reader.text().map(|text| text.clone_into(name)),
            1 => reader.int().map(drop),
            other => Err(Error::NoSuchField(other)),
        })
    }

    fn fields(&mut self, fields: &mut Vec<Field>) -> Result<(), Error> {
        let count = self.count()?;
        if count > MOST_FIELDS {
            return Err(Error::TooMany("fields"));
        }
        for _ in 0..count {
            let (mut name, mut id) = (String::new(), TypeId(0));
            self.raw_struct(|reader, part| match part {
                0 => reader.text().map(|text| text.clone_into(&mut name)),
                1 => reader.int().map(|number| id = TypeId(number)),
                other => Err(Error::NoSuchField(other)),
            })?;
            fields.push(Field { name, id });
        }
        Ok(())
    }
}

/// The number of the type that a definition is for.
fn defined(id: i64) -> Result<TypeId, Error> {
    id.checked_neg().map(TypeId).ok_or(Error::BadDefinition(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{put_bytes, put_int};
    use crate::{Segments, Stream, Value};

    const ENVELOPE: TypeId = TypeId(64);
    const ACK: TypeId = TypeId(67);
    const NAME: &str = "github.com/projectcalico/typha/pkg/syncproto.MsgACK";

    fn types() -> Types {
        let mut types = Types::new();
        types.define(ENVELOPE, Type::structure("Envelope", &[("Message", TypeId::INTERFACE)])).unwrap();
        types.define(ACK, Type::structure("MsgACK", &[])).unwrap();
        types
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<Value>, Error> {
        let (mut segments, mut message, mut types) =
            (Segments::new(1 << 20), Message::default(), Types::new());
        let mut values = Vec::new();
        for byte in bytes {
            segments.push(&[*byte]);
            while let Some(segment) = segments.take()? {
                values.extend(message.take(segment, 1 << 20, &mut types, Value::read_whole)?);
            }
        }
        Ok(values)
    }

    /// The bytes of an ACK that Calico's client sent, the first and the second time.
    #[test]
    fn a_message_split_in_the_middle() {
        let mut types = types();
        let mut out = Vec::new();
        let mut stream = Stream::new(&types);
        stream.message(ENVELOPE, NAME, ACK, &[0], &mut out);
        let first = out.len();
        stream.message(ENVELOPE, NAME, ACK, &[0], &mut out);
        let mut expected = Vec::new();
        types.get(ENVELOPE).unwrap().put_definition_segment(ENVELOPE, &mut expected);
        let head = [&[0xff, 0x80, 1, 0x33][..], NAME.as_bytes()].concat();
        put_bytes(
            &mut expected,
            &[&head[..], &[0xff, 0x85, 3, 1, 1, 6], b"MsgACK", &[1, 0xff, 0x86, 0, 0, 0]].concat(),
        );
        put_bytes(&mut expected, &[0xff, 0x86, 1, 0, 0]);
        assert_eq!(out[..first], expected);
        assert_eq!(out[first..][1..], [&head[..], &[0xff, 0x86, 1, 0, 0]].concat());
        let ack = Value::Interface(NAME.to_owned(), ACK, Box::new(Value::Struct(Vec::new())));
        let one = Value::Struct(vec![(0, ack)]);
        assert_eq!(read_all(&out), Ok(vec![one.clone(), one]));
        types.define(TypeId(5), Type::slice("", ACK)).unwrap_err();
    }

    #[test]
    fn definitions_that_are_refused() {
        let mut twice = Vec::new();
        for _ in 0..2 {
            types().get(ENVELOPE).unwrap().put_definition_segment(ENVELOPE, &mut twice);
        }
        assert_eq!(read_all(&twice), Err(Error::DuplicateType(64)));
        let mut low = Vec::new();
        types().get(ENVELOPE).unwrap().put_definition_segment(TypeId(63), &mut low);
        assert_eq!(read_all(&low), Err(Error::BadDefinition(63)));
        let mut many = Vec::new();
        for number in 0..300 {
            types().get(ACK).unwrap().put_definition_segment(TypeId(64 + number), &mut many);
        }
        assert_eq!(read_all(&many), Err(Error::TooMany("types")));
    }

    /// A field may be one byte on the wire, but takes dozens in memory for as long as the stream lives.
    #[test]
    fn definitions_without_end_are_refused() {
        let structure = |count: usize, name: &str| Type::structure("", &vec![(name, TypeId::BOOL); count]);
        let defined = |types: usize, one: &Type| {
            let mut out = Vec::new();
            for number in (64..).take(types) {
                one.put_definition_segment(TypeId(number), &mut out);
            }
            read_all(&out)
        };
        assert_eq!(defined(1, &structure(4096, "")), Ok(vec![]));
        assert_eq!(defined(1, &structure(4097, "")), Err(Error::TooMany("fields")));
        assert_eq!(defined(4, &structure(1024, "")), Ok(vec![]));
        assert_eq!(defined(5, &structure(1024, "")), Err(Error::TooMany("fields")));
        let long = "x".repeat(1 << 10);
        assert_eq!(defined(64, &structure(1, &long)), Ok(vec![]));
        assert_eq!(defined(65, &structure(1, &long)), Err(Error::TooMany("bytes in names of types")));
        assert_eq!(
            defined(65, &Type::slice(&long, TypeId::BOOL)),
            Err(Error::TooMany("bytes in names of types"))
        );
    }

    /// The fields of a definition are counted before they are read: this one would otherwise only be refused for its
    /// number, after all of them have been read.
    #[test]
    fn too_many_fields_are_refused_before_they_are_kept() {
        let mut out = Vec::new();
        Type::structure("", &[("", TypeId::BOOL); 5000]).put_definition_segment(TypeId(63), &mut out);
        assert_eq!(read_all(&out), Err(Error::TooMany("fields")));
    }

    /// Found by fuzzing: the lowest number has no positive counterpart.
    #[test]
    fn a_definition_of_the_lowest_number_is_refused() {
        let mut out = Vec::new();
        let mut lowest = Vec::new();
        put_int(&mut lowest, i64::MIN);
        lowest.extend([0; 4]);
        put_bytes(&mut out, &lowest);
        assert_eq!(read_all(&out), Err(Error::BadDefinition(i64::MIN)));
        let mut held = Vec::new();
        types().get(ENVELOPE).unwrap().put_definition_segment(ENVELOPE, &mut held);
        let head = [&[0xff, 0x80, 1, 0x33][..], NAME.as_bytes()].concat();
        put_bytes(&mut held, &[&head[..], &lowest].concat());
        assert_eq!(read_all(&held), Err(Error::BadDefinition(i64::MIN)));
    }

    /// A message that is split by this many definitions.
    fn in_pieces(count: i64) -> Vec<u8> {
        let mut out = Vec::new();
        types().get(ENVELOPE).unwrap().put_definition_segment(ENVELOPE, &mut out);
        let mut head = Vec::new();
        put_int(&mut head, ENVELOPE.0);
        head.push(1);
        put_bytes(&mut head, NAME.as_bytes());
        for number in 0..count {
            types().get(ACK).unwrap().put_definition(TypeId(65 + number), &mut head);
            put_bytes(&mut out, &head);
            head.clear();
        }
        out
    }

    #[test]
    fn a_message_of_endless_pieces_is_refused() {
        assert_eq!(read_all(&in_pieces(100)), Err(Error::TooMany("pieces of one message")));
    }

    /// Pieces that are short enough individually are kept until the last one has arrived.
    #[test]
    fn the_limit_applies_to_all_pieces_together() {
        const LIMIT: usize = 200;
        let (mut segments, mut message, mut types) = (Segments::new(LIMIT), Message::default(), Types::new());
        segments.push(&in_pieces(20));
        let mut last: Result<Option<()>, Error> = Ok(None);
        while last.is_ok()
            && let Some(segment) = segments.take().unwrap()
        {
            last = message.take(segment, LIMIT, &mut types, |reader, id| {
                reader.skip(id)?;
                Ok(())
            });
        }
        assert!(matches!(last, Err(Error::TooLarge { limit: LIMIT, .. })), "{last:?}");
    }

    /// CVE-2022-30635 and CVE-2024-34156 of Go's decoder: endlessly nested values used up the stack. Both ways to read
    /// a value are tested, as a tree and skipped.
    #[test]
    fn values_nested_without_end_are_refused() {
        let mut out = Vec::new();
        Type::slice("", TypeId(64)).put_definition_segment(TypeId(64), &mut out);
        let mut value = Vec::new();
        put_int(&mut value, 64);
        value.push(0);
        value.extend(std::iter::repeat_n(1, 500_000));
        put_bytes(&mut out, &value);
        assert_eq!(read_all(&out), Err(Error::TooMany("levels")));
        let (mut segments, mut message, mut types) =
            (Segments::new(1 << 20), Message::default(), Types::new());
        segments.push(&out);
        let mut last = Ok(None);
        while let Some(segment) = segments.take().unwrap() {
            last = message.take(segment, 1 << 20, &mut types, |reader, id| {
                reader.not_a_struct()?;
                reader.skip(id)
            });
        }
        assert_eq!(last, Err(Error::TooMany("levels")));
    }

    /// The class of CVEs in which a length is trusted before its bytes have arrived.
    #[test]
    fn a_count_beyond_the_remaining_bytes_is_refused() {
        let mut out = Vec::new();
        Type::slice("", TypeId::UINT).put_definition_segment(TypeId(64), &mut out);
        let mut value = Vec::new();
        put_int(&mut value, 64);
        value.extend([0, 0xf8, 0, 255, 255, 255, 255, 255, 255, 255, 1]);
        put_bytes(&mut out, &value);
        assert_eq!(read_all(&out), Err(Error::Short));
    }

    #[test]
    fn bytes_after_a_value_are_refused() {
        let mut out = Vec::new();
        types().get(ENVELOPE).unwrap().put_definition_segment(ENVELOPE, &mut out);
        put_bytes(&mut out, &[0xff, 0x80, 0, 9]);
        assert_eq!(read_all(&out), Err(Error::Extra(1)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end_in_a_value_or_an_error(bytes: Vec<u8>, flip in 0usize..200, to: u8) {
            let _ = read_all(&bytes);
            let types = types();
            let mut out = Vec::new();
            Stream::new(&types).message(ENVELOPE, NAME, ACK, &[0], &mut out);
            let place = flip % out.len();
            out[place] = to;
            let _ = read_all(&out);
        }
    }
}
