//! Converts between etcd's messages and the engine's own types. Only renames and moves; the engine decides what a
//! request means.

use bytes::Bytes;
use etcd_api::{
    etcdserverpb::{self as pb, compare, range_request, request_op, response_op},
    mvccpb,
};
use prost::Message as _;
use tonic::{Code, Status};

use kvstore_engine::{
    self as engine, Compare, CompareResult, CompareTarget, Error, Event, EventKind, KeyValue, Op, OpResponse,
    SortOrder, SortTarget,
};

/// etcd's status code for each error; the texts are the errors' own.
#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
pub(super) fn status(error: Error) -> Status {
    let code = match &error {
        Error::Compacted { .. } | Error::FutureRevision | Error::LeaseTtlTooLarge => Code::OutOfRange,
        Error::EmptyKey
        | Error::KeyNotFound
        | Error::ValueProvided
        | Error::LeaseProvided
        | Error::DuplicateKey
        | Error::TooManyOps
        | Error::InvalidSortOption
        | Error::RequestTooLarge => Code::InvalidArgument,
        Error::LeaseNotFound => Code::NotFound,
        Error::LeaseExists => Code::FailedPrecondition,
        Error::NoSpace => Code::ResourceExhausted,
        Error::Stopped => Code::Unavailable,
        Error::Broken(_) => Code::Internal,
        Error::Read(_) => Code::DataLoss,
    };
    Status::new(code, error.to_string())
}

pub(super) fn range_request(request: pb::RangeRequest) -> Result<engine::RangeRequest, Status> {
    use range_request as sort;
    // etcd looks at the key first.
    if request.key.is_empty() {
        return Err(status(Error::EmptyKey));
    }
    let sort_order = match sort::SortOrder::try_from(request.sort_order) {
        Ok(sort::SortOrder::None) => SortOrder::None,
        Ok(sort::SortOrder::Ascend) => SortOrder::Ascend,
        Ok(sort::SortOrder::Descend) => SortOrder::Descend,
        Err(_) => return Err(status(Error::InvalidSortOption)),
    };
    let sort_target = match sort::SortTarget::try_from(request.sort_target) {
        Ok(sort::SortTarget::Key) => SortTarget::Key,
        Ok(sort::SortTarget::Version) => SortTarget::Version,
        Ok(sort::SortTarget::Create) => SortTarget::Create,
        Ok(sort::SortTarget::Mod) => SortTarget::Mod,
        Ok(sort::SortTarget::Value) => SortTarget::Value,
        Err(_) => return Err(status(Error::InvalidSortOption)),
    };
    Ok(engine::RangeRequest {
        key: request.key,
        range_end: request.range_end,
        limit: request.limit,
        revision: request.revision,
        sort_order,
        sort_target,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
    })
}

pub(super) fn put_request(request: pb::PutRequest) -> engine::PutRequest {
    engine::PutRequest {
        key: request.key,
        value: request.value,
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    }
}

pub(super) fn delete_request(request: pb::DeleteRangeRequest) -> engine::DeleteRangeRequest {
    engine::DeleteRangeRequest { key: request.key, range_end: request.range_end, prev_kv: request.prev_kv }
}

/// Converts a transaction. The depth of nesting was bounded when the message was decoded.
pub(super) fn txn_request(request: pb::TxnRequest) -> Result<engine::TxnRequest, Status> {
    let ops = |ops: Vec<pb::RequestOp>| ops.into_iter().map(op).collect::<Result<_, _>>();
    Ok(engine::TxnRequest {
        compare: request.compare.into_iter().map(compare).collect(),
        success: ops(request.success)?,
        failure: ops(request.failure)?,
    })
}

fn op(op: pb::RequestOp) -> Result<Op, Status> {
    Ok(match op.request {
        Some(request_op::Request::RequestRange(request)) => Op::Range(range_request(request)?),
        Some(request_op::Request::RequestPut(request)) => Op::Put(put_request(request)),
        Some(request_op::Request::RequestDeleteRange(request)) => Op::DeleteRange(delete_request(request)),
        Some(request_op::Request::RequestTxn(request)) => Op::Txn(txn_request(request)?),
        // etcd's answer to an operation without a request.
        None => return Err(status(Error::KeyNotFound)),
    })
}

/// As in etcd, the target determines what is compared; a value given for another target counts as zero or empty.
fn compare(request: pb::Compare) -> Compare {
    use compare::{CompareResult as R, CompareTarget as T, TargetUnion as U};
    let union = request.target_union;
    let target = match T::try_from(request.target).unwrap_or(T::Version) {
        T::Version => CompareTarget::Version(if let Some(U::Version(it)) = union { it } else { 0 }),
        T::Create => CompareTarget::Create(if let Some(U::CreateRevision(it)) = union { it } else { 0 }),
        T::Mod => CompareTarget::Mod(if let Some(U::ModRevision(it)) = union { it } else { 0 }),
        T::Value => CompareTarget::Value(if let Some(U::Value(it)) = union { it } else { Bytes::new() }),
        T::Lease => CompareTarget::Lease(if let Some(U::Lease(it)) = union { it } else { 0 }),
    };
    let result = match R::try_from(request.result).unwrap_or(R::Equal) {
        R::Equal => CompareResult::Equal,
        R::Greater => CompareResult::Greater,
        R::Less => CompareResult::Less,
        R::NotEqual => CompareResult::NotEqual,
    };
    Compare { key: request.key, range_end: request.range_end, result, target }
}

/// A header with the revision only, as in the answers inside a transaction.
fn bare(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..pb::ResponseHeader::default() })
}

pub(super) fn range_response(response: engine::RangeResponse) -> pb::RangeResponse {
    pb::RangeResponse {
        header: bare(response.revision),
        kvs: response.kvs.into_iter().map(key_value).collect(),
        more: response.more,
        count: response.count,
    }
}

pub(super) fn put_response(response: engine::PutResponse) -> pb::PutResponse {
    pb::PutResponse { header: bare(response.revision), prev_kv: response.prev_kv.map(key_value) }
}

pub(super) fn delete_response(response: engine::DeleteRangeResponse) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: bare(response.revision),
        deleted: response.deleted,
        prev_kvs: response.prev_kvs.into_iter().map(key_value).collect(),
    }
}

pub(super) fn txn_response(response: engine::TxnResponse) -> pb::TxnResponse {
    let responses = response.responses.into_iter().map(|response| {
        let response = match response {
            OpResponse::Range(it) => response_op::Response::ResponseRange(range_response(it)),
            OpResponse::Put(it) => response_op::Response::ResponsePut(put_response(it)),
            OpResponse::DeleteRange(it) => response_op::Response::ResponseDeleteRange(delete_response(it)),
            OpResponse::Txn(it) => response_op::Response::ResponseTxn(txn_response(it)),
        };
        pb::ResponseOp { response: Some(response) }
    });
    pb::TxnResponse {
        header: bare(response.revision),
        succeeded: response.succeeded,
        responses: responses.collect(),
    }
}

pub(super) fn key_value(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
    }
}

/// The encoded form of an event in messages; created once for all watches that receive it.
pub(super) fn event_form(event: &Event) -> Bytes {
    let kind = match event.kind {
        EventKind::Put => mvccpb::event::EventType::Put,
        EventKind::Delete => mvccpb::event::EventType::Delete,
    };
    let message = mvccpb::Event {
        r#type: kind.into(),
        kv: Some(key_value(event.kv.clone())),
        prev_kv: event.prev_kv.clone().map(key_value),
    };
    message.encode_to_vec().into()
}
