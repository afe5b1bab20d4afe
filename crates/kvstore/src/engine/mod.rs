//! The engine: etcd's multi-version store in one process and one file. [`Store`] is the way in.
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
//! - Revision N+1 is given out only by the committer; readers see a revision only when it is on disk.
//! - The index's lock is never held over I/O and only for a bounded number of keys.
//! - What is acknowledged is never overwritten in place; space comes back by writing a new file.
//!
//! It speaks no protocol (see `server`) and knows nothing of clusters: one process, one file.

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
