//! The embedded store: etcd's v3 API with its multi-version semantics on one file, as a library and as a server.
//!
//! [`Store`] is the engine, for use in the same process. `server` puts etcd's gRPC API, its JSON gateway and its health and metrics
//! pages on top; `cli` is the command line of `tortie datastore`. It is a store for one machine: no replication, no
//! authentication. Where that is needed, use etcd.

use std::path::{Path, PathBuf};

pub mod cli;
mod engine;
pub mod server;

pub use engine::*;

/// The socket on which `tortie datastore` serves the store in `dir`. Whoever finds it answering must use it; whoever does not may open
/// the store itself, unless it runs for long and finds [`served_path`].
#[must_use]
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("tortie.sock")
}

/// The file that says that a server has served the store in `dir` once. A program that runs for long waits for the server then: by
/// opening the store itself it would keep the server out.
#[must_use]
pub fn served_path(dir: &Path) -> PathBuf {
    dir.join("tortie.served")
}
