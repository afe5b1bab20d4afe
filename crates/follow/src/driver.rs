//! Carries out the actions of one kind's state machine: lists, watches, pauses.

use crate::cache::{Action, Cache, Contents, Event, Failure, FailureClass};
use crate::source::{Items, Part as _, Source};
use futures::StreamExt as _;
use model::feed::Status;
use std::collections::VecDeque;
use std::fmt;
use tokio::time::Instant;

/// How many available events are processed before their results are passed on.
const EVENTS_AT_ONCE: usize = 256;

/// The current operation of one kind.
enum Work<S: Source> {
    Timer(Instant),
    List { revision: String },
    Parts { parts: Items<S::Part>, revision: String },
    StartWatch { revision: String },
    Watch(Items<S::Change>),
}

/// What a machine reports to its followers.
#[derive(Debug)]
pub enum Told<N> {
    /// New entries.
    News(N),
    /// The status of the kind.
    Status(Status),
    /// The store has been unreachable for too long.
    Away(String),
}

/// A machine and its pending operation: call [`Driver::next`] and pass its events to [`Driver::handle`] in a loop.
pub struct Driver<S: Source, C> {
    /// The source to follow.
    pub source: S,
    /// The machine.
    pub cache: Cache<C>,
    begin: Instant,
    work: Work<S>,
}

impl<S: Source, C: Contents<Part = S::Part, Change = S::Change>> Driver<S, C> {
    /// Creates a driver for a machine that has not begun.
    #[must_use]
    pub fn new(source: S, cache: Cache<C>) -> Self {
        let begin = Instant::now();
        Self { source, cache, begin, work: Work::Timer(begin) }
    }

    /// Whether a list was requested and has not begun.
    pub(crate) fn is_about_to_list(&self) -> bool {
        matches!(self.work, Work::List { .. })
    }

    /// Passes an event to the machine.
    pub fn handle(&mut self, event: Event<S::Part, S::Change>) -> Vec<Told<C::News>> {
        let mut told = Vec::new();
        for action in self.cache.handle(event, self.begin.elapsed()) {
            match action {
                Action::News(news) => told.push(Told::News(news)),
                Action::Status(status) => told.push(Told::Status(status)),
                Action::SyncFailed(message) => told.push(Told::Away(message)),
                Action::List { revision } => self.work = Work::List { revision },
                Action::Watch { revision } => self.work = Work::StartWatch { revision },
                Action::SetTimer(time) => self.work = Work::Timer(self.begin + time),
            }
        }
        told
    }

    /// Waits for the current operation. Cancel-safe: the operation continues.
    pub async fn next(&mut self) -> Vec<Event<S::Part, S::Change>> {
        match &mut self.work {
            Work::Timer(until) => {
                tokio::time::sleep_until(*until).await;
                vec![Event::Timer]
            }
            Work::List { revision } => match self.source.list(revision).await {
                Ok(parts) => {
                    self.work = Work::Parts { parts, revision: String::new() };
                    Vec::new()
                }
                Err(failure) => vec![Event::ListFailed(failure)],
            },
            Work::Parts { parts, revision } => {
                // A long list would otherwise never yield; the task that reads the rest of it from the network gets a
                // turn in between.
                tokio::task::yield_now().await;
                match parts.next().await {
                    Some(Ok(part)) => {
                        part.revision().clone_into(revision);
                        vec![Event::ListPart(part)]
                    }
                    Some(Err(failure)) => vec![Event::ListFailed(failure)],
                    None => vec![Event::ListDone { revision: std::mem::take(revision) }],
                }
            }
            Work::StartWatch { revision } => match self.source.watch(revision).await {
                Ok(watch) => {
                    self.work = Work::Watch(watch);
                    vec![Event::WatchStarted]
                }
                Err(failure) => vec![Event::WatchRefused(failure)],
            },
            Work::Watch(watch) => watched(watch, &self.source).await,
        }
    }
}

/// The next event of a watch, and any further ones available at once.
async fn watched<P, C>(watch: &mut Items<C>, source: &impl fmt::Display) -> Vec<Event<P, C>> {
    let mut ready = VecDeque::from([watch.next().await]);
    let mut events = Vec::new();
    while let Some(item) = ready.pop_front() {
        match item {
            Some(Ok(change)) => events.push(Event::Watched(change)),
            Some(Err(failure)) => {
                events.push(Event::WatchEnded(failure));
                break;
            }
            None => {
                let message = format!("the watch of {source} ended");
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
