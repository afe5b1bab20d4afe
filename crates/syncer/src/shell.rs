//! Tasks, channels and timers around the state machines: one task for each kind, one that delivers.
//!
//! Every queue is bounded. A sink that is slow slows down the lists and watches behind it; nothing piles up here.

use crate::aggregate::{Aggregate, Delivery};
use crate::cache::{Action, Cache, Event, Failure, FailureClass, Time};
use crate::feeds::FollowedKind;
use crate::refusals::{Refusals, Step};
use crate::unreadable::Unreadable;
use async_trait::async_trait;
use datastore::{Backend, ListParts, Watch, WatchOptions};
use futures::StreamExt as _;
use model::ListOptions;
use model::feed::{Status, Update};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How many results of the kinds may wait for delivery. Each is one event's, or one part of a list's.
const WAITING_RESULTS: usize = 64;
/// How many events that are there already are looked at before their results are handed on.
const EVENTS_AT_ONCE: usize = 256;
/// How many updates of one part of a list are handed on at once.
const UPDATES_AT_ONCE: usize = 1000;

/// Whoever uses a feed. Calls come one after the other; while one is under way, the feed waits.
#[async_trait]
pub trait Sink: Send {
    /// Entries came, changed or went.
    async fn updates(&mut self, updates: Vec<Update>);

    /// The feed has come this far.
    async fn status(&mut self, status: Status);

    /// The store has been away for too long. Called again for every attempt that fails after that.
    async fn failed(&mut self, _error: String) {}
}

/// A running feed. Dropping it ends it at once; [`Syncer::stop`] ends it in order.
pub struct Syncer {
    stop: watch::Sender<bool>,
    kinds: Vec<JoinHandle<()>>,
    delivery: Option<JoinHandle<()>>,
    unreadable: Unreadable,
    refusals: Refusals,
}

impl Syncer {
    /// Which kinds the store does not let us follow.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// Ends the feed: everything that was told is told to be gone.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        for kind in self.kinds.drain(..) {
            let _ = kind.await;
        }
        if let Some(delivery) = self.delivery.take() {
            let _ = delivery.await;
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.kinds.iter().for_each(JoinHandle::abort);
        if let Some(delivery) = &self.delivery {
            delivery.abort();
        }
    }
}

/// Starts a feed of these kinds. Needs a Tokio runtime with time.
pub fn start(backend: &Arc<dyn Backend>, kinds: Vec<FollowedKind>, sink: impl Sink + 'static) -> Syncer {
    let (stop, stopped) = watch::channel(false);
    let (results, receiver) = mpsc::channel(WAITING_RESULTS);
    let unreadable = Unreadable::new();
    let refusals = Refusals::default();
    let delivery = tokio::spawn(deliver(receiver, kinds.len(), sink));
    let has_listed = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let kinds = kinds.into_iter().enumerate().map(|(number, kind)| {
        let follower = Follower {
            number,
            backend: Arc::clone(backend),
            list: kind.list,
            is_optional: kind.options.optional,
            has_listed: Arc::clone(&has_listed),
            knows_credentials: false,
            cache: Cache::new(kind.processor, kind.options),
            results: results.clone(),
            unreadable: unreadable.clone(),
            refusals: refusals.clone(),
            begin,
            work: Work::Timer(begin),
        };
        tokio::spawn(follower.run(stopped.clone()))
    });
    Syncer { stop, kinds: kinds.collect(), delivery: Some(delivery), unreadable, refusals }
}

/// What a kind has to say.
struct KindResult {
    kind: usize,
    news: News,
}

enum News {
    Updates(Vec<Update>),
    Status(Status),
    Failed(String),
}

async fn deliver(mut results: mpsc::Receiver<KindResult>, kinds: usize, mut sink: impl Sink) {
    let (mut aggregate, first) = Aggregate::new(kinds);
    hand_over(&mut sink, first).await;
    while let Some(result) = results.recv().await {
        let mut next = Some(result);
        while let Some(KindResult { kind, news }) = next {
            let deliveries = match news {
                News::Updates(updates) => aggregate.updates(updates),
                News::Status(status) => aggregate.status(kind, status),
                News::Failed(message) => aggregate.failed(message),
            };
            for delivery in deliveries {
                hand_over(&mut sink, delivery).await;
            }
            next = results.try_recv().ok();
        }
        if let Some(delivery) = aggregate.flush() {
            hand_over(&mut sink, delivery).await;
        }
    }
    if let Some(delivery) = aggregate.flush() {
        hand_over(&mut sink, delivery).await;
    }
}

async fn hand_over(sink: &mut impl Sink, delivery: Delivery) {
    match delivery {
        Delivery::Updates(updates) => sink.updates(updates).await,
        Delivery::Status(status) => {
            tracing::info!(status = status.as_str(), "feed");
            sink.status(status).await;
        }
        Delivery::Failed(message) => sink.failed(message).await,
    }
}

/// What is under way for one kind.
enum Work {
    Timer(Instant),
    List { revision: String },
    Parts { parts: ListParts, revision: String },
    StartWatch { revision: String },
    Watch(Watch),
}

/// Drives the machine of one kind.
struct Follower {
    number: usize,
    backend: Arc<dyn Backend>,
    list: ListOptions,
    is_optional: bool,
    /// Whether any kind of the feed has been listed: then our credentials are good.
    has_listed: Arc<AtomicBool>,
    /// Whether that was so when the list under way began.
    knows_credentials: bool,
    cache: Cache,
    results: mpsc::Sender<KindResult>,
    unreadable: Unreadable,
    refusals: Refusals,
    begin: Instant,
    work: Work,
}

impl Follower {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            let events = tokio::select! {
                biased;
                // The sender is only gone together with everything else.
                _ = stopped.wait_for(|stopped| *stopped) => break,
                events = next(&mut self.work, &*self.backend, &self.list) => events,
            };
            if self.take(events).await.is_none() {
                return;
            }
        }
        let _ = self.take(vec![Event::Stop]).await;
    }

    /// Hands events to the machine and does what it asks for. `None` when nobody listens any more.
    async fn take(&mut self, events: Vec<Event>) -> Option<()> {
        let mut updates = Vec::new();
        for event in events {
            let event = self.judged(event);
            self.note(&event);
            for action in self.cache.handle(event, self.now()) {
                match action {
                    Action::Emit(more) => {
                        if updates.is_empty() {
                            updates = more;
                        } else {
                            updates.extend(more);
                        }
                        if updates.len() >= UPDATES_AT_ONCE {
                            self.send_updates(&mut updates).await?;
                        }
                    }
                    Action::Status(status) => {
                        tracing::debug!(kind = %self.list, status = status.as_str(), "kind");
                        self.send_updates(&mut updates).await?;
                        self.send(News::Status(status)).await?;
                    }
                    Action::SyncFailed(message) => {
                        tracing::warn!(kind = %self.list, error = %message, "the datastore cannot be followed");
                        self.send_updates(&mut updates).await?;
                        self.send(News::Failed(message)).await?;
                    }
                    Action::Notes(notes) => self.unreadable.take(notes),
                    Action::List { revision } => {
                        self.knows_credentials = self.has_listed.load(Ordering::SeqCst);
                        self.work = Work::List { revision };
                    }
                    Action::Watch { revision } => self.work = Work::StartWatch { revision },
                    Action::SetTimer(time) => self.work = Work::Timer(self.begin + time),
                }
            }
        }
        self.send_updates(&mut updates).await
    }

    /// A refusal says something about a kind only when our credentials are known to be good. Before that, an optional kind
    /// must not count as absent: what it has to say would be missing as soon as the others are there.
    fn judged(&self, event: Event) -> Event {
        match event {
            Event::ListFailed(failure)
                if failure.class == FailureClass::Refused && self.is_optional && !self.knows_credentials =>
            {
                Event::ListFailed(Failure { class: FailureClass::Other, ..failure })
            }
            event => event,
        }
    }

    /// Keeps the record of what is refused.
    fn note(&self, event: &Event) {
        if matches!(event, Event::Timer | Event::Watched(_) | Event::ListPage { .. }) {
            return;
        }
        let kind = self.list.to_string();
        match event {
            Event::ListFailed(failure) if failure.class == FailureClass::Refused => {
                self.refusals.set(kind, Step::List, &failure.message, !self.is_optional);
            }
            Event::ListDone { .. } => {
                self.has_listed.store(true, Ordering::SeqCst);
                self.refusals.clear(&kind, Step::List);
            }
            Event::WatchRefused(failure) if failure.class == FailureClass::Refused => {
                self.refusals.set(kind, Step::Watch, &failure.message, false);
            }
            Event::WatchStarted => self.refusals.clear(&kind, Step::Watch),
            _ => {}
        }
    }

    fn now(&self) -> Time {
        self.begin.elapsed()
    }

    async fn send_updates(&mut self, updates: &mut Vec<Update>) -> Option<()> {
        if updates.is_empty() {
            return Some(());
        }
        self.send(News::Updates(std::mem::take(updates))).await
    }

    async fn send(&mut self, news: News) -> Option<()> {
        self.results.send(KindResult { kind: self.number, news }).await.ok()
    }
}

/// Waits for what is under way. May be dropped at any time: what is under way stays.
async fn next(work: &mut Work, backend: &dyn Backend, list: &ListOptions) -> Vec<Event> {
    match work {
        Work::Timer(until) => {
            tokio::time::sleep_until(*until).await;
            vec![Event::Timer]
        }
        Work::List { revision } => match backend.list_parts(list, Some(revision)).await {
            Ok(parts) => {
                *work = Work::Parts { parts, revision: String::new() };
                Vec::new()
            }
            Err(error) => vec![Event::ListFailed(failure(list, "list", error))],
        },
        Work::Parts { parts, revision } => match parts.next().await {
            Some(Ok(part)) => {
                *revision = part.revision;
                vec![Event::ListPage { items: part.items, invalid: part.invalid }]
            }
            Some(Err(error)) => vec![Event::ListFailed(failure(list, "list", error))],
            None => vec![Event::ListDone { revision: std::mem::take(revision) }],
        },
        Work::StartWatch { revision } => {
            let options = WatchOptions { revision: Some(revision.clone()), bookmarks: true };
            match backend.watch(list, options).await {
                Ok(watch) => {
                    *work = Work::Watch(watch);
                    vec![Event::WatchStarted]
                }
                Err(error) => vec![Event::WatchRefused(failure(list, "watch", error))],
            }
        }
        Work::Watch(watch) => watched(watch, list).await,
    }
}

/// The next event of a watch, and those that are there already.
async fn watched(watch: &mut Watch, list: &ListOptions) -> Vec<Event> {
    let mut ready = VecDeque::from([watch.next().await]);
    let mut events = Vec::new();
    while let Some(item) = ready.pop_front() {
        match item {
            Some(Ok(event)) => events.push(Event::Watched(event)),
            Some(Err(error)) => {
                events.push(Event::WatchEnded(failure(list, "follow", error)));
                break;
            }
            None => {
                let message = format!("the watch of {list} ended without a word");
                let class = FailureClass::Other;
                events.push(Event::WatchEnded(Failure { class, message, retry_after: None }));
                break;
            }
        }
        if events.len() < EVENTS_AT_ONCE {
            ready.extend(futures::FutureExt::now_or_never(watch.next()));
        }
    }
    events
}

fn failure(list: &ListOptions, verb: &str, error: datastore::Error) -> Failure {
    let failure = Failure::from(error);
    tracing::info!(kind = %list, class = ?failure.class, error = %failure.message, "cannot {verb}");
    failure
}
