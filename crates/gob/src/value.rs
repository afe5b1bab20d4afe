//! Any value as a tree. Slow and simple: tools and tests compare the typed paths with it. Arrays and maps are refused.

use crate::number::{put_bytes, put_int, put_uint};
use crate::types::{Shape, Type, TypeId, Types};
use crate::{Error, Reader, StructWriter};

/// A value of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `bool`, or an unsigned number.
    Uint(u64),
    /// A signed number.
    Int(i64),
    /// The real and the imaginary part.
    Complex(u64, u64),
    /// Bytes, text, or the output of a type's own encoding.
    Bytes(Vec<u8>),
    /// A struct: the fields that are present, by index.
    Struct(Vec<(u64, Self)>),
    /// A slice.
    List(Vec<Self>),
    /// A nil interface.
    Nil,
    /// An interface: the registered name, the type, and the value.
    Interface(String, TypeId, Box<Self>),
}

impl Value {
    /// Reads a value of this type.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn read(reader: &mut Reader<'_>, id: TypeId) -> Result<Self, Error> {
        Ok(match id {
            TypeId::BOOL | TypeId::UINT | TypeId::FLOAT => Self::Uint(reader.uint()?),
            TypeId::INT => Self::Int(reader.int()?),
            TypeId::COMPLEX => Self::Complex(reader.uint()?, reader.uint()?),
            TypeId::BYTES | TypeId::STRING => Self::Bytes(reader.bytes()?.to_vec()),
            TypeId::INTERFACE => {
                let held = reader.interface(|reader, name, id| {
                    Ok(Self::Interface(name.to_owned(), id, Box::new(Self::read_whole(reader, id)?)))
                })?;
                held.unwrap_or(Self::Nil)
            }
            _ => {
                let shape = reader.types().get(id).ok_or(Error::UnknownType(id.0))?.shape.clone();
                match shape {
                    Shape::Struct(fields) => {
                        let mut found = Vec::new();
                        reader.down(|reader| {
                            reader.raw_struct(|reader, index| {
                                let field = usize::try_from(index).ok().and_then(|index| fields.get(index));
                                let field = field.ok_or(Error::NoSuchField(index))?;
                                found.push((index, Self::read(reader, field.id)?));
                                Ok(())
                            })
                        })?;
                        Self::Struct(found)
                    }
                    Shape::Slice(_) => {
                        let mut list = Vec::new();
                        reader.slice(id, |reader, element| {
                            list.push(Self::read(reader, element)?);
                            Ok(())
                        })?;
                        Self::List(list)
                    }
                    Shape::Gob | Shape::Binary | Shape::Text => Self::Bytes(reader.bytes()?.to_vec()),
                    Shape::Array(..) | Shape::Map(..) => {
                        return Err(Error::WrongType {
                            expected: "anything but an array or a map",
                            found: id.0,
                        });
                    }
                }
            }
        })
    }

    /// Reads a whole value: a message, or the contents of an interface.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn read_whole(reader: &mut Reader<'_>, id: TypeId) -> Result<Self, Error> {
        if !matches!(reader.types().get(id), Some(Type { shape: Shape::Struct(_), .. })) {
            reader.not_a_struct()?;
        }
        Self::read(reader, id)
    }

    /// Appends the value as Go writes it, for types that have been defined.
    pub fn put(&self, types: &Types, id: TypeId, out: &mut Vec<u8>) {
        match self {
            Self::Uint(number) => put_uint(out, *number),
            Self::Int(number) => put_int(out, *number),
            Self::Complex(first, second) => {
                put_uint(out, *first);
                put_uint(out, *second);
            }
            Self::Bytes(bytes) => put_bytes(out, bytes),
            Self::Nil => out.push(0),
            Self::Interface(name, held, value) => {
                let mut inner = Vec::new();
                value.put_whole(types, *held, &mut inner);
                put_bytes(out, name.as_bytes());
                put_int(out, held.0);
                put_bytes(out, &inner);
            }
            Self::Struct(values) => {
                let fields = types.fields(id).unwrap_or_default();
                let mut writer = StructWriter::new(out);
                for (index, value) in values {
                    let field = usize::try_from(*index).ok().and_then(|index| fields.get(index));
                    if let Some(field) = field {
                        value.put(types, field.id, writer.field(*index));
                    }
                }
                writer.end();
            }
            Self::List(values) => {
                let element = types.element(id).unwrap_or(TypeId(0));
                put_uint(out, values.len() as u64);
                values.iter().for_each(|value| value.put(types, element, out));
            }
        }
    }

    /// Appends a whole value.
    pub fn put_whole(&self, types: &Types, id: TypeId, out: &mut Vec<u8>) {
        if !matches!(self, Self::Struct(_)) {
            out.push(0);
        }
        self.put(types, id, out);
    }
}
