//! Type definitions. Each direction of a connection has its own, and a number is defined only once.

use crate::number::{put_bytes, put_int, put_uint};
use crate::{Error, StructWriter};
use std::collections::BTreeMap;

/// The number of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub i64);

impl TypeId {
    /// `bool`
    pub const BOOL: Self = Self(1);
    /// `int`, of any width.
    pub const INT: Self = Self(2);
    /// `uint`, of any width.
    pub const UINT: Self = Self(3);
    /// `float64`
    pub const FLOAT: Self = Self(4);
    /// `[]byte`
    pub const BYTES: Self = Self(5);
    /// `string`
    pub const STRING: Self = Self(6);
    /// `complex128`
    pub const COMPLEX: Self = Self(7);
    /// Any interface.
    pub const INTERFACE: Self = Self(8);
    /// The first number that a stream may define.
    pub const FIRST: Self = Self(64);
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, by which both sides match it.
    pub name: String,
    /// Its type.
    pub id: TypeId,
}

/// The structure of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Fields in order.
    Struct(Vec<Field>),
    /// Any number of elements of one type.
    Slice(TypeId),
    /// A fixed number of elements of one type.
    Array(TypeId, i64),
    /// Keys and values.
    Map(TypeId, TypeId),
    /// Bytes that the type itself encodes: `GobEncoder`.
    Gob,
    /// Bytes that the type itself encodes: `BinaryMarshaler`.
    Binary,
    /// Bytes that the type itself encodes: `TextMarshaler`.
    Text,
}

/// A type that a stream defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The name, which is irrelevant to the other side.
    pub name: String,
    /// Its structure.
    pub shape: Shape,
}

impl Type {
    /// A struct with these fields.
    #[must_use]
    pub fn structure(name: &str, fields: &[(&str, TypeId)]) -> Self {
        let fields = fields.iter().map(|(name, id)| Field { name: (*name).to_owned(), id: *id });
        Self { name: name.to_owned(), shape: Shape::Struct(fields.collect()) }
    }

    /// A slice of `element`.
    #[must_use]
    pub fn slice(name: &str, element: TypeId) -> Self {
        Self { name: name.to_owned(), shape: Shape::Slice(element) }
    }

    /// The types that this one consists of, in the order in which Go defines them.
    pub fn parts(&self) -> impl Iterator<Item = TypeId> + '_ {
        let (fields, others): (&[Field], [Option<TypeId>; 2]) = match &self.shape {
            Shape::Struct(fields) => (fields, [None, None]),
            Shape::Slice(element) | Shape::Array(element, _) => (&[], [Some(*element), None]),
            Shape::Map(key, element) => (&[], [Some(*key), Some(*element)]),
            Shape::Gob | Shape::Binary | Shape::Text => (&[], [None, None]),
        };
        fields.iter().map(|field| field.id).chain(others.into_iter().flatten())
    }

    /// Appends the definition: the negative number, and Go's `wireType`.
    pub fn put_definition(&self, id: TypeId, out: &mut Vec<u8>) {
        put_int(out, -id.0);
        let mut wire = StructWriter::new(out);
        let field = match &self.shape {
            Shape::Array(..) => 0,
            Shape::Slice(_) => 1,
            Shape::Struct(_) => 2,
            Shape::Map(..) => 3,
            Shape::Gob => 4,
            Shape::Binary => 5,
            Shape::Text => 6,
        };
        let mut shape = StructWriter::new(wire.field(field));
        let mut common = StructWriter::new(shape.field(0));
        common.text(0, &self.name);
        common.int(1, id.0);
        common.end();
        match &self.shape {
            Shape::Struct(fields) if !fields.is_empty() => {
                let out = shape.field(1);
                put_uint(out, fields.len() as u64);
                for field in fields {
                    let mut one = StructWriter::new(&mut *out);
                    one.text(0, &field.name);
                    one.int(1, field.id.0);
                    one.end();
                }
            }
            Shape::Slice(element) => shape.int(1, element.0),
            Shape::Array(element, length) => {
                shape.int(1, element.0);
                shape.int(2, *length);
            }
            Shape::Map(key, element) => {
                shape.int(1, key.0);
                shape.int(2, element.0);
            }
            Shape::Struct(_) | Shape::Gob | Shape::Binary | Shape::Text => {}
        }
        shape.end();
        wire.end();
    }

    /// The definition as a segment of its own.
    pub fn put_definition_segment(&self, id: TypeId, out: &mut Vec<u8>) {
        let mut definition = Vec::new();
        self.put_definition(id, &mut definition);
        put_bytes(out, &definition);
    }
}

/// Maximum number of types in a stream. Typha's streams have about a dozen.
const MOST_TYPES: usize = 256;
/// Maximum number of fields in all of them together. Definitions are kept for as long as the stream lives, and a field
/// takes far more memory than the byte that it may be on the wire.
pub(crate) const MOST_FIELDS: usize = 4096;
/// Maximum length of all names together, in bytes.
const MOST_NAME_BYTES: usize = 64 << 10;

/// The types of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Types {
    types: BTreeMap<TypeId, Type>,
    fields: usize,
    name_bytes: usize,
}

impl Types {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a definition.
    ///
    /// # Errors
    /// When the number is taken or reserved by the format, or there are too many definitions.
    pub fn define(&mut self, id: TypeId, definition: Type) -> Result<(), Error> {
        if id < TypeId::FIRST {
            return Err(Error::BadDefinition(id.0));
        }
        if self.types.len() >= MOST_TYPES {
            return Err(Error::TooMany("types"));
        }
        let fields: &[Field] = match &definition.shape {
            Shape::Struct(fields) => fields,
            _ => &[],
        };
        self.fields += fields.len();
        if self.fields > MOST_FIELDS {
            return Err(Error::TooMany("fields"));
        }
        self.name_bytes += definition.name.len() + fields.iter().map(|field| field.name.len()).sum::<usize>();
        if self.name_bytes > MOST_NAME_BYTES {
            return Err(Error::TooMany("bytes in names of types"));
        }
        match self.types.insert(id, definition) {
            None => Ok(()),
            Some(_) => Err(Error::DuplicateType(id.0)),
        }
    }

    /// The type with this number.
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<&Type> {
        self.types.get(&id)
    }

    /// The fields of a struct.
    ///
    /// # Errors
    /// When the number is not that of a struct.
    pub fn fields(&self, id: TypeId) -> Result<&[Field], Error> {
        match self.get(id) {
            Some(Type { shape: Shape::Struct(fields), .. }) => Ok(fields),
            Some(_) => Err(Error::WrongType { expected: "a struct", found: id.0 }),
            None if id < TypeId::FIRST => Err(Error::WrongType { expected: "a struct", found: id.0 }),
            None => Err(Error::UnknownType(id.0)),
        }
    }

    /// The element type of a slice.
    ///
    /// # Errors
    /// When the number is not that of a slice.
    pub fn element(&self, id: TypeId) -> Result<TypeId, Error> {
        match self.get(id) {
            Some(Type { shape: Shape::Slice(element), .. }) => Ok(*element),
            Some(_) => Err(Error::WrongType { expected: "a slice", found: id.0 }),
            None => Err(Error::UnknownType(id.0)),
        }
    }

    /// All definitions, by number.
    pub fn iter(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().map(|(id, one)| (*id, one))
    }
}
