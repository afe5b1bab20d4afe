//! A remote Goldmane, Calico's or ours, over gRPC.
//!
//! Its stream sends a bucket when it is complete, half a minute after the first packet. Live flows are therefore read
//! by listing the buckets that still change, again and again, as often as is cheap for the server.

mod questions;

use super::{
    Batch, Batches, Flow, Found, HintsQuery, ListQuery, Loss, SilentNode, Source, SourceError, SourceState,
    StreamQuery,
};
use flows::query::{Filter, HintType};
use flows::{Counters, Labels};
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _};
use goldmane_api::connect::{Target, connect};
use goldmane_api::convert::{counters, decode_key};
use goldmane_api::losses::{self, LossesResult};
use goldmane_api::proto::{self, flows_client::FlowsClient};
use questions::{filter, hint_number, sort_number};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tonic::Status;
use tonic::transport::Channel;

/// The length of Goldmane's buckets by default; other lengths work, but times are coarser.
const BUCKET: i64 = 15;
/// How many buckets are listed in every round, including the one that fills.
const CHANGING: i64 = 2;
/// How many buckets are listed when a new one has begun: late flows arrive for these.
const LATE: i64 = 4;
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// Pauses are at least this many times as long as the round before, to bound the load on the server.
const SHARE: u32 = 10;
/// The maximum size of an answer: an hour of a large cluster.
const LONGEST: usize = 256 << 20;
/// How long a server has to refuse a stream before the stream counts as begun.
const ANSWERS_FIRST: Duration = Duration::from_secs(1);
/// How long known losses are reused.
const FRESH: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A remote Goldmane.
#[derive(Clone)]
pub struct Goldmane(Arc<Inner>);

struct Inner {
    target: Target,
    channel: tokio::sync::Mutex<Option<Channel>>,
    /// The number of the connection: after a reconnect, ids may mean other flows.
    generation: AtomicU64,
    /// Why the last request failed.
    problem: Mutex<Option<String>>,
    losses: tokio::sync::Mutex<Option<KnownLosses>>,
    /// The newest time of any flow seen; zero for none.
    newest: AtomicI64,
}

/// The server's answer about losses.
struct KnownLosses {
    /// The connection that it was received on.
    generation: u64,
    asked: Instant,
    /// `None` if the server keeps no record of losses.
    answer: Option<LossesResult>,
}

impl Goldmane {
    /// Creates a source that connects on the first request.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self(Arc::new(Inner {
            target,
            channel: tokio::sync::Mutex::default(),
            // So that places of another process are not valid here.
            generation: AtomicU64::new(
                now().unsigned_abs() << 16 | u64::from(std::process::id() & 0xff) << 8,
            ),
            problem: Mutex::default(),
            losses: tokio::sync::Mutex::default(),
            newest: AtomicI64::new(0),
        }))
    }

    async fn client(&self) -> Result<FlowsClient<Channel>, SourceError> {
        Ok(FlowsClient::new(self.channel().await?).max_decoding_message_size(LONGEST))
    }

    async fn channel(&self) -> Result<Channel, SourceError> {
        let mut channel = self.0.channel.lock().await;
        if channel.is_none() {
            let connected = connect(&self.0.target).await;
            *channel = Some(connected.map_err(|error| self.away(error.to_string()))?);
            self.0.generation.fetch_add(1, Ordering::Relaxed);
        }
        channel.clone().ok_or_else(|| self.away("not connected".to_owned()))
    }

    /// The losses that the server knows. Several pages share an answer; a server that keeps no record, like Calico's,
    /// is asked once per connection.
    async fn losses(&self) -> Option<LossesResult> {
        let mut kept = self.0.losses.lock().await;
        let generation = self.0.generation.load(Ordering::Relaxed);
        let is_fresh = |known: &KnownLosses| {
            known.generation == generation && (known.answer.is_none() || known.asked.elapsed() < FRESH)
        };
        if let Some(known) = kept.as_ref().filter(|known| is_fresh(known)) {
            return known.answer.clone();
        }
        let answer = losses::ask(self.channel().await.ok()?).await.ok()?;
        let generation = self.0.generation.load(Ordering::Relaxed);
        *kept = Some(KnownLosses { generation, asked: Instant::now(), answer: answer.clone() });
        answer
    }

    fn away(&self, problem: String) -> SourceError {
        self.note(Some(problem.clone()));
        SourceError::Away(problem)
    }

    fn note(&self, problem: Option<String>) {
        *self.0.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Records the outcome of a request. After a failure the next request reconnects, with the TLS files as they are
    /// then.
    async fn judged<T>(&self, answer: Result<T, Status>) -> Result<T, SourceError> {
        match answer {
            Ok(answer) => {
                self.note(None);
                Ok(answer)
            }
            Err(status) if status.code() == tonic::Code::InvalidArgument => {
                Err(SourceError::Refused(status.message().to_owned()))
            }
            Err(status) => {
                *self.0.channel.lock().await = None;
                Err(self.away(format!("Goldmane at {}: {status}", self.0.target.address)))
            }
        }
    }

    async fn ask_list(&self, request: proto::FlowListRequest) -> Result<Found<Flow>, SourceError> {
        let mut client = self.client().await?;
        let answer = tokio::time::timeout(PATIENCE, client.list(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        let answer = self.judged(answer).await?.into_inner();
        let pages = answer.meta.map_or(0, |meta| meta.total_pages);
        let items: Vec<Flow> = answer.flows.into_iter().filter_map(|result| self.flow(result)).collect();
        Ok(Found { total_pages: u64::try_from(pages).unwrap_or(0), items })
    }

    fn flow(&self, result: proto::FlowResult) -> Option<Flow> {
        let flow = result.flow?;
        let Ok(key) = decode_key(&flow.key) else {
            tracing::warn!("a flow of Goldmane cannot be read");
            return None;
        };
        self.0.newest.fetch_max(flow.end_time.max(flow.start_time), Ordering::Relaxed);
        let labels = |texts: &[bytes::Bytes]| -> Labels {
            texts.iter().map(|text| String::from_utf8_lossy(text)).collect()
        };
        Some(Flow {
            id: u64::try_from(result.id).unwrap_or(0),
            key: Arc::new(key),
            source_labels: labels(&flow.source_labels),
            dest_labels: labels(&flow.dest_labels),
            start: flow.start_time,
            end: flow.end_time,
            counters: counters(&flow),
        })
    }
}

fn now() -> i64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[async_trait::async_trait]
impl Source for Goldmane {
    async fn list(&self, query: ListQuery) -> Result<Found<Flow>, SourceError> {
        self.ask_list(proto::FlowListRequest {
            start_time_gte: query.gte,
            start_time_lt: query.lt,
            sort_by: query
                .sort
                .iter()
                .map(|sort| proto::SortOption { sort_by: sort_number(*sort) })
                .collect(),
            filter: Some(filter(&query.filter)),
            ..proto::FlowListRequest::default()
        })
        .await
    }

    async fn hints(&self, query: HintsQuery) -> Result<Found<String>, SourceError> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let request = proto::FilterHintsRequest {
            r#type: hint_number(query.of),
            filter: Some(filter(&query.filter)),
            page: number(query.page.number),
            page_size: number(query.page.size),
            ..proto::FilterHintsRequest::default()
        };
        let mut client = self.client().await?;
        let answer = tokio::time::timeout(PATIENCE, client.filter_hints(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        let answer = self.judged(answer).await?.into_inner();
        let pages = answer.meta.map_or(0, |meta| meta.total_pages);
        let items = answer.hints.into_iter().map(|hint| hint.value).collect();
        Ok(Found { total_pages: u64::try_from(pages).unwrap_or(0), items })
    }

    async fn buckets(&self, query: StreamQuery) -> Result<Batches, SourceError> {
        let resume = query.resume.as_deref().and_then(|place| place.parse().ok());
        let request = proto::FlowStreamRequest {
            start_time_gte: resume.unwrap_or(query.gte),
            filter: Some(filter(&query.filter)),
            ..proto::FlowStreamRequest::default()
        };
        let mut client = self.client().await?;
        let mut answer = async move { client.stream(request).await }.boxed();
        // Servers in Go send no headers before the first flow, which may take long to arrive.
        let results = match tokio::time::timeout(ANSWERS_FIRST, &mut answer).await {
            Ok(answer) => self.judged(answer).await?.into_inner().boxed(),
            Err(_) => answer.map_ok(tonic::Response::into_inner).try_flatten_stream().boxed(),
        };
        let source = self.clone();
        let batches = results.filter_map(move |result| {
            let source = source.clone();
            async move {
                match source.judged(result).await {
                    Ok(result) => source.flow(result).map(|flow| {
                        // Whether more flows of its bucket follow is unknown: on resumption the whole bucket is sent
                        // again.
                        let place = flow.start.to_string();
                        Ok(Batch { flows: vec![flow], place, is_fresh: false })
                    }),
                    Err(error) => Some(Err(error)),
                }
            }
        });
        Ok(batches.boxed())
    }

    async fn live(&self, query: StreamQuery) -> Result<Batches, SourceError> {
        self.client().await?;
        let generation = self.0.generation.load(Ordering::Relaxed);
        let resume = query.resume.as_deref().and_then(|place| time_of(place, generation));
        let present = now().div_euclid(BUCKET);
        let begin = match resume.unwrap_or(query.gte) {
            0 => present,
            before @ ..0 => now().saturating_add(before).div_euclid(BUCKET),
            time => time.div_euclid(BUCKET),
        };
        let filter = filter(&query.filter);
        let (source, sent) = (self.clone(), BTreeMap::new());
        let mut rounds = Rounds { source, generation, filter, last: present, sent };
        let mut flows = Vec::new();
        // Buckets that no longer change are listed together: one by one they would take hundreds of requests.
        let changing = present - LATE + 1;
        if begin < changing {
            flows.extend(rounds.list(begin * BUCKET, changing * BUCKET).await?);
        }
        flows.extend(rounds.look(begin.max(changing)..=present).await?);
        let first = Batch { flows, place: rounds.place(), is_fresh: resume.is_none() };
        let later = futures::stream::unfold(Some(rounds), |rounds| async move {
            let mut rounds = rounds?;
            match rounds.next().await {
                Ok(batch) => Some((Ok(batch), Some(rounds))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(futures::stream::once(async move { Ok(first) }).chain(later).boxed())
    }

    async fn state(&self) -> SourceState {
        let newest = self.0.newest.load(Ordering::Relaxed);
        if newest == 0 {
            // No request has been made yet: the cheapest one shows whether the server answers.
            let page = flows::query::Page { number: 0, size: 1 };
            let query = HintsQuery { of: HintType::SourceNamespace, filter: Filter::default(), page };
            // A failure is recorded by `judged`.
            let _ = self.hints(query).await;
        }
        let lost = self.losses().await;
        let nodes = lost.as_ref().map_or(&[][..], |lost| &lost.nodes);
        let of_nodes = || nodes.iter().filter(|node| !node.node.is_empty());
        let silent = of_nodes().filter(|node| node.age >= losses::SILENT);
        let all = nodes.iter().flat_map(|node| node.losses.iter().map(move |loss| (node, loss)));
        SourceState {
            received: lost.as_ref().map(|lost| lost.received),
            keys: lost.as_ref().map(|lost| lost.keys),
            nodes: lost.as_ref().map(|_| of_nodes().count() as u64),
            silent: silent.map(|node| SilentNode { node: node.node.clone(), age: node.age }).collect(),
            losses: all
                .map(|(node, loss)| Loss {
                    node: node.node.clone(),
                    what: loss.kind().words(),
                    count: loss.recent,
                })
                .collect(),
            name: format!("Goldmane at {}", self.0.target.address),
            problem: self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            // A bucket's end may be ahead of the clock.
            newest: (newest > 0).then_some(newest.min(now())),
        }
    }
}

/// The state of one reader of live flows.
struct Rounds {
    source: Goldmane,
    generation: u64,
    filter: proto::Filter,
    /// The newest bucket of the last round.
    last: i64,
    /// What was sent of the buckets that still change, by start and id.
    sent: BTreeMap<(i64, u64), Counters>,
}

impl Rounds {
    async fn list(&self, gte: i64, lt: i64) -> Result<Vec<Flow>, SourceError> {
        let filter = Some(self.filter.clone());
        let request = proto::FlowListRequest {
            start_time_gte: gte,
            start_time_lt: lt,
            filter,
            ..proto::FlowListRequest::default()
        };
        Ok(self.source.ask_list(request).await?.items)
    }

    /// The flows of these buckets that are new or changed.
    async fn look(&mut self, buckets: std::ops::RangeInclusive<i64>) -> Result<Vec<Flow>, SourceError> {
        let mut new = Vec::new();
        for bucket in buckets {
            for flow in self.list(bucket * BUCKET, (bucket + 1) * BUCKET).await? {
                if self.sent.insert((bucket, flow.id), flow.counters) != Some(flow.counters) {
                    new.push(flow);
                }
            }
        }
        Ok(new)
    }

    /// The next round with news.
    async fn next(&mut self) -> Result<Batch, SourceError> {
        let mut pause = PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            let began = Instant::now();
            let present = now().div_euclid(BUCKET);
            let back = if present > self.last { LATE } else { CHANGING };
            let flows = self.look(present - back + 1..=present).await?;
            self.last = present;
            self.sent.retain(|(bucket, _), _| *bucket > present - LATE);
            pause = PAUSE.max(began.elapsed() * SHARE);
            if !flows.is_empty() {
                return Ok(Batch { flows, place: self.place(), is_fresh: false });
            }
        }
    }

    /// Buckets that may still change are listed again after a broken connection.
    fn place(&self) -> String {
        format!("{:x}.{}", self.generation, (self.last - LATE + 1) * BUCKET)
    }
}

/// The time of a place, if it belongs to this connection.
fn time_of(place: &str, generation: u64) -> Option<i64> {
    let (of, time) = place.split_once('.')?;
    (u64::from_str_radix(of, 16).ok()? == generation).then(|| time.parse().ok())?
}
