//! State shared by the store's threads and its callers, and the options it was opened with. Makes no decisions.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use super::{
    error::Error,
    hub::Hub,
    index::Index,
    lease::Leases,
    read::{Pins, View},
};

/// The options of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Maximum size of a request, in bytes (etcd: 1.5 MiB).
    pub max_request_bytes: usize,
    /// Maximum number of operations in one transaction (etcd: 128).
    pub max_txn_ops: usize,
    /// Bytes of live data, history included, above which the quota alarm goes on; 0 for no quota (etcd: 2 GiB).
    pub quota_bytes: u64,
    /// Minimum time of a lease, in seconds; shorter requests get this much (etcd: 2 with its default timings).
    pub min_lease_ttl: i64,
    /// The file is rewritten when it has this many bytes of garbage and more garbage than data.
    pub min_garbage_bytes: u64,
    /// Bytes of recent commits kept in memory for watches; watches further behind read the file.
    pub watch_buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_request_bytes: 1_572_864,
            max_txn_ops: 128,
            quota_bytes: 2 << 30,
            min_lease_ttl: 2,
            min_garbage_bytes: 8 << 20,
            watch_buffer_bytes: 2 << 20,
        }
    }
}

/// The name of the store's file in its directory.
const FILE: &str = "tortie.db";

/// Counts of operations, for metrics.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) puts: AtomicU64,
    pub(super) deletes: AtomicU64,
    pub(super) txns: AtomicU64,
    pub(super) ranges: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) events: AtomicU64,
}

pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) cluster_id: u64,
    pub(super) member_id: u64,
    pub(super) index: RwLock<Index>,
    pub(super) pins: Pins,
    /// The newest revision on disk: "now" for readers.
    pub(super) durable: AtomicI64,
    /// End of the synced part of the file.
    pub(super) file_end: AtomicU64,
    pub(super) leases: Mutex<Leases>,
    pub(super) hub: Mutex<Hub>,
    pub(super) alarm: AtomicBool,
    /// Set once writing has failed permanently.
    pub(super) broken: OnceLock<Arc<str>>,
    pub(super) counters: Counters,
}

impl Shared {
    /// What is durable now.
    pub(super) fn view(&self) -> View<'_> {
        let revision = self.durable.load(Ordering::Acquire);
        View { index: &self.index, pins: &self.pins, revision, pending: None }
    }

    pub(super) fn check_broken(&self) -> Result<(), Error> {
        self.broken.get().map_or(Ok(()), |reason| Err(Error::Broken(Arc::clone(reason))))
    }

    pub(super) fn break_with(&self, what: &str, error: &dyn std::fmt::Display) {
        let reason = format!("{what}: {error}");
        tracing::error!(dir = %self.dir.display(), "the store is read-only from now on: {reason}");
        // Only the first reason matters; later ones are its consequences.
        let _ = self.broken.set(reason.into());
    }
}

/// The store's file in `dir`.
pub(super) fn file_path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// The path of the file's successor while it is being written.
pub(super) fn new_file_path(dir: &Path) -> PathBuf {
    dir.join("tortie.db.new")
}

/// The path of a snapshot while it is being written.
pub(super) fn snapshot_path(dir: &Path) -> PathBuf {
    dir.join("tortie.db.snapshot")
}
