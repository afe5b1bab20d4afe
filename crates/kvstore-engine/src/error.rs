//! The store's errors. The texts of [`Error`] that etcd clients can see are etcd's own, letter for letter, because
//! clients compare them. This module never decides how to handle an error.

use std::{io, path::PathBuf, sync::Arc};

/// Why a request was refused or could not be carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The requested revision was removed by a compaction.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted {
        /// The revision of that compaction; older ones are gone.
        compact_revision: i64,
    },
    /// The requested revision does not exist yet.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// A request without a key.
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    /// `ignore_value` or `ignore_lease` for a key that does not exist.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// `ignore_value` together with a value.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// `ignore_lease` together with a lease.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// Two operations of one transaction write the same key.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// A transaction with more operations than `max_txn_ops`.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// An unknown sort order or target.
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    /// The request is larger than `max_request_bytes`.
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    /// A lease that does not exist or has expired.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// A lease with this id exists already.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// A time to live above etcd's limit of 9,000,000,000 seconds.
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// The quota is used up, or the disk is full. Reads still work; writes work again when there is space.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The store is closing.
    #[error("etcdserver: server stopped")]
    Stopped,
    /// A write to the file failed in a way that leaves its end unknown. The store only serves reads; reopening it
    /// determines what reached the disk.
    #[error("the store's file could not be written and is read-only until it is reopened: {0}")]
    Broken(Arc<str>),
    /// Bytes read back from the file fail their checksum, or cannot be read at all.
    #[error("the store's file could not be read: {0}")]
    Read(Arc<str>),
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the store in {} is in use by process {pid} ({command})", dir.display())]
    InUse {
        /// The store's directory.
        dir: PathBuf,
        /// The id of the process that holds it, as recorded in the lock file.
        pid: String,
        /// The command line of that process.
        command: String,
    },
    /// The file fails its checks at a place where acknowledged data must be.
    #[error("{} is damaged at byte {offset}: {reason}; restore it from a snapshot", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset in the file at which the check failed.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file is not ours, or is of a newer version.
    #[error("{} is not a store this program can read: {reason}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The reason, in one sentence.
        reason: String,
    },
    /// There is no store, and none was to be created.
    #[error("no store in {}", dir.display())]
    NoStore {
        /// The directory.
        dir: PathBuf,
    },
    /// A restore was requested in a directory that already contains a store.
    #[error("{} exists already; restore into a new directory", path.display())]
    Exists {
        /// The existing file.
        path: PathBuf,
    },
    /// The operating system returned an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl OpenError {
    /// For `map_err`: wraps an I/O error with what was attempted.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
