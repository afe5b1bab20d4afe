//! Random scripts: a store that changes, compacts and fails as the script says, and a machine that must end up with the
//! contents of the store. On the way, it must report nothing that the store did not hold at that key, and delete
//! nothing that the store still holds.

use super::{Bench, FailureClass, StoredEvent, entry, failure, feed_key, fold, list_part, looked_part};
use crate::cache::{Action, Event, LIST_RETRY_INTERVAL, Time};
use datastore::WatchEvent;
use model::feed::{FeedKey, Status};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One step of a script.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An entry is written.
    Put(u8),
    /// An entry is deleted.
    Delete(u8),
    /// The store compacts its history.
    Compact,
    /// The current operation advances: a part of a list, an event of a watch, the end of a timer.
    Proceed,
    /// The current operation fails.
    Fail(FailureClass),
    /// Nothing happens for some milliseconds.
    Pass(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let class = prop_oneof![
        Just(FailureClass::Expired),
        Just(FailureClass::NotSupported),
        Just(FailureClass::Unreachable),
        Just(FailureClass::Other),
    ];
    let step = prop_oneof![
        6 => (0..6u8).prop_map(Step::Put),
        3 => (0..6u8).prop_map(Step::Delete),
        1 => Just(Step::Compact),
        12 => Just(Step::Proceed),
        3 => class.prop_map(Step::Fail),
        3 => (1..20_000u32).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

/// A store: its contents, and its history since the last compaction.
#[derive(Default)]
struct Store {
    revision: u64,
    compacted: u64,
    held: BTreeMap<u8, u64>,
    history: Vec<(u64, u8, bool)>,
}

impl Store {
    fn change(&mut self, name: u8, there: bool) {
        if !there && !self.held.contains_key(&name) {
            return;
        }
        self.revision += 1;
        if there {
            self.held.insert(name, self.revision);
        } else {
            self.held.remove(&name);
        }
        self.history.push((self.revision, name, there));
    }

    /// Its contents at a revision.
    fn at(&self, revision: u64) -> BTreeMap<u8, u64> {
        let mut held = BTreeMap::new();
        for (when, name, there) in self.history.iter().take_while(|(when, ..)| *when <= revision) {
            if *there {
                held.insert(*name, *when);
            } else {
                held.remove(name);
            }
        }
        held
    }
}

/// The machine's current operation.
#[derive(Debug)]
enum Work {
    Timer(Time),
    /// The remaining entries, and the revision of the list.
    List {
        rest: Vec<(u8, u64)>,
        revision: u64,
    },
    StartWatch(u64),
    /// The last revision that was reported.
    Watch(u64),
}

struct World {
    store: Store,
    bench: Bench,
    work: Work,
    status: Status,
    told: BTreeMap<FeedKey, String>,
}

impl World {
    fn new() -> Self {
        let bench = Bench::new(crate::cache::CacheOptions::default());
        let now = bench.now;
        let mut store = Store::default();
        // The first revision of a store is not zero.
        store.change(0, true);
        Self { store, bench, work: Work::Timer(now), status: Status::WaitForDatastore, told: BTreeMap::new() }
    }

    fn handle(&mut self, event: StoredEvent) -> Result<(), TestCaseError> {
        let mut next = None;
        for action in self.bench.cache.handle(event, self.bench.now) {
            match action {
                Action::News(news) => {
                    let updates = news.entries;
                    prop_assert_ne!(self.status, Status::WaitForDatastore, "entries while waiting");
                    for update in &updates {
                        // A deletion is only ever of something that the store once deleted.
                        if update.is_gone() {
                            let deleted = self.store.history.iter().any(|(_, name, there)| {
                                !there && feed_key(&name.to_string()).borrow() == update.key()
                            });
                            prop_assert!(deleted, "{} was never deleted", update.key());
                        }
                    }
                    fold(&mut self.told, &updates).map_err(TestCaseError::fail)?;
                }
                Action::Status(status) => {
                    prop_assert_ne!(self.status, status, "the same status twice");
                    self.status = status;
                }
                Action::SyncFailed(_) => {}
                Action::List { revision } => {
                    let revision: u64 = revision.parse().unwrap();
                    let revision = if revision == 0 { self.store.revision } else { revision };
                    let rest = self.store.at(revision).into_iter().collect();
                    next = Some(Work::List { rest, revision });
                }
                Action::Watch { revision } => next = Some(Work::StartWatch(revision.parse().unwrap())),
                Action::SetTimer(time) => next = Some(Work::Timer(time)),
            }
        }
        if let Some(next) = next {
            self.work = next;
        }
        Ok(())
    }

    fn proceed(&mut self) -> Result<(), TestCaseError> {
        match &mut self.work {
            Work::Timer(until) => {
                self.bench.now = self.bench.now.max(*until);
                self.handle(Event::Timer)
            }
            Work::List { revision, .. } if *revision < self.store.compacted => {
                self.fail(FailureClass::Expired)
            }
            Work::List { rest, revision } => {
                let revision = *revision;
                if rest.is_empty() {
                    return self.handle(Event::ListDone { revision: revision.to_string() });
                }
                let items = rest
                    .drain(..rest.len().min(2))
                    .map(|(name, revision)| entry(&name.to_string(), revision))
                    .collect();
                // Some lists are converted ahead.
                let part = if revision % 2 == 0 { list_part(items, Vec::new()) } else { looked_part(items) };
                self.handle(part)
            }
            Work::StartWatch(revision) if *revision < self.store.compacted => {
                self.fail(FailureClass::Expired)
            }
            Work::StartWatch(revision) => {
                self.work = Work::Watch(*revision);
                self.handle(Event::WatchStarted)
            }
            Work::Watch(last) => {
                let next = self.store.history.iter().find(|(when, ..)| when > last).copied();
                let Some((revision, name, there)) = next else { return Ok(()) };
                *last = revision;
                let pair = entry(&name.to_string(), revision);
                let event =
                    if there { WatchEvent::Modified { new: pair } } else { WatchEvent::Deleted(pair) };
                self.handle(Event::Watched(event))
            }
        }
    }

    fn fail(&mut self, class: FailureClass) -> Result<(), TestCaseError> {
        match self.work {
            Work::Timer(_) => Ok(()),
            Work::List { .. } => self.handle(Event::ListFailed(failure(class))),
            Work::StartWatch(_) => self.handle(Event::WatchRefused(failure(class))),
            Work::Watch(_) => self.handle(Event::WatchEnded(failure(class))),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Put(name) => self.store.change(name, true),
            Step::Delete(name) => self.store.change(name, false),
            Step::Compact => self.store.compacted = self.store.revision,
            Step::Proceed => self.proceed()?,
            Step::Fail(class) => self.fail(class)?,
            Step::Pass(milliseconds) => {
                self.bench.now += Time::from_millis(milliseconds.into());
                if matches!(self.work, Work::Timer(until) if until <= self.bench.now) {
                    self.handle(Event::Timer)?;
                }
            }
        }
        Ok(())
    }

    /// Whether there is nothing left to report.
    fn is_settled(&self) -> bool {
        matches!(self.work, Work::Watch(last) if last >= self.store.history.last().map_or(0, |(when, ..)| *when))
            && self.status == Status::InSync
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_feed_ends_with_the_contents_of_the_store(script in steps()) {
        let mut world = World::new();
        for step in script {
            world.step(step)?;
        }
        // From here on the store works.
        for _ in 0..1000 {
            if world.is_settled() {
                break;
            }
            world.proceed()?;
            world.bench.now += LIST_RETRY_INTERVAL;
        }
        prop_assert!(world.is_settled(), "{:?} {:?}", world.work, world.status);
        let held: BTreeMap<FeedKey, String> = world
            .store
            .held
            .iter()
            .map(|(name, revision)| (feed_key(&name.to_string()), revision.to_string()))
            .collect();
        prop_assert_eq!(&world.told, &held);
        prop_assert_eq!(world.bench.cache.contents().len(), held.len());
    }
}
