//! One kind of a feed: listed, watched and resynchronised, as a state machine without IO and without a clock.
//!
//! ```text
//!            ┌────────── timer ───────────┐
//!            ▼                            │
//!        (iterate) ── full? ──► Listing ──┤ failed
//!            │                     │      │
//!            │ no                  │ done │
//!            ▼                     ▼      │
//!        StartingWatch ◄───────────┘      │
//!            │  └────────────── refused ──┤
//!            ▼                            │
//!        Watching ───────────── ended ────┘
//! ```
//!
//! Its driver passes in events ([`Event`]) and the time, and carries out the returned [`Action`]s. It keeps one
//! revision per key; values pass through.
//!
//! It never deletes on a guess: an entry is gone only when the store reported so, or when a complete list did not
//! contain it. Errors, however often they occur, delete nothing.

mod entries;
#[cfg(test)]
mod tests;

use crate::source::{Change, Part};
pub use entries::{Entries, News, Note};
use model::feed::Status;
use std::time::Duration;

/// Minimum time between two attempts to list or watch.
pub const MIN_RESYNC_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after a failed list.
pub const LIST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often to list where watching is not possible.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The pause before looking again for a kind that the store does not know, unless a follower requests a shorter one.
pub const MISSING_KIND_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// The longest pause between attempts that the store refuses: a missing permission may be granted at any time.
pub const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How long the store may be unreachable before the feed reports it.
pub const WATCH_RETRY_TIMEOUT: Duration = Duration::from_secs(600);
/// How many consecutive errors, without any progress, lead to a new list.
pub const MAX_ERRORS_PER_REVISION: u32 = 5;
/// The longest pause that a store can request.
const LONGEST_REQUESTED_PAUSE: Duration = Duration::from_secs(60);
/// Initially: whatever the store has.
const START_REVISION: &str = "0";

/// A point in time, as the duration since an arbitrary fixed point.
pub type Time = Duration;

/// The kinds of failure of a call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The revision is compacted, or does not exist yet.
    Expired,
    /// The kind does not exist.
    DoesNotExist,
    /// The store does not support this for this kind.
    NotSupported,
    /// The store refuses: a permission is missing.
    Refused,
    /// The store is unreachable, or requests a pause.
    Unreachable,
    /// Anything else.
    Other,
}

/// A call to the store that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class, which determines whether a retry can help.
    pub class: FailureClass,
    /// A description.
    pub message: String,
    /// How long the store asked to wait.
    pub retry_after: Option<Duration>,
}

impl From<datastore::Error> for Failure {
    fn from(error: datastore::Error) -> Self {
        use datastore::Error;
        let (class, retry_after) = match &error {
            Error::Expired { .. } => (FailureClass::Expired, None),
            Error::DoesNotExist { .. } => (FailureClass::DoesNotExist, None),
            Error::NotSupported { .. } => (FailureClass::NotSupported, None),
            Error::Unauthorized { .. } => (FailureClass::Refused, None),
            Error::Datastore { transient: true, retry_after, .. } => {
                (FailureClass::Unreachable, *retry_after)
            }
            Error::Datastore { retry_after, .. } => (FailureClass::Other, *retry_after),
            _ => (FailureClass::Other, None),
        };
        Self { class, message: error.to_string(), retry_after }
    }
}

/// An event: `P` is a part of a list, `C` a change reported by the watch.
#[derive(Debug)]
pub enum Event<P, C> {
    /// The requested time has come. Also the very first event.
    Timer,
    /// A part of the current list.
    ListPart(P),
    /// The list is complete; a watch from this revision misses nothing.
    ListDone {
        /// The revision; empty if the store has none.
        revision: String,
    },
    /// The list failed, before or between its parts.
    ListFailed(Failure),
    /// The watch is running.
    WatchStarted,
    /// The watch could not be started.
    WatchRefused(Failure),
    /// The watch reported a change.
    Watched(C),
    /// The watch ended.
    WatchEnded(Failure),
    /// The feed shall end.
    Stop,
}

/// Something to do. A new list, watch or timer replaces the current one.
#[derive(Debug, PartialEq)]
pub enum Action<N> {
    /// List, at or after this revision.
    List {
        /// The revision; `0` for whatever the store has.
        revision: String,
    },
    /// Watch from this revision.
    Watch {
        /// The revision.
        revision: String,
    },
    /// Send [`Event::Timer`] at this time.
    SetTimer(Time),
    /// Pass these on.
    News(N),
    /// This kind's part of the feed's status has changed.
    Status(Status),
    /// The store has been unreachable for too long.
    SyncFailed(String),
}

/// The known entries of one kind, kept according to their users' rules. [`Entries`] keeps a revision per key and passes
/// values on; a snapshot keeps the values.
pub trait Contents {
    /// A part of a list of the kind.
    type Part: Part;
    /// A change reported by the watch of the kind.
    type Change: Change;
    /// The type of news to pass on.
    type News;

    /// A list begins. An earlier incomplete one is discarded.
    fn begin(&mut self);

    /// A part of the list.
    fn part(&mut self, part: Self::Part);

    /// The list is complete: entries not in it are gone.
    fn finish(&mut self);

    /// The watch reported a change.
    fn change(&mut self, change: Self::Change);

    /// Everything is to be reported as gone.
    fn clear(&mut self);

    /// Returns the news since the last call.
    fn take_news(&mut self) -> Option<Self::News>;

    /// Whether nothing is known.
    fn is_empty(&self) -> bool;

    /// Whether the last list left deletions undone, so that another list is due.
    fn owes_deletes(&self) -> bool {
        false
    }
}

/// The state of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the timer.
    Waiting,
    /// A list is being read; `begun` once its first part has arrived.
    Listing { begun: bool, items: usize },
    /// A watch is being started.
    StartingWatch,
    /// A watch is running.
    Watching,
    /// The machine has ended.
    Stopped,
}

/// How a kind is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheOptions {
    /// Whether everything is reported as deleted when the store has been unreachable for too long.
    pub deletes_on_failure: bool,
    /// Whether the store may permanently lack the kind, as indicated by an empty list without a revision. If listing
    /// the kind is refused, other kinds do not wait for it either.
    pub optional: bool,
    /// Whether the feed needs the kind: a store that does not know it is not in sync. Without this, the kind counts as
    /// empty.
    pub required: bool,
    /// The pause before looking again for a kind that the store does not know; `None` for [`MISSING_KIND_INTERVAL`].
    pub missing_pause: Option<Duration>,
}

impl CacheOptions {
    fn missing_pause(&self) -> Duration {
        self.missing_pause.unwrap_or(MISSING_KIND_INTERVAL)
    }
}

/// The state machine of one kind.
pub struct Cache<C> {
    options: CacheOptions,
    contents: C,
    phase: Phase,
    status: Status,
    revision: String,
    errors_at_revision: u32,
    refused_lists: u32,
    refused_watches: u32,
    full_resync: bool,
    blocked_until: Time,
    last_contact: Option<Time>,
    installed: bool,
    polling: bool,
    connected: bool,
}

impl<C: Contents> Cache<C> {
    /// Creates a machine, which begins with [`Event::Timer`].
    #[must_use]
    pub fn new(contents: C, options: CacheOptions) -> Self {
        Self {
            options,
            contents,
            phase: Phase::Waiting,
            status: Status::WaitForDatastore,
            revision: START_REVISION.to_owned(),
            errors_at_revision: 0,
            refused_lists: 0,
            refused_watches: 0,
            full_resync: false,
            blocked_until: Time::ZERO,
            last_contact: None,
            installed: true,
            polling: false,
            connected: false,
        }
    }

    /// The known entries.
    #[must_use]
    pub fn contents(&self) -> &C {
        &self.contents
    }

    /// Whether a watch is running: then the contents equal the store's, except for events in flight.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.phase == Phase::Watching
    }

    /// Processes an event at this time, and returns what to do. An event that does not belong to the current operation
    /// is late and ignored.
    pub fn handle(&mut self, event: Event<C::Part, C::Change>, now: Time) -> Vec<Action<C::News>> {
        let mut actions = Vec::new();
        match (self.phase, event) {
            (Phase::Stopped, _) => {}
            (_, Event::Stop) => {
                self.delete_everything(&mut actions);
                self.phase = Phase::Stopped;
            }
            (Phase::Waiting, Event::Timer) if now < self.blocked_until => {
                actions.push(Action::SetTimer(self.blocked_until));
            }
            (Phase::Waiting, Event::Timer) => self.iterate(now, &mut actions),
            (Phase::Listing { begun, items }, Event::ListPart(part)) => {
                if !begun {
                    self.begin_list(now, &mut actions);
                }
                self.phase = Phase::Listing { begun: true, items: items + part.entries() };
                self.last_contact = Some(now);
                self.contents.part(part);
                self.deliver(&mut actions);
            }
            (Phase::Listing { begun, items }, Event::ListDone { revision }) => {
                if !begun {
                    self.begin_list(now, &mut actions);
                }
                self.list_done(items, revision, now, &mut actions);
            }
            (Phase::Listing { .. }, Event::ListFailed(failure)) => {
                self.list_failed(&failure, now, &mut actions);
            }
            (Phase::StartingWatch, Event::WatchStarted) => {
                self.phase = Phase::Watching;
                self.refused_watches = 0;
                self.full_resync = false;
            }
            (Phase::StartingWatch, Event::WatchRefused(failure)) => {
                self.watch_refused(&failure, now, &mut actions);
            }
            (Phase::Watching, Event::Watched(change)) => self.watched(change, now, &mut actions),
            (Phase::Watching, Event::WatchEnded(failure)) => self.watch_ended(&failure, now, &mut actions),
            (_, _) => {}
        }
        actions
    }

    /// Lists or watches, whichever is due.
    fn iterate(&mut self, now: Time, actions: &mut Vec<Action<C::News>>) {
        self.blocked_until = now + MIN_RESYNC_INTERVAL;
        self.full_resync |= self.revision == START_REVISION || self.contents.owes_deletes();
        if !self.full_resync {
            return self.start_watch(actions);
        }
        let was_polling = std::mem::take(&mut self.polling);
        // A kind that is polled, or that does not exist, stays in sync while it is listed again.
        if self.installed && !was_polling {
            let status = if self.connected { Status::ResyncInProgress } else { Status::WaitForDatastore };
            self.set_status(status, actions);
        }
        self.phase = Phase::Listing { begun: false, items: 0 };
        actions.push(Action::List { revision: self.revision.clone() });
    }

    fn start_watch(&mut self, actions: &mut Vec<Action<C::News>>) {
        self.phase = Phase::StartingWatch;
        actions.push(Action::Watch { revision: self.revision.clone() });
    }

    fn begin_list(&mut self, now: Time, actions: &mut Vec<Action<C::News>>) {
        self.contact(now);
        self.installed = true;
        self.refused_lists = 0;
        self.leave_waiting(actions);
        self.contents.begin();
    }

    /// Ensures that no entry is reported while the status is still waiting for the datastore.
    fn leave_waiting(&mut self, actions: &mut Vec<Action<C::News>>) {
        if self.status == Status::WaitForDatastore {
            self.set_status(Status::ResyncInProgress, actions);
        }
    }

    fn list_done(&mut self, items: usize, revision: String, now: Time, actions: &mut Vec<Action<C::News>>) {
        self.contact(now);
        if revision.is_empty() || revision == START_REVISION {
            if items == 0 && self.options.required {
                return self.wait_for_kind("the store does not know this kind", now, actions);
            }
            if items == 0 && self.options.optional {
                return self.not_installed(now, self.options.missing_pause(), actions);
            }
            // There is no revision to watch from: list repeatedly.
            self.contents.finish();
            self.deliver(actions);
            self.set_status(Status::InSync, actions);
            START_REVISION.clone_into(&mut self.revision);
            self.polling = true;
            self.full_resync = true;
            return self.wait(now + POLL_INTERVAL, actions);
        }
        self.contents.finish();
        self.deliver(actions);
        self.set_status(Status::InSync, actions);
        self.revision = revision;
        self.errors_at_revision = 0;
        self.full_resync = false;
        self.start_watch(actions);
    }

    /// The store does not know the kind, or we may not read an optional kind: a state that can last. What was reported
    /// before stays.
    fn not_installed(&mut self, now: Time, pause: Duration, actions: &mut Vec<Action<C::News>>) {
        self.leave_waiting(actions);
        self.set_status(Status::InSync, actions);
        self.polling = false;
        self.installed = false;
        self.contact(now);
        self.wait(now + pause, actions);
    }

    /// The store does not know a required kind: nothing is in sync without it, and nothing is deleted.
    fn wait_for_kind(&mut self, reason: &str, now: Time, actions: &mut Vec<Action<C::News>>) {
        self.connected = false;
        self.polling = false;
        START_REVISION.clone_into(&mut self.revision);
        self.full_resync = true;
        actions.push(Action::SyncFailed(format!(
            "{reason}; nothing is done without this kind: are Calico's custom resource definitions installed?"
        )));
        self.wait(now + POLL_INTERVAL, actions);
    }

    fn list_failed(&mut self, failure: &Failure, now: Time, actions: &mut Vec<Action<C::News>>) {
        if failure.class == FailureClass::DoesNotExist {
            if !self.options.required {
                return self.not_installed(now, self.options.missing_pause(), actions);
            }
            return self.wait_for_kind(&failure.message, now, actions);
        }
        let mut pause = LIST_RETRY_INTERVAL;
        if failure.class == FailureClass::Refused {
            pause = refused_pause(LIST_RETRY_INTERVAL, &mut self.refused_lists);
            if self.options.optional && !self.options.required {
                return self.not_installed(now, pause, actions);
            }
        }
        self.installed = true;
        if failure.class == FailureClass::Expired {
            self.restart_from_scratch();
            self.contact(now);
        } else if self.is_away_for_too_long(now) {
            self.connected = false;
            self.polling = false;
            actions.push(Action::SyncFailed(failure.message.clone()));
            if self.options.deletes_on_failure {
                self.delete_everything(actions);
            }
        }
        self.wait(now + pause.max(requested_pause(failure)), actions);
    }

    fn watch_refused(&mut self, failure: &Failure, now: Time, actions: &mut Vec<Action<C::News>>) {
        match failure.class {
            FailureClass::Expired => {
                self.restart_from_scratch();
                self.contact(now);
                self.polling = false;
            }
            FailureClass::Unreachable => {
                if self.is_away_for_too_long(now) {
                    self.restart_from_scratch();
                    self.connected = false;
                    self.polling = false;
                }
            }
            FailureClass::NotSupported | FailureClass::DoesNotExist => {
                self.polling = true;
                self.full_resync = true;
                return self.wait(now + POLL_INTERVAL, actions);
            }
            FailureClass::Refused => {
                // A kind that may be listed but not watched is listed repeatedly.
                self.polling = true;
                self.full_resync = true;
                let pause = refused_pause(POLL_INTERVAL, &mut self.refused_watches);
                return self.wait(now + pause, actions);
            }
            FailureClass::Other => {
                self.errors_at_revision += 1;
                self.full_resync |= self.errors_at_revision >= MAX_ERRORS_PER_REVISION;
            }
        }
        self.wait(self.blocked_until.max(now + requested_pause(failure)), actions);
    }

    fn watched(&mut self, change: C::Change, now: Time, actions: &mut Vec<Action<C::News>>) {
        self.last_contact = Some(now);
        if let Some(revision) = change.revision() {
            if !revision.is_empty() {
                revision.clone_into(&mut self.revision);
            }
            self.errors_at_revision = 0;
        }
        self.contents.change(change);
        self.deliver(actions);
    }

    fn watch_ended(&mut self, failure: &Failure, now: Time, actions: &mut Vec<Action<C::News>>) {
        if failure.class == FailureClass::Expired {
            self.restart_from_scratch();
            self.last_contact = Some(now);
        } else {
            self.errors_at_revision += 1;
            if self.errors_at_revision >= MAX_ERRORS_PER_REVISION {
                self.restart_from_scratch();
            }
        }
        self.wait(self.blocked_until.max(now + requested_pause(failure)), actions);
    }

    fn restart_from_scratch(&mut self) {
        START_REVISION.clone_into(&mut self.revision);
        self.errors_at_revision = 0;
    }

    fn contact(&mut self, now: Time) {
        self.connected = true;
        self.last_contact = Some(now);
    }

    fn is_away_for_too_long(&self, now: Time) -> bool {
        self.last_contact.is_none_or(|contact| now.saturating_sub(contact) > WATCH_RETRY_TIMEOUT)
    }

    fn wait(&mut self, until: Time, actions: &mut Vec<Action<C::News>>) {
        self.phase = Phase::Waiting;
        self.blocked_until = until;
        actions.push(Action::SetTimer(until));
    }

    fn set_status(&mut self, status: Status, actions: &mut Vec<Action<C::News>>) {
        if self.status != status {
            self.status = status;
            actions.push(Action::Status(status));
        }
    }

    fn deliver(&mut self, actions: &mut Vec<Action<C::News>>) {
        actions.extend(self.contents.take_news().map(Action::News));
    }

    fn delete_everything(&mut self, actions: &mut Vec<Action<C::News>>) {
        if !self.contents.is_empty() {
            self.leave_waiting(actions);
        }
        self.contents.clear();
        self.deliver(actions);
        self.restart_from_scratch();
    }
}

/// The pause after another consecutive refusal: it doubles.
fn refused_pause(first: Duration, refusals: &mut u32) -> Duration {
    let pause = first.saturating_mul(2_u32.saturating_pow(*refusals)).min(LONGEST_REFUSED_PAUSE);
    *refusals = refusals.saturating_add(1);
    pause
}

fn requested_pause(failure: &Failure) -> Duration {
    failure.retry_after.unwrap_or_default().min(LONGEST_REQUESTED_PAUSE)
}
