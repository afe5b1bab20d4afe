//! Goldmane's API, for its server and its clients.
//!
//! - [`proto`]: messages and services, generated from `proto/goldmane.proto` at build time without an installed
//!   compiler.
//! - [`convert`]: between messages and the values of `flows`; understands old and new forms.
//! - [`borrowed`]: reads flows in place, for a server that receives many.
//! - [`connect`]: a connection to a server, over TLS, unencrypted, or through a Unix socket.
//! - [`losses`]: what was lost on the way, reported and queried beside Calico's services.
//! - [`push`]: sends flows and keeps them until they are safe; [`outbox`] is its memory, as a pure state machine.
//!
//! Agents link this and not the server. Does not answer queries about flows.

pub mod borrowed;
pub mod connect;
pub mod convert;
pub mod losses;
pub mod outbox;
pub mod push;

/// Messages and services.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the protocol file is the documentation"
)]
pub mod proto {
    tonic::include_proto!("goldmane");
}

/// The header with a sender's name, which distinguishes several senders behind one address.
pub const SENDER_HEADER: &str = "tortie-node";
