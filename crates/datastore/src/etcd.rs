//! Calico's data in a store that speaks etcd's v3 API.
//!
//! One implementation of the semantics ([`EtcdBackend`]) over a small trait of what it needs ([`transport`]):
//! - [`remote`]: a real etcd cluster, or `tortie datastore`, over gRPC;
//! - [`embedded`]: the embedded engine in this process.
//!
//! Keys, values and their bytes are `model`'s business; here is what it means to create, update, delete, list and watch
//! them. It refuses to retry a write or to resume a watch on its own: both end with an error that says what to do.

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
