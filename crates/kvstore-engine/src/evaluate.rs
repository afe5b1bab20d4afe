//! The read-only part of transactions: evaluating the conditions, and answering a transaction without writes. All
//! conditions, nested ones too, are evaluated on the state before the transaction.

use std::cmp::Ordering;

use super::{
    error::Error,
    index::KeyRange,
    read::View,
    types::{Compare, CompareResult, CompareTarget, KeyValue, Op, OpResponse, TxnRequest, TxnResponse},
};

/// The list that a transaction takes, then those that its inner transactions take, in order.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) succeeded: bool,
    pub(super) inner: Vec<Path>,
}

impl Path {
    /// The list of operations that this path takes.
    pub(super) fn ops<'a>(&self, request: &'a TxnRequest) -> &'a [Op] {
        if self.succeeded { &request.success } else { &request.failure }
    }
}

/// Evaluates all conditions.
pub(super) fn path(view: &View<'_>, request: &TxnRequest) -> Result<Path, Error> {
    let mut succeeded = true;
    for compare in &request.compare {
        if !holds(view, compare)? {
            succeeded = false;
            break;
        }
    }
    let mut path = Path { succeeded, inner: Vec::new() };
    for op in path.ops(request) {
        if let Op::Txn(request) = op {
            path.inner.push(self::path(view, request)?);
        }
    }
    Ok(path)
}

/// Checks everything on the path that can fail because of the state, before anything is written.
pub(super) fn check(
    view: &View<'_>,
    request: &TxnRequest,
    path: &Path,
    lease_exists: &dyn Fn(i64) -> bool,
) -> Result<(), Error> {
    let mut inner = path.inner.iter();
    for op in path.ops(request) {
        match op {
            Op::Range(request) => {
                let at = view.resolve(request.revision)?;
                let compact_revision = super::read::read(view.index).compacted;
                if at < compact_revision {
                    return Err(Error::Compacted { compact_revision });
                }
            }
            Op::Put(request) => {
                if request.ignore_value || request.ignore_lease {
                    let index = super::read::read(view.index);
                    if index.get(&request.key).and_then(|known| known.at(view.revision)).is_none() {
                        return Err(Error::KeyNotFound);
                    }
                }
                if request.lease != 0 && !lease_exists(request.lease) {
                    return Err(Error::LeaseNotFound);
                }
            }
            Op::DeleteRange(_) => {}
            Op::Txn(request) => {
                if let Some(path) = inner.next() {
                    check(view, request, path, lease_exists)?;
                }
            }
        }
    }
    Ok(())
}

/// Answers a transaction that cannot write.
pub(super) fn read_only(view: &View<'_>, request: &TxnRequest) -> Result<TxnResponse, Error> {
    let path = path(view, request)?;
    check(view, request, &path, &|_| true)?;
    let responses = read_ops(view, request, &path)?;
    Ok(TxnResponse { revision: view.revision, succeeded: path.succeeded, responses })
}

fn read_ops(view: &View<'_>, request: &TxnRequest, path: &Path) -> Result<Vec<OpResponse>, Error> {
    let mut inner = path.inner.iter();
    let mut responses = Vec::new();
    for op in path.ops(request) {
        match op {
            Op::Range(request) => responses.push(OpResponse::Range(view.range(request)?)),
            Op::Txn(request) => {
                if let Some(path) = inner.next() {
                    let inner = read_ops(view, request, path)?;
                    responses.push(inner_response(path, inner));
                }
            }
            // The caller has ensured that there are none.
            Op::Put(_) | Op::DeleteRange(_) => {}
        }
    }
    Ok(responses)
}

/// The answer of a transaction inside a transaction; etcd leaves its revision at 0.
pub(super) fn inner_response(path: &Path, responses: Vec<OpResponse>) -> OpResponse {
    OpResponse::Txn(TxnResponse { revision: 0, succeeded: path.succeeded, responses })
}

fn holds(view: &View<'_>, compare: &Compare) -> Result<bool, Error> {
    let kvs = if compare.range_end.is_empty() {
        Vec::from_iter(view.get(&compare.key, view.revision)?)
    } else {
        view.values(&KeyRange::new(&compare.key, &compare.range_end), view.revision, 0)?.0
    };
    if kvs.is_empty() {
        return Ok(
            !matches!(compare.target, CompareTarget::Value(_)) && matches(compare, &KeyValue::default())
        );
    }
    Ok(kvs.iter().all(|kv| matches(compare, kv)))
}

fn matches(compare: &Compare, kv: &KeyValue) -> bool {
    let ordering = match &compare.target {
        CompareTarget::Version(version) => kv.version.cmp(version),
        CompareTarget::Create(revision) => kv.create_revision.cmp(revision),
        CompareTarget::Mod(revision) => kv.mod_revision.cmp(revision),
        CompareTarget::Value(value) => kv.value.cmp(value),
        CompareTarget::Lease(lease) => kv.lease.cmp(lease),
    };
    match compare.result {
        CompareResult::Equal => ordering == Ordering::Equal,
        CompareResult::Greater => ordering == Ordering::Greater,
        CompareResult::Less => ordering == Ordering::Less,
        CompareResult::NotEqual => ordering != Ordering::Equal,
    }
}
