//! etcd's v3 API: its messages and services, and a client of one connection.
//!
//! Everything is generated from `proto/` at build time, in Rust, without an installed protocol compiler. Server
//! (`kvstore`) and client (`datastore`) share the types, so the code is generated and built once. The crate does not
//! interpret keys, choose between members or reconnect: its users do.

mod client;

pub use client::{Client, Service, Token};

/// Permissions of a role.
#[expect(missing_docs, reason = "generated code; the protocol files are the documentation")]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// Keys and events.
#[expect(missing_docs, reason = "generated code; the protocol files are the documentation")]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Requests, responses and services.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the protocol files are the documentation"
)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// The compiled protocol files, for mapping messages at run time.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

impl etcdserverpb::WatchResponse {
    /// Decodes the events. Their keys and values share the message's memory.
    ///
    /// # Errors
    /// When one of them is not an event.
    pub fn decoded_events(&self) -> Result<Vec<mvccpb::Event>, prost::DecodeError> {
        self.events.iter().map(|event| prost::Message::decode(event.clone())).collect()
    }
}
