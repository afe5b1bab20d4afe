//! The commit under construction: changes are in the index at once, under revisions that readers do not see yet, and in
//! the frame to be written to the file. If the write fails, all changes are rolled back. Does no I/O except to read
//! what a request needs.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    check,
    error::Error,
    evaluate::{self, Path},
    index::{Entry, KeyRange, Place},
    lease::Lease,
    log::{FRAME_HEADER, Record, encode_delete, encode_put},
    read::{CHUNK, Pending, View, lock, read, write},
    shared::Shared,
    types::{
        DeleteRangeRequest, DeleteRangeResponse, KeyValue, Op, OpResponse, PutRequest, PutResponse,
        TxnRequest, TxnResponse,
    },
};

/// How to undo a change.
enum Undo {
    Key { key: Bytes, create_revision: i64, version: i64 },
    Attach { key: Bytes, before: i64 },
    Grant(i64),
    Revoke(i64, Lease),
}

/// A commit under construction.
pub(super) struct Batch {
    shared: Arc<Shared>,
    slot: usize,
    /// Where the frame will start.
    base: u64,
    pub(super) frame: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    undo: Vec<Undo>,
    /// The newest revision, including this commit's.
    pub(super) revision: i64,
    /// Changes of the current operation, which will be revision `revision + 1`.
    changes: u32,
}

impl Batch {
    pub(super) fn new(shared: Arc<Shared>, slot: usize, base: u64, revision: i64) -> Self {
        let frame = vec![0; FRAME_HEADER];
        Self { shared, slot, base, frame, entries: Vec::new(), undo: Vec::new(), revision, changes: 0 }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.frame.len() == FRAME_HEADER
    }

    /// Prepares the batch for the next commit, at `base` of the file in `slot`.
    pub(super) fn reset(&mut self, slot: usize, base: u64) {
        (self.slot, self.base) = (slot, base);
        self.frame.truncate(FRAME_HEADER);
        if self.frame.capacity() > 256 << 10 {
            self.frame.shrink_to(256 << 10);
        }
        self.entries.clear();
        self.undo.clear();
    }

    /// Rolls back all changes; `revision` is the one before the batch.
    pub(super) fn roll_back(&mut self, revision: i64) {
        self.roll_back_to(0, FRAME_HEADER, 0);
        self.revision = revision;
    }

    /// Carries out one operation: all of it or, on error, none of it.
    pub(super) fn apply(&mut self, op: &Op) -> Result<OpResponse, Error> {
        let mark = (self.undo.len(), self.frame.len(), self.entries.len());
        self.changes = 0;
        let result = self.top_level(op);
        match &result {
            Ok(_) if self.changes > 0 => self.revision += 1,
            Ok(_) => {}
            Err(_) => self.roll_back_to(mark.0, mark.1, mark.2),
        }
        self.changes = 0;
        result
    }

    /// Grants a lease.
    pub(super) fn grant(&mut self, id: i64, ttl: i64) -> Result<(), Error> {
        let mut leases = lock(&self.shared.leases);
        if leases.contains(id) {
            return Err(Error::LeaseExists);
        }
        leases.grant(id, ttl, Instant::now());
        drop(leases);
        self.undo.push(Undo::Grant(id));
        self.record(&Record::LeaseGrant { id, ttl });
        Ok(())
    }

    /// Ends a lease and deletes its keys, at one revision.
    pub(super) fn revoke(&mut self, id: i64) -> Result<(), Error> {
        let lease = lock(&self.shared.leases).remove(id).ok_or(Error::LeaseNotFound)?;
        self.undo.push(Undo::Revoke(id, lease.clone()));
        self.record(&Record::LeaseRevoke { id });
        self.changes = 0;
        for key in &lease.keys {
            self.delete_key(key);
        }
        self.revision += i64::from(self.changes > 0);
        self.changes = 0;
        Ok(())
    }

    /// Adds a record that concerns no key.
    pub(super) fn record(&mut self, record: &Record) {
        record.encode(&mut self.frame);
    }

    fn top_level(&mut self, op: &Op) -> Result<OpResponse, Error> {
        let lease_exists = |shared: &Shared, id| lock(&shared.leases).contains(id);
        match op {
            Op::Range(request) => Ok(OpResponse::Range(self.view().range(request)?)),
            Op::Put(request) => {
                if request.lease != 0 && !lease_exists(&self.shared, request.lease) {
                    return Err(Error::LeaseNotFound);
                }
                self.put(request).map(OpResponse::Put)
            }
            Op::DeleteRange(request) => self.delete(request).map(OpResponse::DeleteRange),
            Op::Txn(request) => {
                let path = {
                    let view = self.view();
                    let path = evaluate::path(&view, request)?;
                    evaluate::check(&view, request, &path, &|id| lease_exists(&self.shared, id))?;
                    path
                };
                let responses = self.txn(request, &path)?;
                let revision = self.revision + i64::from(self.changes > 0);
                Ok(OpResponse::Txn(TxnResponse { revision, succeeded: path.succeeded, responses }))
            }
        }
    }

    fn txn(&mut self, request: &TxnRequest, path: &Path) -> Result<Vec<OpResponse>, Error> {
        let mut inner = path.inner.iter();
        let mut responses = Vec::new();
        for op in path.ops(request) {
            responses.push(match op {
                Op::Range(request) => OpResponse::Range(self.view().range(request)?),
                Op::Put(request) => OpResponse::Put(self.put(request)?),
                Op::DeleteRange(request) => OpResponse::DeleteRange(self.delete(request)?),
                Op::Txn(request) => {
                    // `path` was built from these operations, so it has one entry per transaction.
                    let Some(path) = inner.next() else { continue };
                    let responses = self.txn(request, path)?;
                    evaluate::inner_response(path, responses)
                }
            });
        }
        Ok(responses)
    }

    /// The state as the current operation sees it, including its own changes.
    fn view(&self) -> View<'_> {
        View {
            index: &self.shared.index,
            pins: &self.shared.pins,
            revision: self.revision + i64::from(self.changes > 0),
            pending: Some(Pending { slot: self.slot, base: self.base, bytes: &self.frame }),
        }
    }

    fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Error> {
        let (mut value, mut lease) = (request.value.clone(), request.lease);
        let mut prev_kv = None;
        if request.ignore_value || request.ignore_lease || request.prev_kv {
            let view = self.view();
            prev_kv = view.get(&request.key, view.revision)?;
        }
        if request.ignore_value {
            value = prev_kv.as_ref().ok_or(Error::KeyNotFound)?.value.clone();
        }
        if request.ignore_lease {
            lease = prev_kv.as_ref().ok_or(Error::KeyNotFound)?.lease;
        }
        let revision = self.revision + 1;
        let place = self.place();
        let (frame, changes) = (&mut self.frame, self.changes);
        let mut entry = None;
        let (create_revision, version) = write(&self.shared.index).update(&request.key, |create, version| {
            let kv = KeyValue {
                key: request.key.clone(),
                create_revision: if version == 0 { revision } else { create },
                mod_revision: revision,
                version: version + 1,
                value,
                lease,
            };
            let length = encode_put(frame, changes, &kv);
            let fresh = Entry::new(revision, changes, false, length, place);
            entry = Some(fresh);
            (fresh, kv.create_revision, kv.version)
        });
        self.undo.push(Undo::Key { key: request.key.clone(), create_revision, version });
        self.attach(&request.key, lease);
        self.entries.extend(entry);
        self.changes += 1;
        let prev_kv = prev_kv.filter(|_| request.prev_kv);
        Ok(PutResponse { revision, prev_kv })
    }

    fn delete(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        let view = self.view();
        let range = KeyRange::new(&request.key, &request.range_end);
        let prev_kvs = if request.prev_kv { view.values(&range, view.revision, 0)?.0 } else { Vec::new() };
        let mut keys: Vec<Bytes> = Vec::new();
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let index = read(&self.shared.index);
            let last = index.walk(&range, after.as_deref(), CHUNK, |key, known| {
                if known.at(view.revision).is_some() {
                    keys.push(Bytes::copy_from_slice(key));
                }
            });
            after = last.map(Box::from);
            if after.is_none() {
                break;
            }
        }
        for key in &keys {
            self.delete_key(key);
        }
        let revision = self.revision + i64::from(self.changes > 0);
        Ok(DeleteRangeResponse { revision, deleted: i64::try_from(keys.len()).unwrap_or(i64::MAX), prev_kvs })
    }

    /// Deletes one existing key.
    fn delete_key(&mut self, key: &Bytes) {
        let revision = self.revision + 1;
        let place = self.place();
        let length = encode_delete(&mut self.frame, revision, self.changes, key);
        let entry = Entry::new(revision, self.changes, true, length, place);
        let (create_revision, version) = write(&self.shared.index).update(key, |_, _| (entry, 0, 0));
        self.undo.push(Undo::Key { key: key.clone(), create_revision, version });
        self.attach(key, 0);
        self.entries.push(entry);
        self.changes += 1;
    }

    fn attach(&mut self, key: &Bytes, lease: i64) {
        let before = lock(&self.shared.leases).attach(key, lease);
        if before != lease {
            self.undo.push(Undo::Attach { key: key.clone(), before });
        }
    }

    fn place(&self) -> Place {
        Place::new(self.slot, self.base + self.frame.len() as u64)
    }

    fn roll_back_to(&mut self, undo: usize, frame: usize, entries: usize) {
        for step in self.undo.drain(undo..).rev() {
            match step {
                Undo::Key { key, create_revision, version } => {
                    write(&self.shared.index).pop(&key, create_revision, version);
                }
                Undo::Attach { key, before } => {
                    lock(&self.shared.leases).attach(&key, before);
                }
                Undo::Grant(id) => {
                    lock(&self.shared.leases).remove(id);
                }
                Undo::Revoke(id, lease) => lock(&self.shared.leases).restore(id, lease),
            }
        }
        self.frame.truncate(frame);
        self.entries.truncate(entries);
    }
}

/// Whether the quota permits `op`, with `live` bytes of data.
pub(super) fn within_quota(op: &Op, live: u64, quota: u64) -> bool {
    quota == 0 || !check::puts(op) || live + check::op_size(op) as u64 <= quota
}
