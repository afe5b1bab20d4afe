//! Entries of a feed as Calico's keys and serialised values, and back.
//!
//! - [`wire`]: the values as JSON has them, field by field in Calico's order.
//! - [`encode`]: what a server sends for an entry, in these `forms`. [`decode`]: what a client makes of what it got.
//!
//! Values are JSON, except settings (bare text) and the ready flag (`true`, `false`). The version of a resource is taken out
//! of its value and sent beside it, so that an object that only got a new version counts as unchanged.

pub mod decode;
pub mod encode;
mod forms;
mod path;
pub mod wire;

pub use decode::{DecodeError, entry, gone};
pub use encode::{EncodeError, Encoded, Encoder, encode};
