//! Stateless checks: empty keys, contradicting options, too many or overlapping operations, size. They apply to the
//! server and to in-process callers alike. Order and texts are etcd's.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    error::Error,
    index::KeyRange,
    types::{DeleteRangeRequest, Op, PutRequest, RangeRequest, TxnRequest},
};

/// The assumed size of a message besides its keys and values.
const OVERHEAD: usize = 32;

pub(super) fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

pub(super) fn put(request: &PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

pub(super) fn delete(request: &DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

pub(super) fn txn(request: &TxnRequest, max_ops: usize) -> Result<(), Error> {
    counts(request, max_ops)?;
    overlaps(&request.success)?;
    overlaps(&request.failure)?;
    Ok(())
}

/// Refuses operations larger than `max` bytes.
pub(super) fn size(op: &Op, max: usize) -> Result<(), Error> {
    if op_size(op) > max { Err(Error::RequestTooLarge) } else { Ok(()) }
}

/// The approximate size of an operation as a message, in bytes.
pub(super) fn op_size(op: &Op) -> usize {
    match op {
        Op::Range(request) => request.key.len() + request.range_end.len() + OVERHEAD,
        Op::Put(request) => request.key.len() + request.value.len() + OVERHEAD,
        Op::DeleteRange(request) => request.key.len() + request.range_end.len() + OVERHEAD,
        Op::Txn(request) => {
            let compares = request.compare.iter().map(|compare| {
                let value = match &compare.target {
                    super::types::CompareTarget::Value(value) => value.len(),
                    _ => 0,
                };
                compare.key.len() + compare.range_end.len() + value + OVERHEAD
            });
            let ops = request.success.iter().chain(&request.failure).map(op_size);
            compares.chain(ops).sum::<usize>() + OVERHEAD
        }
    }
}

/// Whether an operation can write, whatever its conditions evaluate to.
pub(super) fn writes(op: &Op) -> bool {
    match op {
        Op::Range(_) => false,
        Op::Put(_) | Op::DeleteRange(_) => true,
        Op::Txn(request) => request.success.iter().chain(&request.failure).any(writes),
    }
}

/// Whether an operation can put and thus need space.
pub(super) fn puts(op: &Op) -> bool {
    match op {
        Op::Range(_) | Op::DeleteRange(_) => false,
        Op::Put(_) => true,
        Op::Txn(request) => request.success.iter().chain(&request.failure).any(puts),
    }
}

/// Nested transactions share what their parent left of the allowance, which also bounds the depth.
fn counts(request: &TxnRequest, max_ops: usize) -> Result<(), Error> {
    let count = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = max_ops.checked_sub(count).ok_or(Error::TooManyOps)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match op {
            Op::Range(request) => range(request)?,
            Op::Put(request) => put(request)?,
            Op::DeleteRange(request) => delete(request)?,
            Op::Txn(request) => counts(request, left)?,
        }
    }
    Ok(())
}

/// Keys put and ranges deleted by a list of operations.
#[derive(Default)]
struct Touched<'a> {
    puts: BTreeSet<&'a Bytes>,
    deletes: Vec<KeyRange<'a>>,
}

impl<'a> Touched<'a> {
    fn add_put(&mut self, key: &'a Bytes) -> Result<(), Error> {
        if self.deletes.iter().any(|range| range.contains(key)) || !self.puts.insert(key) {
            return Err(Error::DuplicateKey);
        }
        Ok(())
    }
}

/// Checks that no key is put twice, or put and deleted, in one transaction; the two branches of a nested one exclude
/// each other and may repeat each other's keys.
fn overlaps(ops: &[Op]) -> Result<Touched<'_>, Error> {
    let mut touched = Touched::default();
    for op in ops {
        if let Op::DeleteRange(request) = op {
            touched.deletes.push(KeyRange::new(&request.key, &request.range_end));
        }
    }
    for op in ops {
        let Op::Txn(request) = op else { continue };
        let success = overlaps(&request.success)?;
        let failure = overlaps(&request.failure)?;
        for &key in &success.puts {
            touched.add_put(key)?;
        }
        for &key in failure.puts.iter().filter(|key| !success.puts.contains(*key)) {
            touched.add_put(key)?;
        }
        touched.deletes.extend(success.deletes);
        touched.deletes.extend(failure.deletes);
    }
    for op in ops {
        if let Op::Put(request) = op {
            touched.add_put(&request.key)?;
        }
    }
    Ok(touched)
}
