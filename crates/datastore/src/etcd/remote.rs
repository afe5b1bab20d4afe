//! The transport over gRPC: a real etcd cluster, or `tortie datastore` on its socket.
//!
//! Members are alternatives. One is used until it fails; a request that cannot have been carried out (no connection)
//! goes on to the next member, and so do reads whose connection broke. A write whose fate is unknown is never repeated
//! here: the caller gets a transient error and decides. A watch is never resumed silently either.

use super::config::{EtcdConfig, Member};
use super::status::{Failure, cancellation, failure, is_auth_not_enabled};
use super::transport::{
    Change, Condition, Entry, RangeRequest, RangeResponse, Span, Step, Transaction, TransactionResponse,
    Transport, TransportError, WatchAnswer, WatchRequest,
};
use crate::error::Result as StoreResult;
use crate::secret::Secret;
use async_trait::async_trait;
use etcd_client::proto::{PbEvent, PbKeyValue, PbTxnOpResponse, PbTxnResponse, PbWatchResponse};
use etcd_client::{
    Channel, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, GetOptions, KvClient, LeaseClient,
    PutOptions, Txn, TxnOp, WatchClient, WatchOptions, WatchStream,
};
use futures::StreamExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Mutex;

/// A cluster of etcd members, or one `tortie datastore`.
pub struct RemoteTransport {
    members: Vec<Connection>,
    /// The member that answered last.
    current: AtomicUsize,
}

/// One member and the session with it, once there is one.
struct Connection {
    member: Member,
    user: Option<(String, Secret)>,
    session: Mutex<Option<Session>>,
    /// Whether it ever answered anything.
    answered: AtomicBool,
}

/// The clients of one open session.
#[derive(Clone)]
struct Session {
    kv: KvClient,
    watch: WatchClient,
    lease: LeaseClient,
}

impl RemoteTransport {
    /// Checks the settings. No connection is made before it is needed.
    ///
    /// # Errors
    /// When the settings contradict themselves or a certificate cannot be read.
    pub async fn new(config: &EtcdConfig) -> StoreResult<Self> {
        let user = config.user();
        let members = config
            .members()
            .await?
            .into_iter()
            .map(|member| Connection {
                member,
                user: user.clone(),
                session: Mutex::new(None),
                answered: AtomicBool::new(false),
            })
            .collect();
        Ok(Self { members, current: AtomicUsize::new(0) })
    }

    /// Asks one member after the other until one answers.
    async fn call<T, F>(&self, repeatable: bool, request: impl Fn(Session) -> F) -> Result<T, TransportError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let count = self.members.len();
        let start = self.current.load(Ordering::Relaxed);
        // A read gets one more try: a member that was restarted refuses only the first request on the old connection.
        let attempts = if repeatable { count + 1 } else { count };
        let mut failures = Vec::new();
        for attempt in 0..attempts {
            let index = (start + attempt) % count;
            let connection = &self.members[index];
            let outcome = match connection.session().await {
                Ok(session) => request(session).await,
                Err(error) => Err(error),
            };
            let error = match outcome {
                Ok(answer) => {
                    connection.answered.store(true, Ordering::Relaxed);
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            match failure(error) {
                Failure::Refused(error) => {
                    connection.answered.store(true, Ordering::Relaxed);
                    self.current.store(index, Ordering::Relaxed);
                    return Err(error);
                }
                Failure::NotSent(text) => failures.push(format!("{}: {text}", connection.member.url)),
                Failure::Unknown(text) => {
                    let text = connection.explain(&text);
                    if !repeatable {
                        self.current.store((index + 1) % count, Ordering::Relaxed);
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

impl Connection {
    /// What went wrong, with a guess where the member hangs up without ever having said a word.
    fn explain(&self, text: &str) -> String {
        let Member { url, hint, .. } = &self.member;
        if hint.is_empty() || self.answered.load(Ordering::Relaxed) {
            return format!("{url}: {text}");
        }
        format!("{url}: {text} ({hint})")
    }

    async fn session(&self) -> Result<Session, etcd_client::Error> {
        let mut slot = self.session.lock().await;
        if let Some(session) = &*slot {
            return Ok(session.clone());
        }
        // A channel connects when it is used, and again whenever the connection was lost.
        let channel = Channel::Tonic(self.member.endpoint.connect_lazy());
        let client = match &self.user {
            None => Client::from_channel(channel, None).await?,
            Some((name, password)) => {
                let options =
                    ConnectOptions::new().with_user(name, password.expose()).with_auto_token_refresh(true);
                match Client::from_channel(channel.clone(), Some(options)).await {
                    Err(error) if is_auth_not_enabled(&error) => Client::from_channel(channel, None).await?,
                    other => other?,
                }
            }
        };
        let session = Session {
            kv: client.kv_client().max_decoding_message_size(usize::MAX),
            watch: client.watch_client().max_decoding_message_size(usize::MAX),
            lease: client.lease_client(),
        };
        *slot = Some(session.clone());
        Ok(session)
    }
}

#[async_trait]
impl Transport for RemoteTransport {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, TransportError> {
        let answer = self
            .call(true, |mut session| {
                let request = request.clone();
                async move {
                    let mut options =
                        GetOptions::new().with_revision(request.revision).with_limit(request.limit);
                    if let Some(end) = &request.span.end {
                        options = options.with_range(&end[..]);
                    }
                    session.kv.get(&request.span.key[..], Some(options)).await
                }
            })
            .await?
            .0;
        Ok(RangeResponse {
            revision: answer.header.map_or(0, |header| header.revision),
            more: answer.more,
            count: answer.count,
            entries: answer.kvs.into_iter().map(entry).collect(),
        })
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResponse, TransportError> {
        let repeatable = transaction.only_reads();
        let txn = Txn::new()
            .when(transaction.conditions.into_iter().map(compare).collect::<Vec<_>>())
            .and_then(transaction.then.into_iter().map(operation).collect::<Vec<_>>())
            .or_else(transaction.otherwise.into_iter().map(operation).collect::<Vec<_>>());
        let answer = self
            .call(repeatable, |mut session| {
                let txn = txn.clone();
                async move { session.kv.txn(txn).await }
            })
            .await?;
        Ok(transaction_response(answer.0))
    }

    async fn compact(&self, revision: i64) -> Result<(), TransportError> {
        // To compact twice to the same revision does no harm: the second attempt is told that it is done.
        self.call(true, |mut session| async move { session.kv.compact(revision, None).await }).await.map(drop)
    }

    async fn grant_lease(&self, seconds: i64) -> Result<i64, TransportError> {
        // Repeating a grant at worst leaves a lease that nothing hangs on, and that expires by itself.
        let answer =
            self.call(true, |mut session| async move { session.lease.grant(seconds, None).await }).await?;
        Ok(answer.id())
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchAnswer, TransportError> {
        let (first, stream) = self
            .call(true, |mut session| {
                let request = request.clone();
                async move {
                    let mut options =
                        WatchOptions::new().with_start_revision(request.start_revision).with_prev_key();
                    if let Some(end) = &request.span.end {
                        options = options.with_range(&end[..]);
                    }
                    let mut stream = session.watch.watch(&request.span.key[..], Some(options)).await?;
                    // The first message says that the watch stands.
                    let first = stream.message().await?;
                    Ok((first, stream))
                }
            })
            .await?;
        let first = match first {
            Some(message) => message.0,
            None => {
                return Err(TransportError::Unavailable("the server closed the watch at once".to_owned()));
            }
        };
        let revision = first.header.as_ref().map_or(0, |header| header.revision);
        let pending = match changes(first) {
            Ok(changes) if changes.is_empty() => None,
            other => Some(other),
        };
        let state = WatchState { stream: Some(stream), pending };
        Ok(WatchAnswer { revision, changes: futures::stream::unfold(state, next_batch).boxed() })
    }
}

/// A watch between two batches. Without a stream it has ended.
struct WatchState {
    stream: Option<WatchStream>,
    pending: Option<Result<Vec<Change>, TransportError>>,
}

async fn next_batch(mut state: WatchState) -> Option<(Result<Vec<Change>, TransportError>, WatchState)> {
    let batch = match state.pending.take() {
        Some(batch) => batch,
        None => loop {
            let stream = state.stream.as_mut()?;
            match stream.message().await {
                Ok(Some(message)) => match changes(message.0) {
                    Ok(changes) if changes.is_empty() => {}
                    other => break other,
                },
                Ok(None) => break Err(TransportError::Unavailable("the server closed the watch".to_owned())),
                Err(error) => {
                    break Err(match failure(error) {
                        Failure::NotSent(text) | Failure::Unknown(text) => TransportError::Unavailable(text),
                        Failure::Refused(error) => error,
                    });
                }
            }
        },
    };
    if batch.is_err() {
        state.stream = None;
    }
    Some((batch, state))
}

fn changes(message: PbWatchResponse) -> Result<Vec<Change>, TransportError> {
    if message.canceled || message.compact_revision > 0 {
        return Err(cancellation(message.compact_revision, &message.cancel_reason));
    }
    Ok(message.events.into_iter().filter_map(change).collect())
}

fn change(event: PbEvent) -> Option<Change> {
    const DELETE: i32 = etcd_client::EventType::Delete as i32;
    let kv = event.kv?;
    let previous = event.prev_kv.map(entry);
    Some(if event.r#type == DELETE {
        Change::Delete { key: kv.key.into(), revision: kv.mod_revision, previous }
    } else {
        Change::Put { entry: entry(kv), previous }
    })
}

fn entry(kv: PbKeyValue) -> Entry {
    Entry { key: kv.key.into(), value: kv.value.into(), mod_revision: kv.mod_revision, version: kv.version }
}

fn compare(condition: Condition) -> Compare {
    match condition {
        Condition::Absent(key) => Compare::version(key, CompareOp::Equal, 0),
        Condition::Present(key) => Compare::version(key, CompareOp::Greater, 0),
        Condition::WrittenAt(key, revision) => Compare::mod_revision(key, CompareOp::Equal, revision),
    }
}

fn operation(step: Step) -> TxnOp {
    match step {
        Step::Put { key, value, lease } => TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease))),
        Step::Get { key, revision } => TxnOp::get(key, Some(GetOptions::new().with_revision(revision))),
        Step::Delete(Span { key, end }) => {
            let mut options = DeleteOptions::new().with_prev_key();
            if let Some(end) = end {
                options = options.with_range(end);
            }
            TxnOp::delete(key, Some(options))
        }
    }
}

fn transaction_response(answer: PbTxnResponse) -> TransactionResponse {
    let found = answer
        .responses
        .into_iter()
        .map(|response| match response.response {
            Some(PbTxnOpResponse::ResponseRange(range)) => range.kvs.into_iter().map(entry).collect(),
            Some(PbTxnOpResponse::ResponseDeleteRange(deleted)) => {
                deleted.prev_kvs.into_iter().map(entry).collect()
            }
            Some(PbTxnOpResponse::ResponsePut(_) | PbTxnOpResponse::ResponseTxn(_)) | None => Vec::new(),
        })
        .collect();
    TransactionResponse {
        revision: answer.header.map_or(0, |header| header.revision),
        succeeded: answer.succeeded,
        found,
    }
}
