//! Tasks and channels around the state machines: one task per kind, and one that delivers.
//!
//! Every queue is bounded. A slow receiver slows down the lists and watches behind it; nothing accumulates here.

use crate::FeedEvent;
use crate::aggregate::Aggregate;
use crate::ahead::{FeedPart, Followed};
use crate::cache::{Cache, Entries, Event, Failure, FailureClass};
use crate::driver::{Driver, Told};
use crate::feeds::FollowedKind;
use crate::refusals::{Refusals, Step};
use crate::source::Stored;
use crate::unreadable::Unreadable;
use datastore::{Backend, WatchEvent};
use model::feed::FeedEntry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// How many events may wait for the receiver.
const WAITING_EVENTS: usize = 16;
/// How many results of the kinds may wait for delivery. Each is that of one event or of one part of a list.
const WAITING_RESULTS: usize = 64;
/// How many entries of one part of a list are passed on at once.
const ENTRIES_AT_ONCE: usize = 1000;

/// A running feed. Dropping it ends it at once; [`Follower::stop`] ends it in order.
pub struct Follower {
    stop: watch::Sender<bool>,
    kinds: Vec<JoinHandle<()>>,
    delivery: Option<JoinHandle<()>>,
    unreadable: Unreadable,
    refusals: Refusals,
}

impl Follower {
    /// The kinds that the store does not let us follow.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The objects that cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// Ends the feed: everything that was reported is reported as deleted.
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

impl Drop for Follower {
    fn drop(&mut self) {
        self.kinds.iter().for_each(JoinHandle::abort);
        if let Some(delivery) = &self.delivery {
            delivery.abort();
        }
    }
}

/// Follows these kinds and returns the channel of their events. Needs a Tokio runtime with time.
#[must_use]
pub fn follow(backend: &Arc<dyn Backend>, kinds: Vec<FollowedKind>) -> (Follower, mpsc::Receiver<FeedEvent>) {
    follow_as(backend, kinds)
}

/// Follows these kinds for a reader that wants entries in another form. They are converted where they are created: by
/// several threads at once while a large list is read.
#[must_use]
pub fn follow_as<E: From<FeedEntry> + Send + 'static>(
    backend: &Arc<dyn Backend>,
    kinds: Vec<FollowedKind>,
) -> (Follower, mpsc::Receiver<FeedEvent<E>>) {
    let (stop, stopped) = watch::channel(false);
    let (results, receiver) = mpsc::channel(WAITING_RESULTS);
    let (sender, events) = mpsc::channel(WAITING_EVENTS);
    let unreadable = Unreadable::new();
    let refusals = Refusals::default();
    let count = kinds.len();
    let delivery = tokio::spawn(async move {
        // Without a receiver there is nothing left to deliver.
        let _ = deliver(receiver, count, sender).await;
    });
    let has_listed = Arc::new(AtomicBool::new(false));
    let kinds = kinds.into_iter().enumerate().map(|(number, kind)| {
        let pure = kind.processor.pure();
        let entries = Entries::new(kind.processor);
        let source = Followed::new(Stored::new(Arc::clone(backend), kind.list), pure, entries.is_known());
        let follower = KindFollower {
            number,
            driver: Driver::new(source, Cache::new(entries, kind.options)),
            is_optional: kind.options.optional,
            has_listed: Arc::clone(&has_listed),
            knows_credentials: false,
            results: results.clone(),
            unreadable: unreadable.clone(),
            refusals: refusals.clone(),
        };
        tokio::spawn(follower.run(stopped.clone()))
    });
    let follower = Follower { stop, kinds: kinds.collect(), delivery: Some(delivery), unreadable, refusals };
    (follower, events)
}

/// Combines all kinds into one feed. Ends when all kinds have ended, or when the receiver is gone.
async fn deliver<E>(
    mut results: mpsc::Receiver<(usize, FeedEvent<E>)>,
    kinds: usize,
    events: mpsc::Sender<FeedEvent<E>>,
) -> Option<()> {
    let (mut aggregate, first) = Aggregate::new(kinds);
    hand_over(&events, first).await?;
    while let Some(result) = results.recv().await {
        let mut next = Some(result);
        while let Some((kind, event)) = next {
            let deliveries = match event {
                FeedEvent::Entries(entries) => aggregate.entries(entries),
                FeedEvent::Status(status) => aggregate.status(kind, status),
                FeedEvent::Away(message) => aggregate.away(message),
            };
            for delivery in deliveries {
                hand_over(&events, delivery).await?;
            }
            next = results.try_recv().ok();
        }
        if let Some(delivery) = aggregate.flush() {
            hand_over(&events, delivery).await?;
        }
    }
    Some(())
}

async fn hand_over<E>(events: &mpsc::Sender<FeedEvent<E>>, event: FeedEvent<E>) -> Option<()> {
    if let FeedEvent::Status(status) = &event {
        tracing::info!(status = status.as_str(), "feed");
    }
    events.send(event).await.ok()
}

type StoredEvent<E> = Event<FeedPart<E>, WatchEvent>;

/// Follows one kind.
struct KindFollower<E: From<FeedEntry> + Send + 'static> {
    number: usize,
    driver: Driver<Followed<E>, Entries<E>>,
    is_optional: bool,
    /// Whether any kind of the feed has been listed: then our credentials are valid.
    has_listed: Arc<AtomicBool>,
    /// The value of `has_listed` when the current list began.
    knows_credentials: bool,
    results: mpsc::Sender<(usize, FeedEvent<E>)>,
    unreadable: Unreadable,
    refusals: Refusals,
}

impl<E: From<FeedEntry> + Send + 'static> KindFollower<E> {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            let events = tokio::select! {
                biased;
                // The sender is dropped only together with everything else.
                _ = stopped.wait_for(|stopped| *stopped) => break,
                events = self.driver.next() => events,
            };
            if self.take(events).await.is_none() {
                return;
            }
        }
        let _ = self.take(vec![Event::Stop]).await;
    }

    /// Passes events to the machine, and the results on. `None` when the receiver is gone.
    async fn take(&mut self, events: Vec<StoredEvent<E>>) -> Option<()> {
        let mut entries = Vec::new();
        for event in events {
            let event = self.judged(event);
            self.note(&event);
            for told in self.driver.handle(event) {
                match told {
                    Told::News(news) => {
                        if !news.notes.is_empty() {
                            self.unreadable.take(news.notes);
                        }
                        entries.extend(news.entries);
                        if entries.len() >= ENTRIES_AT_ONCE {
                            self.send_entries(&mut entries).await?;
                        }
                    }
                    Told::Status(status) => {
                        tracing::debug!(kind = %self.driver.source, status = status.as_str(), "kind");
                        self.send_entries(&mut entries).await?;
                        self.send(FeedEvent::Status(status)).await?;
                    }
                    Told::Away(message) => {
                        tracing::warn!(kind = %self.driver.source, error = %message, "the datastore cannot be followed");
                        self.send_entries(&mut entries).await?;
                        self.send(FeedEvent::Away(message)).await?;
                    }
                }
            }
            if self.driver.is_about_to_list() {
                self.knows_credentials = self.has_listed.load(Ordering::SeqCst);
            }
        }
        self.send_entries(&mut entries).await
    }

    /// A refusal is only meaningful for a kind when our credentials are known to be valid. Before that, an optional
    /// kind must not count as absent: its entries would be missing once the others are in sync.
    fn judged(&self, event: StoredEvent<E>) -> StoredEvent<E> {
        match event {
            Event::ListFailed(failure)
                if failure.class == FailureClass::Refused && self.is_optional && !self.knows_credentials =>
            {
                Event::ListFailed(Failure { class: FailureClass::Other, ..failure })
            }
            event => event,
        }
    }

    /// Records what is refused.
    fn note(&self, event: &StoredEvent<E>) {
        if matches!(event, Event::Timer | Event::Watched(_) | Event::ListPart(_)) {
            return;
        }
        let kind = self.driver.source.to_string();
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

    async fn send_entries(&mut self, entries: &mut Vec<E>) -> Option<()> {
        if entries.is_empty() {
            return Some(());
        }
        self.send(FeedEvent::Entries(std::mem::take(entries))).await
    }

    async fn send(&mut self, event: FeedEvent<E>) -> Option<()> {
        self.results.send((self.number, event)).await.ok()
    }
}
