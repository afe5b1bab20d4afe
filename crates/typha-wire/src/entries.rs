//! Entries of a feed as Calico's keys and serialised values, and back.
//!
//! - [`wire`]: the values as in JSON, field by field in Calico's order.
//! - [`encode`]: what a server sends for an entry, in these `forms`. [`decode`]: the entry for what a client received.
//!
//! Values are JSON, except settings (bare text) and the ready flag (`true`, `false`). The version of a resource is
//! removed from its value and sent beside it, so that an object of which only the version changed counts as unchanged.

pub mod decode;
pub mod encode;
mod forms;
mod path;
pub mod wire;

pub use decode::{DecodeError, entry, gone};
pub use encode::{EncodeError, Encoded, Encoder, encode};
