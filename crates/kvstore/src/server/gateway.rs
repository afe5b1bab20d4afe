//! The JSON gateway: etcd's API under `/v3/` for `curl` and scripts. JSON is mapped by the protocol's own descriptors:
//! bytes are base64, 64-bit numbers are strings, empty fields are omitted, unknown fields are ignored. It adds nothing
//! to what the services do.

use std::{future::Future, sync::OnceLock};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use etcd_api::{
    DESCRIPTORS,
    etcdserverpb::{
        self as pb, auth_server::Auth as _, cluster_server::Cluster as _, kv_server::Kv as _,
        lease_server::Lease as _, maintenance_server::Maintenance as _,
    },
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::{json, value::RawValue};
use tonic::{Code, Request, Status};

use super::services::Api;

/// The body may be larger than the message by this factor: base64 adds a third, field names some more.
const JSON_OVERHEAD: usize = 2;

/// Answers `POST /v3/...`.
pub(super) async fn handle(State(api): State<Api>, Path(path): Path<String>, body: Body) -> Response {
    match dispatch(api, &path, body).await {
        Ok(response) => response,
        Err(status) => refuse(&status),
    }
}

async fn dispatch(api: Api, path: &str, body: Body) -> Result<Response, Status> {
    if path == "watch" {
        let requests =
            Box::pin(values(body)).map(|value| decode::<pb::WatchRequest>("WatchRequest", &value?));
        return Ok(results("WatchResponse", api.watch_messages(requests)));
    }
    let limit = api.store.options().max_request_bytes.saturating_mul(JSON_OVERHEAD) + (64 << 10);
    let body = axum::body::to_bytes(body, limit)
        .await
        .map_err(|error| Status::invalid_argument(format!("the body cannot be read: {error}")))?;
    let body = &body[..];
    match path {
        "kv/range" => unary("Range", body, |request| api.range(request)).await,
        "kv/put" => unary("Put", body, |request| api.put(request)).await,
        "kv/deleterange" => unary("DeleteRange", body, |request| api.delete_range(request)).await,
        "kv/txn" => unary("Txn", body, |request| api.txn(request)).await,
        "kv/compaction" => unary("Compaction", body, |request| api.compact(request)).await,
        "lease/grant" => unary("LeaseGrant", body, |request| api.lease_grant(request)).await,
        "lease/revoke" | "kv/lease/revoke" => {
            unary("LeaseRevoke", body, |request| api.lease_revoke(request)).await
        }
        "lease/timetolive" | "kv/lease/timetolive" => {
            unary("LeaseTimeToLive", body, |request| api.lease_time_to_live(request)).await
        }
        "lease/leases" | "kv/lease/leases" => {
            unary("LeaseLeases", body, |request| api.lease_leases(request)).await
        }
        "lease/keepalive" => keep_alive(&api, body),
        "cluster/member/list" => unary("MemberList", body, |request| api.member_list(request)).await,
        "maintenance/alarm" => unary("Alarm", body, |request| api.alarm(request)).await,
        "maintenance/status" => unary("Status", body, |request| api.status(request)).await,
        "maintenance/defragment" => unary("Defragment", body, |request| api.defragment(request)).await,
        "maintenance/hash" => unary("Hash", body, |request| api.hash(request)).await,
        "maintenance/hashkv" => unary("HashKV", body, |request| api.hash_kv(request)).await,
        "maintenance/snapshot" => {
            let parts = api.snapshot(Request::new(decode("SnapshotRequest", body)?)).await?;
            Ok(results("SnapshotResponse", parts.into_inner()))
        }
        "auth/status" => unary("AuthStatus", body, |request| api.auth_status(request)).await,
        "auth/authenticate" => unary("Authenticate", body, |request| api.authenticate(request)).await,
        _ => Ok(super::pages::not_found().await),
    }
}

/// Decodes a request of the API from JSON; an empty text is an empty request. Public for the fuzzer.
///
/// # Errors
/// When the text is not such a request; the error explains why.
pub fn decode_json(message: &str, text: &[u8]) -> Result<Vec<u8>, String> {
    let descriptor = descriptor(message).ok_or_else(|| format!("there is no message {message}"))?;
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let decoded = DynamicMessage::deserialize_with_options(descriptor, &mut deserializer, &options)
        .and_then(|decoded| deserializer.end().map(|()| decoded))
        .map_err(|error| error.to_string())?;
    Ok(decoded.encode_to_vec())
}

fn descriptor(message: &str) -> Option<MessageDescriptor> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());
    pool.get_message_by_name(&format!("etcdserverpb.{message}"))
}

fn decode<T: Message + Default>(message: &str, text: &[u8]) -> Result<T, Status> {
    let bytes = decode_json(message, text).map_err(Status::invalid_argument)?;
    T::decode(&bytes[..]).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Encodes a message; fields appear in the order of their numbers, as in etcd.
fn encode<T: Message>(name: &str, message: &T) -> Result<String, Status> {
    let internal = |error: &dyn std::fmt::Display| Status::internal(error.to_string());
    let descriptor = descriptor(name).ok_or_else(|| Status::internal("the answer has no description"))?;
    let dynamic =
        DynamicMessage::decode(descriptor, &message.encode_to_vec()[..]).map_err(|error| internal(&error))?;
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(true);
    let mut text = Vec::new();
    dynamic
        .serialize_with_options(&mut serde_json::Serializer::new(&mut text), &options)
        .map_err(|error| internal(&error))?;
    String::from_utf8(text).map_err(|error| internal(&error))
}

async fn unary<Q, A, F>(
    name: &str,
    body: &[u8],
    call: impl FnOnce(Request<Q>) -> F,
) -> Result<Response, Status>
where
    Q: Message + Default,
    A: Message,
    F: Future<Output = Result<tonic::Response<A>, Status>>,
{
    let request = decode(&format!("{name}Request"), body)?;
    let answer = call(Request::new(request)).await?;
    let text = encode(&format!("{name}Response"), answer.get_ref())?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

fn keep_alive(api: &Api, body: &[u8]) -> Result<Response, Status> {
    let request: pb::LeaseKeepAliveRequest = decode("LeaseKeepAliveRequest", body)?;
    let answer = pb::LeaseKeepAliveResponse {
        header: api.header(api.store.revision()),
        id: request.id,
        ttl: api.store.lease_keep_alive(request.id).unwrap_or(0),
    };
    Ok(results("LeaseKeepAliveResponse", stream::iter([Ok(answer)])))
}

/// A stream of answers, one JSON object per line.
fn results<T: Message + 'static>(
    name: &'static str,
    answers: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Response {
    let lines = answers.map(move |answer| {
        let line = match answer.and_then(|answer| encode(name, &answer)) {
            Ok(text) => format!("{{\"result\":{text}}}\n"),
            Err(status) => {
                let http = http_status(status.code());
                json!({ "error": {
                    "grpc_code": status.code() as i32,
                    "http_code": http.as_u16(),
                    "message": status.message(),
                    "http_status": http.canonical_reason(),
                }})
                .to_string()
                    + "\n"
            }
        };
        Ok::<_, std::convert::Infallible>(Bytes::from(line))
    });
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

/// The JSON values of a body, each as soon as it is complete.
fn values(body: Body) -> impl Stream<Item = Result<Vec<u8>, Status>> + Send {
    const LIMIT: usize = 64 << 10;
    let state = (body.into_data_stream(), Vec::new());
    stream::try_unfold(state, |(mut body, mut buffer)| async move {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&buffer).into_iter::<Box<RawValue>>();
            match values.next() {
                Some(Ok(value)) => {
                    let rest = buffer.split_off(values.byte_offset());
                    return Ok(Some((value.get().as_bytes().to_vec(), (body, rest))));
                }
                Some(Err(error)) if !error.is_eof() => {
                    return Err(Status::invalid_argument(error.to_string()));
                }
                _ => {}
            }
            if buffer.len() > LIMIT {
                return Err(Status::invalid_argument("a watch request is too long"));
            }
            let next = body.try_next().await.map_err(|error| Status::invalid_argument(error.to_string()))?;
            let Some(next) = next else { return Ok(None) };
            buffer.extend_from_slice(&next);
        }
    })
}

/// An error in the wording of etcd's gateway.
fn refuse(status: &Status) -> Response {
    let text = json!(status.message());
    let body = format!(r#"{{"error":{text},"message":{text},"code":{}}}"#, status.code() as i32);
    (http_status(status.code()), [(CONTENT_TYPE, "application/json")], body).into_response()
}

fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::FailedPrecondition => StatusCode::PRECONDITION_FAILED,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
