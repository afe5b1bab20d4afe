//! The transport over the embedded engine in this process: no socket, no copy of values, the same semantics.
//!
//! Reads of many keys run on a thread for blocking work, since the engine reads its file on the calling thread. Does
//! not open or close stores: their creator decides how long they live.

use super::transport::{
    Change, Condition, Entry, RangeRequest, RangeResponse, Span, Step, Transaction, TransactionResponse,
    Transport, TransportError, WatchAnswer, WatchRequest,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use kvstore_engine::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Error, Event, EventKind, KeyValue, Op,
    OpResponse, PutRequest, Store, TxnRequest, WatchMessage, WatchStream,
};
use std::sync::Arc;

/// An open store in this process.
pub struct EmbeddedTransport {
    store: Arc<Store>,
}

impl EmbeddedTransport {
    /// Uses this store.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl Transport for EmbeddedTransport {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, TransportError> {
        let single = request.span.end.is_none();
        let wanted = kvstore_engine::RangeRequest {
            key: request.span.key,
            range_end: request.span.end.unwrap_or_default(),
            revision: request.revision,
            limit: request.limit,
            ..kvstore_engine::RangeRequest::default()
        };
        let answer = if single {
            self.store.range(&wanted)
        } else {
            let store = Arc::clone(&self.store);
            tokio::task::spawn_blocking(move || store.range(&wanted))
                .await
                .map_err(|error| TransportError::Failed(error.to_string()))?
        };
        let answer = answer.map_err(|error| engine_error(&error))?;
        Ok(RangeResponse {
            revision: answer.revision,
            more: answer.more,
            count: answer.count,
            entries: answer.kvs.into_iter().map(entry).collect(),
        })
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResponse, TransportError> {
        let request = TxnRequest {
            compare: transaction.conditions.into_iter().map(compare).collect(),
            success: transaction.then.into_iter().map(operation).collect(),
            failure: transaction.otherwise.into_iter().map(operation).collect(),
        };
        let answer = self.store.txn(request).await.map_err(|error| engine_error(&error))?;
        let found = answer.responses.into_iter().map(found).collect();
        Ok(TransactionResponse { revision: answer.revision, succeeded: answer.succeeded, found })
    }

    async fn compact(&self, revision: i64) -> Result<(), TransportError> {
        self.store.compact(revision, false).await.map(drop).map_err(|error| engine_error(&error))
    }

    async fn grant_lease(&self, seconds: i64) -> Result<i64, TransportError> {
        Ok(self.store.lease_grant(0, seconds).await.map_err(|error| engine_error(&error))?.id)
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchAnswer, TransportError> {
        let mut stream = self.store.watch_stream();
        let wanted = kvstore_engine::WatchRequest {
            key: request.span.key,
            range_end: request.span.end.unwrap_or_default(),
            start_revision: request.start_revision,
            prev_kv: request.needs_previous,
            ..kvstore_engine::WatchRequest::default()
        };
        let (_, revision) =
            stream.create(wanted).map_err(|error| TransportError::Failed(error.to_string()))?;
        let changes = futures::stream::unfold(Some(stream), next_batch).boxed();
        Ok(WatchAnswer { revision, changes })
    }
}

type Batch = Result<Vec<Change>, TransportError>;

async fn next_batch(stream: Option<WatchStream>) -> Option<(Batch, Option<WatchStream>)> {
    let mut stream = stream?;
    loop {
        match stream.next().await {
            Ok(Some(WatchMessage::Events { events, .. })) => {
                return Some((Ok(events.iter().map(|event| change(event)).collect()), Some(stream)));
            }
            Ok(Some(WatchMessage::Progress { .. })) => {}
            Ok(Some(WatchMessage::Compacted { compact_revision, .. })) => {
                return Some((Err(super::status::cancellation(compact_revision.max(1), "")), None));
            }
            Ok(None) => {
                return Some((Err(TransportError::Unavailable("the store was closed".to_owned())), None));
            }
            Err(error) => return Some((Err(engine_error(&error)), None)),
        }
    }
}

fn change(event: &Event) -> Change {
    let kv = event.kv.clone();
    match event.kind {
        EventKind::Put => Change::Put(entry(kv)),
        EventKind::Delete => {
            let previous = event.prev_kv.clone().map(entry);
            Change::Delete { key: kv.key, revision: kv.mod_revision, previous }
        }
    }
}

fn entry(kv: KeyValue) -> Entry {
    Entry { key: kv.key, value: kv.value, mod_revision: kv.mod_revision, version: kv.version }
}

fn compare(condition: Condition) -> Compare {
    let (key, result, target) = match condition {
        Condition::Absent(key) => (key, CompareResult::Equal, CompareTarget::Version(0)),
        Condition::Present(key) => (key, CompareResult::Greater, CompareTarget::Version(0)),
        Condition::WrittenAt(key, revision) => (key, CompareResult::Equal, CompareTarget::Mod(revision)),
    };
    Compare { key, range_end: Bytes::new(), result, target }
}

fn operation(step: Step) -> Op {
    match step {
        Step::Put { key, value, lease } => Op::Put(PutRequest { key, value, lease, ..PutRequest::default() }),
        Step::Get { key, revision } => Op::Range(kvstore_engine::RangeRequest {
            key,
            revision,
            ..kvstore_engine::RangeRequest::default()
        }),
        Step::Delete(Span { key, end }) => {
            Op::DeleteRange(DeleteRangeRequest { key, range_end: end.unwrap_or_default(), prev_kv: true })
        }
    }
}

fn found(response: OpResponse) -> Vec<Entry> {
    match response {
        OpResponse::Range(range) => range.kvs.into_iter().map(entry).collect(),
        OpResponse::DeleteRange(deleted) => deleted.prev_kvs.into_iter().map(entry).collect(),
        OpResponse::Put(_) | OpResponse::Txn(_) => Vec::new(),
    }
}

fn engine_error(error: &Error) -> TransportError {
    let text = error.to_string();
    match error {
        Error::Compacted { .. } | Error::FutureRevision => TransportError::Revision(text),
        Error::RequestTooLarge => TransportError::TooLarge(text),
        // These errors end when there is space again, or when the store is reopened.
        Error::NoSpace | Error::Stopped | Error::Broken(_) => TransportError::Unavailable(text),
        _ => TransportError::Failed(text),
    }
}
