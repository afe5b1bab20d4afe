//! etcd's messages and services, generated from `proto/`, and their description for the JSON gateway.
#![expect(
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the protocol files are the documentation"
)]

pub mod authpb {
    tonic::include_proto!("authpb");
}

pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// The protocol files, compiled.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
