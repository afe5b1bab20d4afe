//! Go's `gob` format, as far as Typha's protocol uses it.
//!
//! ```text
//! bytes ──► Segments ──► Message (one or more segments) ──► Reader ──► the caller's types, or Value
//!                                        Types (definitions of this stream) ▲
//! ```
//!
//! - [`number`]: the integers that everything else is built from.
//! - [`segments`]: the counted pieces of a stream, as bytes arrive.
//! - [`types`]: type definitions, which belong to one direction of one connection.
//! - [`decode`]: one message from its segments. Fields are matched by name, and unrequested ones are skipped.
//! - [`encode`]: the bytes that Go writes for the same values, definitions included.
//! - [`value`]: any value as a tree, for tools and tests.
//!
//! Whatever arrives, memory only grows with bytes received: a count is compared with the remaining bytes before
//! anything is allocated for it. Nesting, the number of types and the pieces of a message are limited.
//!
//! Does not support maps, arrays and floats in the encoder, recursive types, or anything else that Typha never sends.

pub mod decode;
pub mod encode;
pub mod number;
pub mod segments;
pub mod types;
pub mod value;

pub use decode::{Message, Reader};
pub use encode::{Stream, StructWriter};
pub use segments::Segments;
pub use types::{Field, Shape, Type, TypeId, Types};
pub use value::Value;

/// Why a stream is invalid. The stream cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A segment ends in the middle of a value.
    #[error("a value is cut short")]
    Short,
    /// An integer with more than eight bytes.
    #[error("an integer has {0} bytes")]
    WideInteger(u8),
    /// A segment, or a message of several, that is larger than the caller allows.
    #[error("a message of {size} bytes is longer than the {limit} that are allowed")]
    TooLarge {
        /// The size that it claims.
        size: u64,
        /// The size that is allowed.
        limit: usize,
    },
    /// Bytes after the end of a value.
    #[error("{0} bytes follow a value")]
    Extra(usize),
    /// A type that was not defined before.
    #[error("type {0} is not defined")]
    UnknownType(i64),
    /// A definition with a number that is taken.
    #[error("type {0} is defined twice")]
    DuplicateType(i64),
    /// A definition with a number reserved by the format, or without a type.
    #[error("type {0} cannot be defined like this")]
    BadDefinition(i64),
    /// A field that the struct's type does not have.
    #[error("a struct has no field {0}")]
    NoSuchField(u64),
    /// A field with another type than the reader needs.
    #[error("expected {expected}, found type {found}")]
    WrongType {
        /// What the reader needs.
        expected: &'static str,
        /// What the stream has.
        found: i64,
    },
    /// More types, pieces or levels than any legitimate stream has.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    NotText,
    /// The rest of the message has not arrived. [`Message`] handles this; callers never see it.
    #[error("the message continues in a segment that has not arrived")]
    NeedSegment,
}
