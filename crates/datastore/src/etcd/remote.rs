//! The transport over gRPC: a real etcd cluster, or `tortie datastore` on its socket.
//!
//! Members are alternatives, and one session with one of them serves all requests until it fails
//! ([`session`](super::session)). A request that cannot have been carried out (no connection) is sent again over a new
//! session, and so are reads whose connection broke. A write whose outcome is unknown is never repeated here: the
//! caller gets a transient error and decides. A watch is never resumed silently either.

use super::config::EtcdConfig;
use super::session::{Session, Sessions};
use super::status::{Failure, cancellation, failure};
use super::transport::{
    Change, Condition, Entry, RangeRequest, RangeResponse, Span, Step, Transaction, TransactionResponse,
    Transport, TransportError, WatchAnswer, WatchRequest,
};
use crate::error::Result as StoreResult;
use async_trait::async_trait;
use etcd_api::Client;
use etcd_api::etcdserverpb::{
    self as pb, compare::CompareResult, compare::CompareTarget, compare::TargetUnion, request_op,
    response_op, watch_request::RequestUnion,
};
use etcd_api::mvccpb::{self, event::EventType};
use futures::StreamExt as _;
use std::sync::Arc;
use tokio::sync::oneshot;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Status, Streaming};

/// A cluster of etcd members, or one `tortie datastore`.
pub struct RemoteTransport {
    sessions: Arc<Sessions>,
}

impl RemoteTransport {
    /// Checks the settings. No connection is opened until it is needed.
    ///
    /// # Errors
    /// When the settings contradict each other or a certificate cannot be read.
    pub async fn new(config: &EtcdConfig) -> StoreResult<Self> {
        Ok(Self { sessions: Arc::new(Sessions::new(config).await?) })
    }

    async fn call<T, F>(&self, repeatable: bool, request: impl Fn(Client) -> F) -> Result<T, TransportError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.call_with_session(repeatable, request).await.map(|(answer, _)| answer)
    }

    /// Sends the request over one session after another until a member answers.
    async fn call_with_session<T, F>(
        &self,
        repeatable: bool,
        request: impl Fn(Client) -> F,
    ) -> Result<(T, Arc<Session>), TransportError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut failures = Vec::new();
        // One more than there are members: one that was restarted refuses only the first request on the old connection.
        for _ in 0..=self.sessions.members() {
            let session = self.sessions.current().await?;
            let status = match session.ask(&request).await {
                Ok(answer) => {
                    self.sessions.answered(&session);
                    return Ok((answer, session));
                }
                Err(status) => status,
            };
            match failure(&status) {
                Failure::Refused(error) => {
                    self.sessions.answered(&session);
                    return Err(error);
                }
                Failure::NotSent(text) => {
                    self.sessions.lost(&session).await;
                    failures.push(self.sessions.explain(&session, &text));
                }
                Failure::Unknown(text) => {
                    let text = self.sessions.explain(&session, &text);
                    self.sessions.failed(&session, &status).await;
                    if !repeatable {
                        return Err(TransportError::Unavailable(text));
                    }
                    failures.push(text);
                }
            }
        }
        failures.dedup();
        Err(TransportError::Unavailable(format!("no etcd endpoint can be reached: {}", failures.join("; "))))
    }
}

#[async_trait]
impl Transport for RemoteTransport {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, TransportError> {
        let wanted = pb::RangeRequest {
            key: request.span.key,
            range_end: request.span.end.unwrap_or_default(),
            revision: request.revision,
            limit: request.limit,
            ..pb::RangeRequest::default()
        };
        let answer = self
            .call(true, |mut client| {
                let wanted = wanted.clone();
                async move { Ok(client.kv.range(wanted).await?.into_inner()) }
            })
            .await?;
        Ok(RangeResponse {
            revision: answer.header.map_or(0, |header| header.revision),
            more: answer.more,
            count: answer.count,
            entries: answer.kvs.into_iter().map(entry).collect(),
        })
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResponse, TransportError> {
        let repeatable = transaction.only_reads();
        let wanted = pb::TxnRequest {
            compare: transaction.conditions.into_iter().map(compare).collect(),
            success: transaction.then.into_iter().map(operation).collect(),
            failure: transaction.otherwise.into_iter().map(operation).collect(),
        };
        let answer = self
            .call(repeatable, |mut client| {
                let wanted = wanted.clone();
                async move { Ok(client.kv.txn(wanted).await?.into_inner()) }
            })
            .await?;
        Ok(transaction_response(answer))
    }

    async fn compact(&self, revision: i64) -> Result<(), TransportError> {
        // Compacting twice to the same revision is harmless: the second attempt only gets the error that it is done.
        let wanted = pb::CompactionRequest { revision, physical: false };
        self.call(true, |mut client| async move { client.kv.compact(wanted).await }).await.map(drop)
    }

    async fn grant_lease(&self, seconds: i64) -> Result<i64, TransportError> {
        // Repeating a grant at worst leaves an unused lease, which expires by itself.
        let wanted = pb::LeaseGrantRequest { ttl: seconds, id: 0 };
        let answer =
            self.call(true, |mut client| async move { client.lease.lease_grant(wanted).await }).await?;
        Ok(answer.into_inner().id)
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchAnswer, TransportError> {
        let create = pb::WatchCreateRequest {
            key: request.span.key,
            range_end: request.span.end.unwrap_or_default(),
            start_revision: request.start_revision,
            prev_kv: request.needs_previous,
            ..pb::WatchCreateRequest::default()
        };
        let ((first, stream, open), session) = self
            .call_with_session(true, |mut client| {
                let create = RequestUnion::CreateRequest(create.clone());
                async move {
                    // The stream of requests stays open as long as the watch, which would end with it, but no longer:
                    // the server would continue a watch that is not read.
                    let (open, closed) = oneshot::channel::<()>();
                    let until_closed = futures::stream::once(closed).filter_map(|_| std::future::ready(None));
                    let requests = futures::stream::iter([pb::WatchRequest { request_union: Some(create) }])
                        .chain(until_closed);
                    let mut requests = Request::new(requests);
                    // A member that is cut off from the others has no news and stays silent. This makes it end the
                    // watch.
                    requests.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
                    let mut stream = client.watch.watch(requests).await?.into_inner();
                    // The first message confirms the watch.
                    let first = stream.message().await?;
                    match first {
                        // An expired token only shows here; etcd 3.4 reports it as a lack of permission.
                        Some(message) if message.canceled && is_unauthorized(&message) => {
                            Err(Status::unauthenticated(message.cancel_reason))
                        }
                        first => Ok((first, stream, open)),
                    }
                }
            })
            .await?;
        let Some(first) = first else {
            self.sessions.lost(&session).await;
            return Err(TransportError::Unavailable("the server closed the watch at once".to_owned()));
        };
        let revision = first.header.map_or(0, |header| header.revision);
        let pending = match changes(&first) {
            Ok(changes) if changes.is_empty() => None,
            other => Some(other),
        };
        let sessions = Arc::clone(&self.sessions);
        let state = WatchState { stream: Some((stream, open)), pending, sessions, session };
        Ok(WatchAnswer { revision, changes: futures::stream::unfold(state, next_batch).boxed() })
    }
}

/// A watch between two batches. Without a stream it has ended.
struct WatchState {
    /// The answers, and the guard that keeps the stream of requests open.
    stream: Option<(Streaming<pb::WatchResponse>, oneshot::Sender<()>)>,
    pending: Option<Result<Vec<Change>, TransportError>>,
    sessions: Arc<Sessions>,
    session: Arc<Session>,
}

async fn next_batch(mut state: WatchState) -> Option<(Result<Vec<Change>, TransportError>, WatchState)> {
    let batch = match state.pending.take() {
        Some(batch) => batch,
        None => loop {
            let (stream, _) = state.stream.as_mut()?;
            match stream.message().await {
                Ok(Some(message)) => match changes(&message) {
                    Ok(changes) if changes.is_empty() => {}
                    other => break other,
                },
                Ok(None) => break Err(TransportError::Unavailable("the server closed the watch".to_owned())),
                Err(status) => match failure(&status) {
                    Failure::NotSent(text) | Failure::Unknown(text) => {
                        // The next request starts with another member.
                        state.sessions.failed(&state.session, &status).await;
                        break Err(TransportError::Unavailable(text));
                    }
                    Failure::Refused(error) => break Err(error),
                },
            }
        },
    };
    if batch.is_err() {
        state.stream = None;
    }
    Some((batch, state))
}

fn is_unauthorized(message: &pb::WatchResponse) -> bool {
    matches!(cancellation(message.compact_revision, &message.cancel_reason), TransportError::Unauthorized(_))
}

fn changes(message: &pb::WatchResponse) -> Result<Vec<Change>, TransportError> {
    if message.canceled || message.compact_revision > 0 {
        return Err(cancellation(message.compact_revision, &message.cancel_reason));
    }
    let events = message.decoded_events().map_err(|error| {
        TransportError::Unavailable(format!("the server sent an event that cannot be read: {error}"))
    })?;
    Ok(events.into_iter().filter_map(change).collect())
}

fn change(event: mvccpb::Event) -> Option<Change> {
    let deleted = event.r#type() == EventType::Delete;
    let kv = event.kv?;
    Some(if deleted {
        let previous = event.prev_kv.map(entry);
        Change::Delete { key: kv.key, revision: kv.mod_revision, previous }
    } else {
        Change::Put(entry(kv))
    })
}

fn entry(kv: mvccpb::KeyValue) -> Entry {
    Entry { key: kv.key, value: kv.value, mod_revision: kv.mod_revision, version: kv.version }
}

fn compare(condition: Condition) -> pb::Compare {
    let (key, result, target, union) = match condition {
        Condition::Absent(key) => {
            (key, CompareResult::Equal, CompareTarget::Version, TargetUnion::Version(0))
        }
        Condition::Present(key) => {
            (key, CompareResult::Greater, CompareTarget::Version, TargetUnion::Version(0))
        }
        Condition::WrittenAt(key, revision) => {
            (key, CompareResult::Equal, CompareTarget::Mod, TargetUnion::ModRevision(revision))
        }
    };
    pb::Compare {
        key,
        result: result.into(),
        target: target.into(),
        target_union: Some(union),
        ..pb::Compare::default()
    }
}

fn operation(step: Step) -> pb::RequestOp {
    use request_op::Request;
    let request = match step {
        Step::Put { key, value, lease } => {
            Request::RequestPut(pb::PutRequest { key, value, lease, ..pb::PutRequest::default() })
        }
        Step::Get { key, revision } => {
            Request::RequestRange(pb::RangeRequest { key, revision, ..pb::RangeRequest::default() })
        }
        Step::Delete(Span { key, end }) => Request::RequestDeleteRange(pb::DeleteRangeRequest {
            key,
            range_end: end.unwrap_or_default(),
            prev_kv: true,
        }),
    };
    pb::RequestOp { request: Some(request) }
}

fn transaction_response(answer: pb::TxnResponse) -> TransactionResponse {
    use response_op::Response;
    let found = answer
        .responses
        .into_iter()
        .map(|response| match response.response {
            Some(Response::ResponseRange(range)) => range.kvs.into_iter().map(entry).collect(),
            Some(Response::ResponseDeleteRange(deleted)) => deleted.prev_kvs.into_iter().map(entry).collect(),
            Some(Response::ResponsePut(_) | Response::ResponseTxn(_)) | None => Vec::new(),
        })
        .collect();
    TransactionResponse {
        revision: answer.header.map_or(0, |header| header.revision),
        succeeded: answer.succeeded,
        found,
    }
}
