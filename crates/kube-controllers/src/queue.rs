//! Keys that wait for a worker.
//!
//! - A key waits only once, however often it is added. A key that is added while it is being processed is processed
//!   again afterwards, so two workers never have the same key.
//! - A key that failed is retried after a pause that doubles up to a limit. It is never dropped: the failed change may
//!   be the only news of an object for hours.
//!
//! [`Waiting`] decides, with the time as an argument; [`WorkQueue`] lets workers wait for it. No timer runs while no
//! key is waiting.

use daemon::Backoff;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The pauses before a failed key is retried.
pub(crate) const RETRY: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));

/// The outcome of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
}

/// The state of a key in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Ready for a worker.
    Ready,
    /// A worker is processing it; `again` if it was added in the meantime.
    Working { again: bool },
    /// Due at this time.
    Later(Instant, u64),
    /// Not in the queue; only its failures are remembered.
    Away,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    failures: u32,
}

/// The keys that are waiting, and those being processed.
#[derive(Debug)]
pub(crate) struct Waiting<K> {
    policy: Backoff,
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    later: BTreeMap<(Instant, u64), K>,
    sequence: u64,
}

impl<K: Clone + Eq + Hash + Debug> Waiting<K> {
    /// Creates an empty queue.
    #[must_use]
    pub(crate) fn new(policy: Backoff) -> Self {
        Self { policy, entries: HashMap::new(), ready: VecDeque::new(), later: BTreeMap::new(), sequence: 0 }
    }

    /// Adds a key.
    pub(crate) fn add(&mut self, key: K) {
        let entry = self.entries.entry(key.clone()).or_insert(Entry { place: Place::Away, failures: 0 });
        match entry.place {
            Place::Ready => return,
            Place::Working { .. } => {
                entry.place = Place::Working { again: true };
                return;
            }
            Place::Later(time, sequence) => {
                self.later.remove(&(time, sequence));
            }
            Place::Away => {}
        }
        entry.place = Place::Ready;
        self.ready.push_back(key);
    }

    /// Adds a key that is due at a certain time, unless it is already due earlier.
    pub(crate) fn add_at(&mut self, key: K, time: Instant) {
        let entry = self.entries.entry(key.clone()).or_insert(Entry { place: Place::Away, failures: 0 });
        match entry.place {
            Place::Ready | Place::Working { again: true } => return,
            // A worker may be about to finish with outdated state: the key is processed again at once.
            Place::Working { again: false } => {
                entry.place = Place::Working { again: true };
                return;
            }
            Place::Later(planned, _) if planned <= time => return,
            Place::Later(planned, sequence) => {
                self.later.remove(&(planned, sequence));
            }
            Place::Away => {}
        }
        self.sequence += 1;
        entry.place = Place::Later(time, self.sequence);
        self.later.insert((time, self.sequence), key);
    }

    /// Returns the next key, if one is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.place = Place::Ready;
            }
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.place = Place::Working { again: false };
        }
        Some(key)
    }

    /// When the next key is due; `None` if no key is scheduled for later.
    #[must_use]
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((time, _), _)| *time)
    }

    /// Records that a worker has finished a key.
    pub(crate) fn finish(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let again = entry.place == Place::Working { again: true };
        entry.place = Place::Away;
        match outcome {
            Outcome::Done => entry.failures = 0,
            Outcome::Failed => entry.failures = entry.failures.saturating_add(1),
        }
        let failures = entry.failures;
        if outcome == Outcome::Done {
            if again {
                self.add(key.clone());
            } else {
                self.entries.remove(key);
            }
            return;
        }
        self.add_at(key.clone(), now + self.policy.after(failures));
    }
}

/// A queue on which workers wait. Cheap to clone.
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    waiting: Arc<Mutex<Waiting<K>>>,
    news: Arc<Notify>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting), news: Arc::clone(&self.news) }
    }
}

impl<K: Clone + Eq + Hash + Debug + Send> WorkQueue<K> {
    /// Creates an empty queue.
    #[must_use]
    pub(crate) fn new(policy: Backoff) -> Self {
        Self { waiting: Arc::new(Mutex::new(Waiting::new(policy))), news: Arc::new(Notify::new()) }
    }

    /// Adds a key.
    pub(crate) fn add(&self, key: K) {
        self.waiting().add(key);
        self.news.notify_one();
    }

    /// Waits for a key. The worker must pass it to [`WorkQueue::finish`] afterwards.
    pub(crate) async fn take(&self) -> K {
        loop {
            let next = {
                let mut waiting = self.waiting();
                if let Some(key) = waiting.take(Instant::now()) {
                    // Another worker may be asleep while there are more keys.
                    self.news.notify_one();
                    return key;
                }
                waiting.next_time()
            };
            match next {
                Some(time) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(time.into()) => {}
                        () = self.news.notified() => {}
                    }
                }
                None => self.news.notified().await,
            }
        }
    }

    /// Records the outcome of a key.
    pub(crate) fn finish(&self, key: &K, outcome: Outcome) {
        self.waiting().finish(key, outcome, Instant::now());
        self.news.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<K>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn queue() -> (Waiting<&'static str>, Instant) {
        (Waiting::new(RETRY), Instant::now())
    }

    #[test]
    fn a_key_waits_once() {
        let (mut queue, now) = queue();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!((queue.take(now), queue.take(now), queue.take(now)), (Some("a"), Some("b"), None));
    }

    #[test]
    fn a_key_added_during_processing_is_processed_again() {
        let (mut queue, now) = queue();
        queue.add("a");
        assert_eq!(queue.take(now), Some("a"));
        queue.add("a");
        assert_eq!(queue.take(now), None, "no second worker");
        queue.finish(&"a", Outcome::Done, now);
        assert_eq!(queue.take(now), Some("a"));
        queue.finish(&"a", Outcome::Done, now);
        assert!(queue.entries.is_empty());
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_the_key_is_never_dropped() {
        let (mut queue, mut now) = queue();
        queue.add("a");
        for attempt in 0..100_u32 {
            assert_eq!(queue.take(now), Some("a"), "attempt {attempt}");
            queue.finish(&"a", Outcome::Failed, now);
            let pause = Duration::from_millis(5) * 2_u32.pow(attempt.min(20));
            let pause = pause.min(Duration::from_secs(60));
            assert_eq!(queue.next_time(), Some(now + pause));
            assert_eq!(queue.take(now + pause - Duration::from_millis(1)), None);
            now += pause;
        }
    }

    #[test]
    fn a_success_resets_failures_and_news_end_a_pause() {
        let (mut queue, now) = queue();
        queue.add("a");
        queue.take(now);
        queue.finish(&"a", Outcome::Failed, now);
        queue.add("a");
        assert_eq!(queue.take(now), Some("a"), "news do not wait for the pause");
        assert_eq!(queue.next_time(), None);
        queue.finish(&"a", Outcome::Done, now);
        queue.add("a");
        queue.take(now);
        queue.finish(&"a", Outcome::Failed, now);
        assert_eq!(queue.next_time(), Some(now + Duration::from_millis(5)));
    }

    /// An event for a queue.
    #[derive(Clone, Debug)]
    enum Event {
        Add(u8),
        AddLater(u8, u64),
        Take,
        Finish(usize, bool),
        Pass(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..4_u8).prop_map(Event::Add),
            (0..4_u8, 0..50_u64).prop_map(|(key, pause)| Event::AddLater(key, pause)),
            Just(Event::Take),
            (0..4_usize, any::<bool>()).prop_map(|(index, done)| Event::Finish(index, done)),
            (0..100_u64).prop_map(Event::Pass),
        ]
    }

    proptest! {
        /// Whatever the order of events, no two workers have the same key, and every added key is processed.
        #[test]
        fn no_key_is_lost_or_held_twice(events in proptest::collection::vec(event(), 0..60)) {
            let (mut queue, mut now) = (Waiting::new(RETRY), Instant::now());
            let mut working: Vec<u8> = Vec::new();
            let mut owed: HashSet<u8> = HashSet::new();
            for event in events {
                match event {
                    Event::Add(key) => {
                        queue.add(key);
                        owed.insert(key);
                    }
                    Event::AddLater(key, pause) => {
                        queue.add_at(key, now + Duration::from_millis(pause));
                        owed.insert(key);
                    }
                    Event::Take => {
                        if let Some(key) = queue.take(now) {
                            prop_assert!(!working.contains(&key));
                            working.push(key);
                            owed.remove(&key);
                        }
                    }
                    Event::Finish(index, done) if index < working.len() => {
                        let key = working.remove(index);
                        let outcome = if done { Outcome::Done } else { Outcome::Failed };
                        queue.finish(&key, outcome, now);
                        if !done {
                            owed.insert(key);
                        }
                    }
                    Event::Finish(..) => {}
                    Event::Pass(time) => now += Duration::from_millis(time),
                }
            }
            for key in working {
                queue.finish(&key, Outcome::Done, now);
            }
            now += Duration::from_secs(3600);
            while let Some(key) = queue.take(now) {
                owed.remove(&key);
                queue.finish(&key, Outcome::Done, now);
            }
            prop_assert!(owed.is_empty(), "lost: {owed:?}");
            prop_assert!(queue.entries.is_empty());
        }
    }

    #[tokio::test]
    async fn workers_share_the_keys() {
        let queue = WorkQueue::new(RETRY);
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let key = queue.take().await;
                    queue.finish(&key, Outcome::Done);
                    key
                })
            })
            .collect();
        queue.add("a");
        queue.add("b");
        queue.waiting().add_at("c", Instant::now() + Duration::from_millis(5));
        let mut keys = Vec::new();
        for worker in workers {
            keys.push(worker.await.expect("a worker"));
        }
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b", "c"]);
        assert!(queue.waiting().entries.is_empty());
    }
}
