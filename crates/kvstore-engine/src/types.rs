//! Requests and answers of the engine: etcd's vocabulary as plain structs. They have no behaviour beyond small
//! constructors, and contain nothing of gRPC or JSON: the server converts.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;

/// A key with its value and metadata, as of some revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The revision that created the key (since its last deletion).
    pub create_revision: i64,
    /// The revision of this value.
    pub mod_revision: i64,
    /// Number of writes since the key's creation; 1 for a fresh key.
    pub version: i64,
    /// The value.
    pub value: Bytes,
    /// The lease it is attached to, or 0.
    pub lease: i64,
}

/// The sort order of a `RangeRequest`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// As stored: by key, ascending.
    #[default]
    None,
    /// Smallest first.
    Ascend,
    /// Largest first.
    Descend,
}

/// The sort key of a `RangeRequest`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// The version.
    Version,
    /// The creating revision.
    Create,
    /// The revision of the value.
    Mod,
    /// The value.
    Value,
}

/// Reads keys. An empty `range_end` means the one key; a single zero byte means everything from `key` on.
#[derive(Debug, Clone, Default)]
pub struct RangeRequest {
    /// First key.
    pub key: Bytes,
    /// First key after the range.
    pub range_end: Bytes,
    /// Maximum number of keys, 0 for all.
    pub limit: i64,
    /// The revision to read, 0 for now.
    pub revision: i64,
    /// The sort order.
    pub sort_order: SortOrder,
    /// The sort key.
    pub sort_target: SortTarget,
    /// Whether to omit values.
    pub keys_only: bool,
    /// Whether to return only the count.
    pub count_only: bool,
    /// Drop values older than this revision, 0 for no bound.
    pub min_mod_revision: i64,
    /// Drop values newer than this revision, 0 for no bound.
    pub max_mod_revision: i64,
    /// Drop keys created before this revision, 0 for no bound.
    pub min_create_revision: i64,
    /// Drop keys created after this revision, 0 for no bound.
    pub max_create_revision: i64,
}

impl RangeRequest {
    /// Requests one key, now.
    #[must_use]
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Requests all keys that start with `prefix`, now.
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let (key, range_end) = prefix_range(prefix.into());
        Self { key, range_end, ..Self::default() }
    }

    /// Whether the limit, if any, bounds how many values must be read: an order or a filter requires reading all.
    pub fn reads_only_its_limit(&self) -> bool {
        let bounds = [
            self.min_mod_revision,
            self.max_mod_revision,
            self.min_create_revision,
            self.max_create_revision,
        ];
        self.sort_order == SortOrder::None && bounds.iter().all(|&bound| bound == 0)
    }
}

/// Answer to [`RangeRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// The store's revision at the time of the answer.
    pub revision: i64,
    /// The keys found.
    pub kvs: Vec<KeyValue>,
    /// Whether `limit` truncated the answer.
    pub more: bool,
    /// The number of keys in the range, before limit and filters.
    pub count: i64,
}

/// Writes one key.
#[derive(Debug, Clone, Default)]
pub struct PutRequest {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The lease to attach it to, 0 for none.
    pub lease: i64,
    /// Whether to return the previous value.
    pub prev_kv: bool,
    /// Whether to keep the existing value.
    pub ignore_value: bool,
    /// Whether to keep the existing lease.
    pub ignore_lease: bool,
}

/// Answer to [`PutRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutResponse {
    /// The revision of this write.
    pub revision: i64,
    /// The previous value, if requested.
    pub prev_kv: Option<KeyValue>,
}

/// Deletes keys; the range is as in [`RangeRequest`].
#[derive(Debug, Clone, Default)]
pub struct DeleteRangeRequest {
    /// First key.
    pub key: Bytes,
    /// First key after the range.
    pub range_end: Bytes,
    /// Whether to return the deleted keys.
    pub prev_kv: bool,
}

/// Answer to [`DeleteRangeRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteRangeResponse {
    /// The store's revision after it; unchanged if nothing was deleted.
    pub revision: i64,
    /// The number of deleted keys.
    pub deleted: i64,
    /// The deleted keys, if requested.
    pub prev_kvs: Vec<KeyValue>,
}

/// The relation that a [`Compare`] requires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CompareResult {
    /// Stored equals given.
    #[default]
    Equal,
    /// Stored is greater than given.
    Greater,
    /// Stored is less than given.
    Less,
    /// Stored differs from given.
    NotEqual,
}

/// The property that a [`Compare`] examines, and the value to compare it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompareTarget {
    /// The key's version; 0 for a key that does not exist.
    Version(i64),
    /// Its creating revision; 0 for a key that does not exist.
    Create(i64),
    /// Its latest revision; 0 for a key that does not exist.
    Mod(i64),
    /// Its value; a key that does not exist fails every comparison.
    Value(Bytes),
    /// Its lease.
    Lease(i64),
}

/// One condition of a transaction. With a range it must hold for every key in it.
#[derive(Debug, Clone)]
pub struct Compare {
    /// First key.
    pub key: Bytes,
    /// First key after the range, empty for a single key.
    pub range_end: Bytes,
    /// The relation.
    pub result: CompareResult,
    /// The property to compare, and the value to compare it with.
    pub target: CompareTarget,
}

impl Compare {
    /// "`key` is at `revision`": the compare-and-swap condition; 0 requires that it does not exist.
    #[must_use]
    pub fn mod_revision(key: impl Into<Bytes>, revision: i64) -> Self {
        Self {
            key: key.into(),
            range_end: Bytes::new(),
            result: CompareResult::Equal,
            target: CompareTarget::Mod(revision),
        }
    }
}

/// One operation of a transaction.
#[derive(Debug, Clone)]
pub enum Op {
    /// Read.
    Range(RangeRequest),
    /// Write.
    Put(PutRequest),
    /// Delete.
    DeleteRange(DeleteRangeRequest),
    /// A nested transaction.
    Txn(TxnRequest),
}

/// Answer to one [`Op`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResponse {
    /// To a read.
    Range(RangeResponse),
    /// To a write.
    Put(PutResponse),
    /// To a deletion.
    DeleteRange(DeleteRangeResponse),
    /// To a transaction.
    Txn(TxnResponse),
}

/// Runs the first list if all conditions hold, else the second; all of it at one revision.
#[derive(Debug, Clone, Default)]
pub struct TxnRequest {
    /// The conditions. All of them, nested ones too, see the state before the transaction.
    pub compare: Vec<Compare>,
    /// Run when all conditions hold.
    pub success: Vec<Op>,
    /// Run otherwise.
    pub failure: Vec<Op>,
}

/// Answer to [`TxnRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnResponse {
    /// The store's revision after the transaction.
    pub revision: i64,
    /// Whether the conditions held.
    pub succeeded: bool,
    /// One answer per operation of the list that was run.
    pub responses: Vec<OpResponse>,
}

/// Opens one watch.
#[derive(Debug, Clone, Default)]
pub struct WatchRequest {
    /// First key; empty with a non-empty `range_end` means from the very first key.
    pub key: Bytes,
    /// First key after the range, as in [`RangeRequest`].
    pub range_end: Bytes,
    /// Deliver from this revision on, 0 for "from now".
    pub start_revision: i64,
    /// Whether to add the previous value to each event.
    pub prev_kv: bool,
    /// Whether to omit puts.
    pub no_put: bool,
    /// Whether to omit deletions.
    pub no_delete: bool,
    /// The id to give the watch, 0 to let the store choose.
    pub watch_id: i64,
}

impl WatchRequest {
    /// Watches everything under `prefix` from `start_revision` on.
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>, start_revision: i64) -> Self {
        let (key, range_end) = prefix_range(prefix.into());
        Self { key, range_end, start_revision, ..Self::default() }
    }
}

/// Whether an [`Event`] wrote or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key was written.
    Put,
    /// The key was deleted; `kv` has only `key` and `mod_revision`.
    Delete,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key after it.
    pub kv: KeyValue,
    /// The key before it, if requested and not compacted away.
    pub prev_kv: Option<KeyValue>,
}

/// An event shared by all its receivers, with a place for its encoded form.
#[derive(Debug)]
pub struct SharedEvent {
    event: Event,
    form: OnceLock<Bytes>,
}

impl SharedEvent {
    /// Wraps an event that has not been delivered yet.
    #[must_use]
    pub fn new(event: Event) -> Self {
        Self { event, form: OnceLock::new() }
    }

    /// The encoded form of the event, created by the first caller. All callers must use the same form.
    pub fn form(&self, make: impl FnOnce(&Event) -> Bytes) -> Bytes {
        self.form.get_or_init(|| make(&self.event)).clone()
    }
}

impl Deref for SharedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl PartialEq for SharedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.event == other.event
    }
}

impl Eq for SharedEvent {}

/// A message of a watch stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchMessage {
    /// Changes, oldest first; never half a revision.
    Events {
        /// The watch.
        watch_id: i64,
        /// Everything up to this revision has now been delivered to this watch.
        revision: i64,
        /// The changes; may be of several revisions.
        events: Vec<Arc<SharedEvent>>,
    },
    /// All watches of the stream have received everything up to this revision (answer to `request_progress`).
    Progress {
        /// The revision.
        revision: i64,
    },
    /// The watch ended because revisions it still needed have been compacted.
    Compacted {
        /// The watch.
        watch_id: i64,
        /// Revisions before this are gone.
        compact_revision: i64,
    },
}

/// A lease as granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The lease's id.
    pub id: i64,
    /// Seconds it lives without renewal.
    pub ttl: i64,
    /// The store's revision.
    pub revision: i64,
}

/// The remaining time of a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseTtl {
    /// The lease's id.
    pub id: i64,
    /// Seconds left, -1 if there is no such lease.
    pub ttl: i64,
    /// The granted time in seconds.
    pub granted_ttl: i64,
    /// The attached keys, if requested.
    pub keys: Vec<Bytes>,
}

/// The store's status figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Current revision.
    pub revision: i64,
    /// Revision of the last compaction, 0 for none (etcd says -1 internally, 0 outside).
    pub compact_revision: i64,
    /// Bytes of the file that are in use, garbage included.
    pub file_bytes: u64,
    /// Bytes of the records still needed.
    pub live_bytes: u64,
    /// Number of keys, including deleted ones that are still in the history.
    pub keys: u64,
    /// Watches that are open.
    pub watchers: u64,
    /// Leases that are alive.
    pub leases: u64,
    /// Whether the quota alarm is on.
    pub no_space_alarm: bool,
    /// Random identity of this store.
    pub cluster_id: u64,
    /// Random identity of the store's one member.
    pub member_id: u64,
}

/// The range of all keys that start with `prefix`, as (`key`, `range_end`); an empty prefix is everything.
#[must_use]
pub fn prefix_range(prefix: Bytes) -> (Bytes, Bytes) {
    if prefix.is_empty() {
        return (Bytes::from_static(b"\0"), Bytes::from_static(b"\0"));
    }
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < 0xff {
            *last += 1;
            return (prefix, end.into());
        }
        end.pop();
    }
    (prefix, Bytes::from_static(b"\0"))
}

#[cfg(test)]
mod tests {
    use super::{RangeRequest, SortOrder, SortTarget};

    #[test]
    fn a_limit_bounds_reading_unless_an_order_or_filter_needs_everything() {
        let plain = || RangeRequest { limit: 5, ..RangeRequest::prefix("/a/") };
        for (name, request, expected) in [
            ("a limit", plain(), true),
            ("no limit", RangeRequest::prefix("/a/"), true),
            ("as of a revision", RangeRequest { revision: 7, ..plain() }, true),
            ("without values", RangeRequest { keys_only: true, ..plain() }, true),
            ("a target without an order", RangeRequest { sort_target: SortTarget::Mod, ..plain() }, true),
            ("smallest first", RangeRequest { sort_order: SortOrder::Ascend, ..plain() }, false),
            ("largest first", RangeRequest { sort_order: SortOrder::Descend, ..plain() }, false),
            ("values that are new enough", RangeRequest { min_mod_revision: 1, ..plain() }, false),
            ("values that are old enough", RangeRequest { max_mod_revision: 9, ..plain() }, false),
            ("keys that are new enough", RangeRequest { min_create_revision: 1, ..plain() }, false),
            ("keys that are old enough", RangeRequest { max_create_revision: 9, ..plain() }, false),
        ] {
            assert_eq!(request.reads_only_its_limit(), expected, "{name}");
        }
    }
}
