//! Calico's data in a store that implements etcd's v3 API.
//!
//! One implementation of the semantics ([`EtcdBackend`]) over a small trait of the operations it needs ([`transport`]):
//! - [`remote`]: a real etcd cluster, or `tortie datastore`, over gRPC;
//! - [`embedded`]: the embedded engine in this process.
//!
//! `model` defines keys, values and their bytes; this module defines what it means to create, update, delete, list and
//! watch them. Does not retry writes or resume watches on its own: both end with an error that tells the caller what to
//! do.

mod backend;
mod compaction;
mod config;
mod convert;
mod dial;
mod discovery;
pub mod embedded;
mod list;
mod names;
pub mod remote;
mod session;
mod status;
pub mod transport;
mod watch;

pub use backend::EtcdBackend;
pub use config::{EtcdConfig, TlsFiles, TlsInline};
