//! The engine of the embedded store: etcd's multi-version store in one process and one file. [`Store`] is the entry
//! point.
//!
//! ```text
//!  callers ──write──► committer thread ──frames──► log file ◄──copies── janitor thread (compaction, rewriting, snapshots)
//!     │                   │ entries                   ▲
//!     │                   ▼                           │ records
//!     └──read──► index (keys → revisions → places) ───┘
//!                         │ marks
//!                         ▼
//!                  watch streams (ring of recent commits, else the file)
//! ```
//!
//! Invariants:
//! - The committer alone allocates revision N+1; readers see a revision only when it is on disk.
//! - The index's lock is never held over I/O and only for a bounded number of keys.
//! - Acknowledged data is never overwritten in place; space is reclaimed by writing a new file.
//!
//! It speaks no protocol (the crate `kvstore` does) and knows nothing of clusters: one process, one file.

use std::path::{Path, PathBuf};

mod batch;
mod check;
mod committer;
mod error;
mod evaluate;
mod hash;
mod hub;
mod index;
mod janitor;
mod lease;
mod load;
mod lockfile;
mod log;
mod read;
mod rewrite;
mod shared;
mod snapshot;
mod store;
mod types;
mod watch;

pub use error::{Error, OpenError};
pub use hash::HashKv;
pub use log::{Record, RecordError};
pub use shared::Options;
pub use snapshot::{SNAPSHOT_BLOCK, SNAPSHOT_DIGEST, pack};
pub use store::{Activity, Store};
pub use types::*;
pub use watch::{WatchError, WatchStream};

/// The socket on which `tortie datastore` serves the store in `dir`. A program to which it answers must use it.
/// Otherwise the program may open the store itself, unless it is long-running and [`served_path`] exists.
#[must_use]
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("tortie.sock")
}

/// The file that shows that a server has served the store in `dir` before. A long-running program then waits for the
/// server: if it opened the store itself, it would lock the server out.
#[must_use]
pub fn served_path(dir: &Path) -> PathBuf {
    dir.join("tortie.served")
}
