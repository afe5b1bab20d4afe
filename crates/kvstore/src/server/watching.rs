//! The watch service: requests in, messages out, driven by the reader of the messages. So no message is created before
//! the client can take it: a client that does not read falls behind, and the engine lets it catch up from the file.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use etcd_api::etcdserverpb::{
    self as pb, watch_create_request::FilterType, watch_request::RequestUnion, watch_server,
};
use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tonic::{Request, Response, Status, Streaming};

use super::{
    convert::{event_form, status},
    services::{Answer, Answers, Api},
};
use kvstore_engine::{SharedEvent, WatchMessage, WatchRequest, WatchStream};

/// The id in messages that do not concern a particular watch.
const NO_WATCH: i64 = -1;
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
        let every = self.info.progress_interval.max(Duration::from_millis(100));
        let mut tick = interval_at(Instant::now() + every, every);
        // A client that did not read for a while gets one report, not one for each missed tick.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let session = Session {
            watches: self.store.watch_stream(),
            api: self.clone(),
            options: BTreeMap::new(),
            outbox: VecDeque::new(),
            requests: Some(requests),
            tick,
        };
        stream::unfold(Some(session), |session| async move {
            let mut session = session?;
            match session.next().await {
                Ok(response) => Some((Ok(response), Some(session))),
                // Sent once, then the stream ends.
                Err(Some(status)) => Some((Err(status), None)),
                Err(None) => None,
            }
        })
    }
}

/// The options of a watch that the engine does not need.
#[derive(Debug, Clone, Copy)]
struct WatchOptions {
    fragment: bool,
    progress_notify: bool,
    /// Whether something was sent since the last progress message.
    busy: bool,
}

struct Session<R> {
    api: Api,
    watches: WatchStream,
    options: BTreeMap<i64, WatchOptions>,
    /// Messages ready to be sent; more are created only when it is empty.
    outbox: VecDeque<pb::WatchResponse>,
    /// `None` once the client has ended its side; it may continue to listen.
    requests: Option<R>,
    tick: Interval,
}

impl<R: Stream<Item = Result<pb::WatchRequest, Status>> + Send + Unpin> Session<R> {
    /// The next message, or why there is none: an error to report, or `None` because the client has gone.
    async fn next(&mut self) -> Result<pb::WatchResponse, Option<Status>> {
        loop {
            if let Some(response) = self.outbox.pop_front() {
                return Ok(response);
            }
            let requests = &mut self.requests;
            let request = async {
                match requests {
                    Some(requests) => requests.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                request = request => match request {
                    Some(Ok(request)) => self.request(request),
                    Some(Err(_)) => return Err(None),
                    None => self.requests = None,
                },
                message = self.watches.next() => match message {
                    Ok(Some(message)) => self.message(message),
                    Ok(None) => return Err(Some(Status::unavailable("etcdserver: server stopped"))),
                    Err(error) => return Err(Some(status(error))),
                },
                _ = self.tick.tick() => self.tell_quiet(),
            }
        }
    }

    fn request(&mut self, request: pb::WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request),
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => {
                self.watches.request_progress();
            }
            None => {}
        }
    }

    fn create(&mut self, request: pb::WatchCreateRequest) {
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
        self.outbox.push_back(response);
    }

    fn cancel(&mut self, watch_id: i64) {
        if !self.watches.cancel(watch_id) {
            return;
        }
        self.options.remove(&watch_id);
        self.outbox.push_back(pb::WatchResponse {
            header: self.api.header(self.api.store.revision()),
            watch_id,
            canceled: true,
            ..pb::WatchResponse::default()
        });
    }

    fn message(&mut self, message: WatchMessage) {
        match message {
            WatchMessage::Events { watch_id, revision, events } => {
                let mut fragment = false;
                if let Some(options) = self.options.get_mut(&watch_id) {
                    options.busy = true;
                    fragment = options.fragment;
                }
                self.events(watch_id, revision, &events, fragment);
            }
            WatchMessage::Progress { revision } => {
                let header = self.api.header(revision);
                self.outbox.push_back(pb::WatchResponse {
                    header,
                    watch_id: NO_WATCH,
                    ..pb::WatchResponse::default()
                });
            }
            WatchMessage::Compacted { watch_id, compact_revision } => {
                self.options.remove(&watch_id);
                self.outbox.push_back(pb::WatchResponse {
                    header: self.api.header(self.api.store.revision()),
                    watch_id,
                    canceled: true,
                    compact_revision,
                    ..pb::WatchResponse::default()
                });
            }
        }
    }

    fn events(&mut self, watch_id: i64, revision: i64, events: &[Arc<SharedEvent>], fragment: bool) {
        let header = self.api.header(revision);
        let mut response = pb::WatchResponse { header, watch_id, ..pb::WatchResponse::default() };
        let events = events.iter().map(|event| event.form(event_form));
        if !fragment {
            response.events = events.collect();
            self.outbox.push_back(response);
            return;
        }
        let most = self.api.store.options().max_request_bytes + MESSAGE_OVERHEAD;
        let mut size = 0;
        for next in events {
            let length = next.len();
            if size + length >= most && !response.events.is_empty() {
                let full = pb::WatchResponse { fragment: true, ..response.clone() };
                self.outbox.push_back(full);
                response.events.clear();
                size = 0;
            }
            size += length;
            response.events.push(next);
        }
        self.outbox.push_back(response);
    }

    /// Reports progress to idle watches.
    fn tell_quiet(&mut self) {
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
                self.outbox.push_back(pb::WatchResponse { header, watch_id, ..pb::WatchResponse::default() });
            }
        }
    }
}
