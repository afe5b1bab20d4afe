//! The few operations that the semantics need from a store with etcd's data model.
//!
//! Two implementations: [`remote`](super::remote) over gRPC, and [`embedded`](super::embedded) over the engine in this
//! process. Calico's data is opaque here: keys and values are bytes, revisions are numbers. A transport does not hide
//! failures: it never retries a write that may have happened, and a watch that ends reports why.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// A stored key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision that wrote this value.
    pub mod_revision: i64,
    /// How many times the key was written since its creation; 1 for a new key.
    pub version: i64,
}

/// A span of keys: from `key` up to but not including `end`, or a single key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first key.
    pub key: Bytes,
    /// The first key after the span; `None` for a single key.
    pub end: Option<Bytes>,
}

impl Span {
    /// A single key.
    #[must_use]
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), end: None }
    }

    /// All keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let key = prefix.into();
        let mut end = key.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return Self { key, end: Some(end.into()) };
            }
        }
        // No key sorts after all keys with this prefix: etcd encodes that as a single zero byte.
        Self { key, end: Some(Bytes::from_static(b"\0")) }
    }

    /// The part of this span after `last`.
    #[must_use]
    pub fn after(&self, last: &[u8]) -> Self {
        let mut key = Vec::with_capacity(last.len() + 1);
        key.extend_from_slice(last);
        key.push(0);
        Self { key: key.into(), end: self.end.clone() }
    }
}

/// A read of many keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// The keys.
    pub span: Span,
    /// At this revision; 0 for now.
    pub revision: i64,
    /// Maximum number of keys; 0 for all.
    pub limit: i64,
}

/// The answer to a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// The revision of the store when it answered.
    pub revision: i64,
    /// The entries found, in key order.
    pub entries: Vec<Entry>,
    /// Whether the limit left some out.
    pub more: bool,
    /// The number of entries, including those left out because of the limit.
    pub count: i64,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    Absent(Bytes),
    /// The key exists.
    Present(Bytes),
    /// The key's value was written by this revision.
    WrittenAt(Bytes, i64),
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a value, bound to a lease unless that is 0.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// The lease.
        lease: i64,
    },
    /// Read one key, at a revision or (0) now.
    Get {
        /// The key.
        key: Bytes,
        /// The revision.
        revision: i64,
    },
    /// Delete keys, and return their last values.
    Delete(Span),
}

/// The steps to perform at once, and those to perform instead when a condition fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// Performed when they hold.
    pub then: Vec<Step>,
    /// Performed when one does not.
    pub otherwise: Vec<Step>,
}

impl Transaction {
    /// Whether it only reads, so that it may be sent again after a broken connection.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(|step| matches!(step, Step::Get { .. }))
    }
}

/// The result of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionResponse {
    /// The revision of the store afterwards; if anything was written, the revision of that write.
    pub revision: i64,
    /// Whether the conditions held.
    pub succeeded: bool,
    /// For every step in order the entries it found: those read by a get or removed by a delete; none for a put.
    pub found: Vec<Vec<Entry>>,
}

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The keys.
    pub span: Span,
    /// The first revision to report.
    pub start_revision: i64,
    /// Whether deletions must include the entry's last value.
    pub needs_previous: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This value was written.
    Put(Entry),
    /// A key was deleted.
    Delete {
        /// The key.
        key: Bytes,
        /// The revision of the deletion.
        revision: i64,
        /// The previous entry, if the store still has it.
        previous: Option<Entry>,
    },
}

/// A running watch.
pub struct WatchAnswer {
    /// The revision of the store when the watch began.
    pub revision: i64,
    /// Batches of changes, in order, no revision split over two batches. An `Err` is the last item; an end without one
    /// means that the store ended the watch without a reason.
    pub changes: BoxStream<'static, Result<Vec<Change>, TransportError>>,
}

/// An error of the store or on the way to it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransportError {
    /// The revision is gone, or does not exist yet.
    #[error("{0}")]
    Revision(String),
    /// The store refuses our credentials, or this operation to them.
    #[error("{0}")]
    Unauthorized(String),
    /// The request is larger than the store accepts.
    #[error("{0}")]
    TooLarge(String),
    /// The store cannot be reached, or cannot answer now.
    #[error("{0}")]
    Unavailable(String),
    /// Any other, permanent error.
    #[error("{0}")]
    Failed(String),
}

/// A store that implements etcd's data model.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Reads many keys.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, TransportError>;

    /// Performs several steps at once.
    async fn transact(&self, transaction: Transaction) -> Result<TransactionResponse, TransportError>;

    /// Grants a lease of this many seconds and returns its id.
    async fn grant_lease(&self, seconds: i64) -> Result<i64, TransportError>;

    /// Watches keys for changes.
    async fn watch(&self, request: WatchRequest) -> Result<WatchAnswer, TransportError>;

    /// Removes everything that was replaced or deleted before this revision.
    async fn compact(&self, _revision: i64) -> Result<(), TransportError> {
        Err(TransportError::Failed("this store cannot be compacted".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_prefix() {
        for (prefix, end) in [
            (&b"/calico/"[..], &b"/calico0"[..]),
            (b"a\xff", b"b"),
            (b"\xff\xff", b"\0"),
            (b"a\xff\xff", b"b"),
        ] {
            assert_eq!(Span::prefix(prefix.to_vec()).end.as_deref(), Some(end), "{prefix:?}");
        }
    }

    #[test]
    fn the_rest_of_a_span_begins_right_after_the_last_key() {
        let rest = Span::prefix("/a/").after(b"/a/x");
        assert_eq!(rest, Span { key: Bytes::from_static(b"/a/x\0"), end: Some(Bytes::from_static(b"/a0")) });
    }

    #[test]
    fn a_transaction_that_writes_is_never_sent_twice() {
        let get = Step::Get { key: Bytes::from_static(b"a"), revision: 0 };
        let reads = Transaction { then: vec![get.clone()], ..Transaction::default() };
        assert!(reads.only_reads());
        let deletes = Transaction { otherwise: vec![Step::Delete(Span::key("a"))], then: vec![get], ..reads };
        assert!(!deletes.only_reads());
    }
}
