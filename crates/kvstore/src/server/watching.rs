//! The watch service: one task per stream that pumps requests in and messages out. What is sent is bounded by a short queue; a client
//! that does not read simply falls behind, and the engine lets it catch up from the file.

use std::{collections::BTreeMap, time::Duration};

use futures::{Stream, StreamExt};
use prost::Message as _;
use tokio::{
    sync::mpsc,
    time::{Instant, interval_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{
    convert::{event, status},
    pb::etcdserverpb::{
        self as pb, watch_create_request::FilterType, watch_request::RequestUnion, watch_server,
    },
    services::{Answer, Answers, Api},
};
use crate::engine::{Event, WatchMessage, WatchRequest, WatchStream};

/// The id of messages that are about no watch in particular.
const NO_WATCH: i64 = -1;
/// Messages waiting for a client.
const QUEUE: usize = 4;
/// etcd allows messages this much larger than requests.
const MESSAGE_OVERHEAD: usize = 512 << 10;

#[tonic::async_trait]
impl watch_server::Watch for Api {
    type WatchStream = Answers<pb::WatchResponse>;

    async fn watch(&self, request: Request<Streaming<pb::WatchRequest>>) -> Answer<Self::WatchStream> {
        Ok(Response::new(Box::pin(self.watch_messages(request.into_inner()))))
    }
}

impl Api {
    /// Serves a stream of watch requests.
    pub(super) fn watch_messages(
        &self,
        requests: impl Stream<Item = Result<pb::WatchRequest, Status>> + Send + Unpin + 'static,
    ) -> impl Stream<Item = Result<pb::WatchResponse, Status>> + Send + 'static {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let session = Session {
            watches: self.store.watch_stream(),
            api: self.clone(),
            options: BTreeMap::new(),
            sender,
        };
        tokio::spawn(session.run(requests));
        ReceiverStream::new(receiver)
    }
}

/// What the engine does not need to know about a watch.
#[derive(Debug, Clone, Copy)]
struct WatchOptions {
    fragment: bool,
    progress_notify: bool,
    /// Whether something was sent since the last progress message.
    busy: bool,
}

struct Session {
    api: Api,
    watches: WatchStream,
    options: BTreeMap<i64, WatchOptions>,
    sender: mpsc::Sender<Result<pb::WatchResponse, Status>>,
}

/// The client has gone.
struct Gone;

impl Session {
    async fn run(
        mut self,
        mut requests: impl Stream<Item = Result<pb::WatchRequest, Status>> + Send + Unpin,
    ) {
        let every = self.api.info.progress_interval.max(Duration::from_millis(100));
        let mut tick = interval_at(Instant::now() + every, every);
        let mut open = true;
        let sender = self.sender.clone();
        loop {
            let step = tokio::select! {
                biased;
                () = sender.closed() => return,
                request = requests.next(), if open => match request {
                    Some(Ok(request)) => self.request(request).await,
                    Some(Err(_)) => return,
                    // A client may end its side and go on listening.
                    None => { open = false; Ok(()) }
                },
                message = self.watches.next() => match message {
                    Ok(Some(message)) => self.message(message).await,
                    Ok(None) => return self.fail(Status::unavailable("etcdserver: server stopped")).await,
                    Err(error) => return self.fail(status(error)).await,
                },
                _ = tick.tick() => self.tick().await,
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn send(&self, response: pb::WatchResponse) -> Result<(), Gone> {
        self.sender.send(Ok(response)).await.map_err(|_| Gone)
    }

    async fn fail(&self, status: Status) {
        // Nobody to tell is fine.
        let _ = self.sender.send(Err(status)).await;
    }

    async fn request(&mut self, request: pb::WatchRequest) -> Result<(), Gone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                self.watches.request_progress();
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: pb::WatchCreateRequest) -> Result<(), Gone> {
        let options = WatchOptions {
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            busy: false,
        };
        let has = |filter: FilterType| request.filters.contains(&i32::from(filter));
        let created = self.watches.create(WatchRequest {
            start_revision: request.start_revision,
            prev_kv: request.prev_kv,
            no_put: has(FilterType::Noput),
            no_delete: has(FilterType::Nodelete),
            watch_id: request.watch_id,
            key: request.key,
            range_end: request.range_end,
        });
        let response = match created {
            Ok((watch_id, revision)) => {
                self.options.insert(watch_id, options);
                pb::WatchResponse {
                    header: self.api.header(revision),
                    watch_id,
                    created: true,
                    ..pb::WatchResponse::default()
                }
            }
            Err(error) => pb::WatchResponse {
                header: self.api.header(self.api.store.revision()),
                watch_id: NO_WATCH,
                created: true,
                canceled: true,
                cancel_reason: error.to_string(),
                ..pb::WatchResponse::default()
            },
        };
        self.send(response).await
    }

    async fn cancel(&mut self, watch_id: i64) -> Result<(), Gone> {
        if !self.watches.cancel(watch_id) {
            return Ok(());
        }
        self.options.remove(&watch_id);
        self.send(pb::WatchResponse {
            header: self.api.header(self.api.store.revision()),
            watch_id,
            canceled: true,
            ..pb::WatchResponse::default()
        })
        .await
    }

    async fn message(&mut self, message: WatchMessage) -> Result<(), Gone> {
        match message {
            WatchMessage::Events { watch_id, revision, events } => {
                let mut fragment = false;
                if let Some(options) = self.options.get_mut(&watch_id) {
                    options.busy = true;
                    fragment = options.fragment;
                }
                self.events(watch_id, revision, events, fragment).await
            }
            WatchMessage::Progress { revision } => {
                let header = self.api.header(revision);
                self.send(pb::WatchResponse { header, watch_id: NO_WATCH, ..pb::WatchResponse::default() })
                    .await
            }
            WatchMessage::Compacted { watch_id, compact_revision } => {
                self.options.remove(&watch_id);
                self.send(pb::WatchResponse {
                    header: self.api.header(self.api.store.revision()),
                    watch_id,
                    canceled: true,
                    compact_revision,
                    ..pb::WatchResponse::default()
                })
                .await
            }
        }
    }

    async fn events(
        &self,
        watch_id: i64,
        revision: i64,
        events: Vec<Event>,
        fragment: bool,
    ) -> Result<(), Gone> {
        let header = self.api.header(revision);
        let mut response = pb::WatchResponse { header, watch_id, ..pb::WatchResponse::default() };
        if !fragment {
            response.events = events.into_iter().map(event).collect();
            return self.send(response).await;
        }
        let most = self.api.store.options().max_request_bytes + MESSAGE_OVERHEAD;
        let mut size = 0;
        for next in events.into_iter().map(event) {
            let length = next.encoded_len();
            if size + length >= most && !response.events.is_empty() {
                let full = pb::WatchResponse { fragment: true, ..response.clone() };
                self.send(full).await?;
                response.events.clear();
                size = 0;
            }
            size += length;
            response.events.push(next);
        }
        self.send(response).await
    }

    /// Tells quiet watches how far they are.
    async fn tick(&mut self) -> Result<(), Gone> {
        let mut quiet = Vec::new();
        for (&watch_id, options) in &mut self.options {
            let was_busy = std::mem::take(&mut options.busy);
            if options.progress_notify && !was_busy {
                quiet.push(watch_id);
            }
        }
        for watch_id in quiet {
            if let Some(revision) = self.watches.synced_revision(watch_id) {
                let header = self.api.header(revision);
                self.send(pb::WatchResponse { header, watch_id, ..pb::WatchResponse::default() }).await?;
            }
        }
        Ok(())
    }
}
