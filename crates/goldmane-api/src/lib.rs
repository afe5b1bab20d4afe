//! Goldmane's API, for its server and for everyone who talks to one.
//!
//! - [`proto`]: messages and services, generated from `proto/goldmane.proto` at build time, without an installed compiler.
//! - [`convert`]: between messages and the values of `flows`; old and new forms are understood.
//! - [`borrowed`]: flows read where they stand, for a server of many.
//! - [`connect`]: a connection to a server, over TLS, in the clear, or by a Unix socket.
//! - [`losses`]: what was lost on the way, told and asked for beside Calico's services.
//! - [`push`]: sends flows and keeps them until they are safe; [`outbox`] is its memory, as a pure machine.
//!
//! Agents link this and not the server. It refuses to answer questions about flows.

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

/// The header by which a sender names itself, so that several behind one address are distinguished.
pub const SENDER_HEADER: &str = "tortie-node";
