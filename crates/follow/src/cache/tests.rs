//! The machine, rule by rule, driven by hand; then by random scripts against a model of a store.

use super::*;
use crate::ahead::{FeedPart, Looked};
use crate::processor::{Converted, Processor as _, Stored};
use api::{Kind, Resource};
use datastore::{InvalidEntry, KvList, WatchEvent};
use model::feed::{FeedEntry, FeedKey};
use model::{Key, KvPair};
use std::collections::{BTreeMap, BTreeSet};

mod scripts;

/// A network set of this name, at this revision.
pub(super) fn entry(name: &str, revision: u64) -> KvPair {
    let object =
        serde_json::json!({"metadata": {"name": name, "labels": {"revision": revision.to_string()}}});
    let mut pair = KvPair::resource(Resource::from_value(Kind::GlobalNetworkSet, object).unwrap());
    pair.set_revision(&revision.to_string());
    pair
}

pub(super) fn key(name: &str) -> Key {
    Key::resource(Kind::GlobalNetworkSet, "", name)
}

pub(super) fn feed_key(name: &str) -> FeedKey {
    FeedKey::Resource(key(name).as_resource().unwrap().clone())
}

fn invalid(name: &str) -> InvalidEntry {
    InvalidEntry {
        key: format!("globalnetworksets/{name}"),
        parsed_key: Some(key(name)),
        reason: "broken".to_owned(),
        salvaged: None,
    }
}

fn failure(class: FailureClass) -> Failure {
    Failure { class, message: "it failed".to_owned(), retry_after: None }
}

type StoredEvent = Event<FeedPart<FeedEntry>, WatchEvent>;

fn list_part(items: Vec<KvPair>, invalid: Vec<InvalidEntry>) -> StoredEvent {
    Event::ListPart(KvList { items, invalid, ..KvList::default() }.into())
}

fn looked_part(items: Vec<KvPair>) -> StoredEvent {
    let part = KvList { items, ..KvList::default() };
    Event::ListPart(FeedPart::Looked(Looked::of(part.into(), Stored.pure().unwrap())))
}

/// A machine with its clock, which prints its actions in short.
struct Bench {
    cache: Cache<Entries>,
    now: Time,
    /// The names of the existing entries, as far as reported.
    there: BTreeSet<String>,
}

impl Bench {
    fn new(options: CacheOptions) -> Self {
        // The clock does not start at zero: nothing may depend on that.
        Self::of(Cache::new(Entries::new(Box::new(Stored)), options))
    }

    fn of(cache: Cache<Entries>) -> Self {
        Self { cache, now: Duration::from_secs(10_000), there: BTreeSet::new() }
    }

    fn started() -> Self {
        let mut bench = Self::new(CacheOptions::default());
        assert_eq!(bench.tick(), ["list 0"]);
        bench
    }

    /// In sync, watching from revision 5, with these entries.
    fn watching(entries: &[(&str, u64)]) -> Self {
        let mut bench = Self::started();
        bench.page(entries);
        bench.handle(Event::ListDone { revision: "5".to_owned() });
        assert_eq!(bench.handle(Event::WatchStarted), Vec::<String>::new());
        bench
    }

    fn handle(&mut self, event: StoredEvent) -> Vec<String> {
        let now = self.now;
        let actions = self.cache.handle(event, now);
        actions.into_iter().flat_map(|action| self.show(action)).collect()
    }

    fn show(&mut self, action: Action<News>) -> Vec<String> {
        match action {
            Action::List { revision } => vec![format!("list {revision}")],
            Action::Watch { revision } => vec![format!("watch {revision}")],
            Action::SetTimer(time) => vec![format!("wait {} ms", (time - self.now).as_millis())],
            Action::News(News { entries, notes }) => {
                let note = |note: Note| {
                    format!("note {} {}", note.key, note.reason.unwrap_or_else(|| "over".to_owned()))
                };
                let notes: Vec<String> = notes.into_iter().map(note).collect();
                let entries: Vec<String> = entries.iter().map(|entry| self.show_entry(entry)).collect();
                [notes, entries].concat()
            }
            Action::Status(status) => vec![status.as_str().to_owned()],
            Action::SyncFailed(_) => vec!["failed".to_owned()],
        }
    }

    /// `+` for a new entry, `~` for a changed one, `-` for a removed one.
    fn show_entry(&mut self, entry: &FeedEntry) -> String {
        let (name, revision) = match entry {
            FeedEntry::Resource(key, value) => {
                (key.name.clone(), value.as_ref().map(|set| set.metadata().labels["revision"].clone()))
            }
            FeedEntry::Profile(name, value) => (name.to_string(), value.as_ref().map(|_| String::new())),
            other => (other.key().to_string(), (!other.is_gone()).then(String::new)),
        };
        match revision {
            Some(revision) if self.there.insert(name.clone()) => format!("+{name}@{revision}"),
            Some(revision) => format!("~{name}@{revision}"),
            None => {
                assert!(self.there.remove(&name), "{name} was never there");
                format!("-{name}")
            }
        }
    }

    fn tick(&mut self) -> Vec<String> {
        self.handle(Event::Timer)
    }

    fn after(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.tick()
    }

    fn page(&mut self, entries: &[(&str, u64)]) -> Vec<String> {
        let items = entries.iter().map(|(name, revision)| entry(name, *revision)).collect();
        self.handle(Event::ListPart(KvList { items, ..KvList::default() }.into()))
    }

    fn done(&mut self, revision: &str) -> Vec<String> {
        self.handle(Event::ListDone { revision: revision.to_owned() })
    }

    fn put(&mut self, name: &str, revision: u64) -> Vec<String> {
        self.handle(Event::Watched(WatchEvent::Modified { new: entry(name, revision) }))
    }

    fn delete(&mut self, name: &str, revision: u64) -> Vec<String> {
        self.handle(Event::Watched(WatchEvent::Deleted(entry(name, revision))))
    }

    fn end(&mut self, class: FailureClass) -> Vec<String> {
        self.handle(Event::WatchEnded(failure(class)))
    }

    fn refuse(&mut self, class: FailureClass) -> Vec<String> {
        self.handle(Event::WatchRefused(failure(class)))
    }

    fn fail_list(&mut self, class: FailureClass) -> Vec<String> {
        self.handle(Event::ListFailed(failure(class)))
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn list_then_watch() {
    let mut bench = Bench::started();
    // No entry before the status has left the waiting state, and none twice.
    assert_eq!(bench.page(&[("a", 1), ("b", 2)]), ["resync", "+a@1", "+b@2"]);
    assert_eq!(bench.page(&[("c", 3), ("a", 1)]), ["+c@3"]);
    assert_eq!(bench.done("7"), ["in-sync", "watch 7"]);
    assert_eq!(bench.handle(Event::WatchStarted), NOTHING);
    assert_eq!(bench.put("a", 8), ["~a@8"]);
    assert_eq!(bench.put("a", 8), NOTHING);
    assert_eq!(bench.put("d", 9), ["+d@9"]);
    assert_eq!(bench.delete("b", 10), ["-b"]);
    assert_eq!(bench.delete("b", 11), NOTHING);
    assert_eq!(bench.put("b", 12), ["+b@12"]);
    assert_eq!(bench.handle(Event::Watched(WatchEvent::Bookmark("20".to_owned()))), NOTHING);
    // The watch ends: it resumes from the last revision, without a list.
    assert_eq!(bench.end(FailureClass::Other), ["wait 500 ms"]);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["watch 20"]);
}

#[test]
fn an_empty_list_is_in_sync() {
    let mut bench = Bench::started();
    assert_eq!(bench.done("7"), ["resync", "in-sync", "watch 7"]);
}

#[test]
fn attempts_are_at_least_half_a_second_apart() {
    let mut bench = Bench::watching(&[]);
    bench.now += Duration::from_millis(100);
    assert_eq!(bench.end(FailureClass::Other), ["wait 400 ms"]);
    // A timer that fires too early changes nothing.
    assert_eq!(bench.after(Duration::from_millis(399)), ["wait 1 ms"]);
    assert_eq!(bench.after(Duration::from_millis(1)), ["watch 5"]);
    // After a long watch there is no need to wait.
    bench.handle(Event::WatchStarted);
    bench.now += Duration::from_secs(60);
    assert_eq!(bench.end(FailureClass::Other), ["wait 0 ms"]);
    assert_eq!(bench.tick(), ["watch 5"]);
}

#[test]
fn a_list_that_fails_is_repeated_after_a_second() {
    let mut bench = Bench::started();
    // Never connected so far: listeners are notified at once.
    assert_eq!(bench.fail_list(FailureClass::Unreachable), ["failed", "wait 1000 ms"]);
    assert_eq!(bench.after(Duration::from_secs(1)), ["list 0"]);
    assert_eq!(bench.fail_list(FailureClass::Other), ["failed", "wait 1000 ms"]);
    assert_eq!(bench.after(Duration::from_secs(1)), ["list 0"]);
    assert_eq!(bench.done("7"), ["resync", "in-sync", "watch 7"]);
    // A pause that the store requests is observed, within limits.
    bench.handle(Event::WatchStarted);
    bench.end(FailureClass::Expired);
    bench.after(Duration::from_secs(1));
    for (asked, pause) in [(5, 5000), (100_000, 60_000)] {
        let failure =
            Failure { retry_after: Some(Duration::from_secs(asked)), ..failure(FailureClass::Unreachable) };
        assert_eq!(bench.handle(Event::ListFailed(failure)), [format!("wait {pause} ms")]);
        bench.after(Duration::from_millis(pause));
    }
}

#[test]
fn a_list_that_fails_in_the_middle_deletes_nothing() {
    let mut bench = Bench::watching(&[("a", 1), ("b", 2), ("c", 3)]);
    bench.end(FailureClass::Expired);
    assert_eq!(bench.after(Duration::from_secs(1)), ["resync", "list 0"]);
    assert_eq!(bench.page(&[("a", 10)]), ["~a@10"]);
    assert_eq!(bench.fail_list(FailureClass::Expired), ["wait 1000 ms"]);
    assert_eq!(bench.after(Duration::from_secs(1)), ["list 0"]);
    assert_eq!(bench.page(&[("a", 10), ("c", 3)]), NOTHING);
    assert_eq!(bench.done("12"), ["-b", "in-sync", "watch 12"]);
}

#[test]
fn an_expired_revision_causes_a_list_that_deletes_vanished_entries() {
    let mut bench = Bench::watching(&[("a", 1), ("b", 2), ("c", 3)]);
    assert_eq!(bench.end(FailureClass::Expired), ["wait 500 ms"]);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["resync", "list 0"]);
    assert_eq!(bench.page(&[("a", 1), ("c", 9), ("d", 8)]), ["~c@9", "+d@8"]);
    assert_eq!(bench.done("9"), ["-b", "in-sync", "watch 9"]);
    // The same happens when the watch is refused as expired.
    assert_eq!(bench.refuse(FailureClass::Expired), ["wait 500 ms"]);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["resync", "list 0"]);
}

#[test]
fn five_errors_without_progress_lead_to_a_list() {
    let mut bench = Bench::watching(&[("a", 1)]);
    for _ in 0..4 {
        assert_eq!(bench.end(FailureClass::Other), ["wait 500 ms"]);
        assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["watch 5"]);
        bench.handle(Event::WatchStarted);
    }
    bench.end(FailureClass::Other);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["resync", "list 0"]);
    bench.page(&[("a", 1)]);
    assert_eq!(bench.done("6"), ["in-sync", "watch 6"]);
    // Refusals count like ends; the list is then requested at the revision that was reached.
    for _ in 0..4 {
        assert_eq!(bench.refuse(FailureClass::Other), ["wait 500 ms"]);
        assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["watch 6"]);
    }
    bench.refuse(FailureClass::Other);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["resync", "list 6"]);
    bench.page(&[("a", 1)]);
    bench.done("6");
    // Progress resets the count.
    bench.handle(Event::WatchStarted);
    for round in 0..20 {
        assert_eq!(bench.put("a", 100 + round), [format!("~a@{}", 100 + round)]);
        bench.end(FailureClass::Other);
        assert_eq!(bench.after(MIN_RESYNC_INTERVAL), [format!("watch {}", 100 + round)]);
        bench.handle(Event::WatchStarted);
    }
}

#[test]
fn an_unreachable_store_is_waited_for() {
    let mut bench = Bench::watching(&[("a", 1)]);
    bench.end(FailureClass::Other);
    bench.after(MIN_RESYNC_INTERVAL);
    // For ten minutes the watch is simply retried, and nothing is reported.
    for _ in 0..1199 {
        assert_eq!(bench.refuse(FailureClass::Unreachable), ["wait 500 ms"]);
        assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["watch 5"]);
    }
    bench.refuse(FailureClass::Unreachable);
    assert_eq!(bench.after(Duration::from_secs(2)), ["watch 5"]);
    assert_eq!(bench.refuse(FailureClass::Unreachable), ["wait 500 ms"]);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["wait-for-ready", "list 0"]);
    assert_eq!(bench.fail_list(FailureClass::Unreachable), ["failed", "wait 1000 ms"]);
    bench.after(Duration::from_secs(1));
    // Reachable again: nothing was lost, and unchanged entries are not reported again.
    assert_eq!(bench.page(&[("a", 1)]), ["resync"]);
    assert_eq!(bench.done("9"), ["in-sync", "watch 9"]);
}

#[test]
fn deletes_on_failure_only_where_requested() {
    let options = CacheOptions { deletes_on_failure: true, ..CacheOptions::default() };
    let mut bench = Bench::new(options);
    bench.tick();
    bench.page(&[("a", 1)]);
    bench.done("5");
    bench.handle(Event::WatchStarted);
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    bench.now += WATCH_RETRY_TIMEOUT - MIN_RESYNC_INTERVAL;
    assert_eq!(bench.fail_list(FailureClass::Unreachable), ["wait 1000 ms"]);
    bench.after(Duration::from_secs(1));
    assert_eq!(bench.fail_list(FailureClass::Unreachable), ["failed", "-a", "wait 1000 ms"]);
    bench.after(Duration::from_secs(1));
    assert_eq!(bench.page(&[("a", 1)]), ["resync", "+a@1"]);
}

#[test]
fn kinds_that_cannot_be_watched_are_polled_and_stay_in_sync() {
    for class in [FailureClass::NotSupported, FailureClass::DoesNotExist] {
        let mut bench = Bench::started();
        bench.page(&[("a", 1)]);
        bench.done("5");
        for _ in 0..3 {
            assert_eq!(bench.refuse(class), ["wait 5000 ms"]);
            assert_eq!(bench.after(POLL_INTERVAL), ["list 5"]);
            assert_eq!(bench.page(&[("a", 1)]), NOTHING);
            assert_eq!(bench.done("5"), ["watch 5"]);
        }
        bench.refuse(class);
        assert_eq!(bench.after(POLL_INTERVAL), ["list 5"]);
        bench.page(&[("b", 6)]);
        assert_eq!(bench.done("6"), ["-a", "watch 6"]);
        assert_eq!(bench.handle(Event::WatchStarted), NOTHING);
    }
}

#[test]
fn an_empty_list_without_a_revision_is_polled() {
    for revision in ["", "0"] {
        let mut bench = Bench::started();
        assert_eq!(bench.done(revision), ["resync", "in-sync", "wait 5000 ms"]);
        assert_eq!(bench.after(POLL_INTERVAL), ["list 0"]);
        assert_eq!(bench.done(revision), ["wait 5000 ms"]);
        bench.after(POLL_INTERVAL);
        assert_eq!(bench.page(&[("a", 1)]), ["+a@1"]);
        assert_eq!(bench.done("3"), ["watch 3"]);
    }
}

#[test]
fn a_kind_unknown_to_the_store_is_requested_twice_an_hour() {
    let options = CacheOptions { optional: true, ..CacheOptions::default() };
    let mut bench = Bench::new(options);
    bench.tick();
    assert_eq!(bench.done(""), ["resync", "in-sync", "wait 1800000 ms"]);
    assert_eq!(bench.after(MISSING_KIND_INTERVAL), ["list 0"]);
    assert_eq!(bench.fail_list(FailureClass::DoesNotExist), ["wait 1800000 ms"]);
    assert_eq!(bench.after(MISSING_KIND_INTERVAL), ["list 0"]);
    // It was installed in the meantime.
    assert_eq!(bench.page(&[("a", 1)]), ["+a@1"]);
    assert_eq!(bench.done("3"), ["watch 3"]);
    // The removal of its definition deletes nothing.
    bench.handle(Event::WatchStarted);
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    assert_eq!(bench.fail_list(FailureClass::DoesNotExist), ["in-sync", "wait 1800000 ms"]);
    assert_eq!(bench.cache.contents().len(), 1);
}

#[test]
fn a_refused_list_is_repeated_with_growing_pauses() {
    let mut bench = Bench::started();
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        let asked = bench.fail_list(FailureClass::Refused);
        assert_eq!(asked, ["failed".to_owned(), format!("wait {} ms", pause * 1000)]);
        assert_eq!(bench.after(Duration::from_secs(pause)), ["list 0"]);
    }
    // The permission was granted; if it is revoked again, the pauses start over with the shortest.
    assert_eq!(bench.page(&[("a", 1)]), ["resync", "+a@1"]);
    assert_eq!(bench.done("3"), ["in-sync", "watch 3"]);
    bench.handle(Event::WatchStarted);
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    assert_eq!(bench.fail_list(FailureClass::Refused), ["wait 1000 ms"]);
    assert_eq!(bench.cache.contents().len(), 1, "a refusal deletes nothing");
}

#[test]
fn a_refused_optional_kind_delays_no_others() {
    let mut bench = Bench::new(CacheOptions { optional: true, ..CacheOptions::default() });
    bench.tick();
    assert_eq!(bench.fail_list(FailureClass::Refused), ["resync", "in-sync", "wait 1000 ms"]);
    assert_eq!(bench.after(Duration::from_secs(1)), ["list 0"]);
    assert_eq!(bench.fail_list(FailureClass::Refused), ["wait 2000 ms"]);
    assert_eq!(bench.after(Duration::from_secs(2)), ["list 0"]);
    assert_eq!(bench.page(&[("a", 1)]), ["+a@1"]);
    assert_eq!(bench.done("3"), ["watch 3"]);
}

#[test]
fn a_kind_that_may_only_be_listed_is_polled_and_stays_in_sync() {
    let mut bench = Bench::started();
    bench.page(&[("a", 1)]);
    assert_eq!(bench.done("3"), ["in-sync", "watch 3"]);
    for (number, pause) in [5, 10, 20, 40, 60, 60].into_iter().enumerate() {
        assert_eq!(bench.refuse(FailureClass::Refused), [format!("wait {} ms", pause * 1000)]);
        assert_eq!(bench.after(Duration::from_secs(pause)), ["list 3".to_owned()], "{number}");
        assert_eq!(bench.page(&[("a", 1)]), NOTHING);
        assert_eq!(bench.done("3"), ["watch 3"]);
    }
    assert_eq!(bench.handle(Event::WatchStarted), NOTHING);
}

#[test]
fn a_kind_that_is_needed_and_whose_list_has_no_revision_is_waited_for() {
    // A Kubernetes API without the definition answers like this.
    let mut bench = Bench::new(CacheOptions { required: true, ..CacheOptions::default() });
    bench.tick();
    assert_eq!(bench.done(""), ["resync", "failed", "wait 5000 ms"], "never in sync");
    assert_eq!(bench.after(POLL_INTERVAL), ["wait-for-ready", "list 0"]);
    assert_eq!(bench.page(&[("a", 1)]), ["resync", "+a@1"]);
    assert_eq!(bench.done("3"), ["in-sync", "watch 3"]);
    bench.handle(Event::WatchStarted);
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    assert_eq!(bench.done(""), ["failed", "wait 5000 ms"]);
    assert_eq!(bench.cache.contents().len(), 1, "nothing is taken away");
}

#[test]
fn a_kind_that_is_needed_is_waited_for() {
    let mut bench = Bench::new(CacheOptions { required: true, ..CacheOptions::default() });
    bench.tick();
    for _ in 0..3 {
        assert_eq!(bench.fail_list(FailureClass::DoesNotExist), ["failed", "wait 5000 ms"], "never in sync");
        assert_eq!(bench.after(POLL_INTERVAL), ["list 0"]);
    }
    assert_eq!(bench.page(&[("a", 1)]), ["resync", "+a@1"]);
    assert_eq!(bench.done("3"), ["in-sync", "watch 3"]);
    // The removal of its definition deletes nothing, and is not hidden.
    bench.handle(Event::WatchStarted);
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    assert_eq!(bench.fail_list(FailureClass::DoesNotExist), ["failed", "wait 5000 ms"]);
    assert_eq!(bench.cache.contents().len(), 1);
}

#[test]
fn the_end_deletes_everything_in_order() {
    let mut bench = Bench::watching(&[("b", 2), ("a", 1)]);
    assert_eq!(bench.handle(Event::Stop), ["-b", "-a"]);
    assert!(bench.cache.contents().is_empty());
    for event in [Event::Timer, Event::WatchStarted, Event::Stop] {
        assert_eq!(bench.handle(event), NOTHING);
    }
    let mut bench = Bench::started();
    assert_eq!(bench.handle(Event::Stop), NOTHING);
}

#[test]
fn late_events_change_nothing() {
    let mut bench = Bench::watching(&[("a", 1)]);
    assert_eq!(bench.tick(), NOTHING);
    assert_eq!(bench.page(&[("x", 1)]), NOTHING);
    assert_eq!(bench.done("9"), NOTHING);
    assert_eq!(bench.fail_list(FailureClass::Other), NOTHING);
    assert_eq!(bench.refuse(FailureClass::Other), NOTHING);
    bench.end(FailureClass::Other);
    assert_eq!(bench.put("a", 7), NOTHING);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["watch 5"]);
}

#[test]
fn unreadable_objects_are_kept_unchanged() {
    let mut bench = Bench::watching(&[("a", 1), ("b", 2)]);
    let broken = |name| Event::Watched(WatchEvent::Invalid(invalid(name)));
    assert_eq!(bench.handle(broken("a")), ["note GlobalNetworkSet(a) broken"]);
    // Reported once, however often it occurs.
    assert_eq!(bench.handle(broken("a")), NOTHING);
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    // A list in which it is unreadable does not delete it.
    let page = list_part(vec![entry("b", 2)], vec![invalid("a"), invalid("c")]);
    assert_eq!(bench.handle(page), ["note GlobalNetworkSet(c) broken"]);
    assert_eq!(bench.done("9"), ["in-sync", "watch 9"]);
    bench.handle(Event::WatchStarted);
    assert_eq!(bench.put("a", 10), ["note GlobalNetworkSet(a) over", "~a@10"]);
    assert_eq!(bench.delete("c", 11), ["note GlobalNetworkSet(c) over"]);
    // An entry missing from a list is gone, unreadable or not.
    bench.handle(broken("b"));
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    bench.page(&[("a", 10)]);
    assert_eq!(bench.done("12"), ["note GlobalNetworkSet(b) over", "-b", "in-sync", "watch 12"]);
}

#[test]
fn a_list_with_an_entry_that_cannot_be_named_deletes_nothing() {
    let mut bench = Bench::watching(&[("a", 1), ("b", 2)]);
    let nameless = |key: &str| InvalidEntry {
        key: key.to_owned(),
        parsed_key: None,
        reason: "broken".to_owned(),
        salvaged: None,
    };
    bench.end(FailureClass::Expired);
    bench.after(MIN_RESYNC_INTERVAL);
    let page = list_part(vec![entry("a", 1)], vec![nameless("ipamblocks/x")]);
    assert_eq!(bench.handle(page), ["note ipamblocks/x broken"]);
    assert_eq!(bench.done("9"), ["in-sync", "watch 9"]);
    bench.handle(Event::WatchStarted);
    // The owed deletion happens at the next list, which is due as soon as the watch ends.
    bench.now += Duration::from_secs(300);
    bench.end(FailureClass::Other);
    assert_eq!(bench.tick(), ["resync", "list 9"]);
    // A path that is not one of Calico's keys cannot hide one of them.
    let page = list_part(vec![entry("a", 1)], vec![nameless("/calico/strange")]);
    assert_eq!(bench.handle(page), ["note /calico/strange broken"]);
    assert_eq!(bench.done("9"), ["note ipamblocks/x over", "-b", "in-sync", "watch 9"]);
}

/// A policy in namespace `shop` with one rule, perhaps an unreadable one.
fn policy(revision: u64, net: &str) -> KvPair {
    let object = serde_json::json!({
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"ingress": [{"action": "Allow", "source": {"nets": [net]}}]},
    });
    let mut pair = KvPair::resource(Resource::from_value(Kind::NetworkPolicy, object).unwrap());
    pair.set_revision(&revision.to_string());
    pair
}

/// The last report of a machine about its only key: the action of the policy's rule.
fn told(actions: Vec<Action<News>>) -> Vec<String> {
    let mut told = Vec::new();
    for action in actions {
        if let Action::News(news) = action {
            for update in news.entries {
                told.push(match update {
                    FeedEntry::Policy(_, Some(policy)) => policy.inbound_rules[0].action.as_str().to_owned(),
                    other => format!("gone: {}", other.is_gone()),
                });
            }
        }
    }
    told
}

#[test]
fn the_last_readable_version_stays_in_force_and_a_substitute_denies() {
    let now = Duration::from_secs(1);
    let watching = |first: Vec<KvPair>| {
        let mut cache = Cache::new(Entries::new(Box::new(Converted)), CacheOptions::default());
        cache.handle(Event::Timer, now);
        let told = told(cache.handle(list_part(first, Vec::new()), now));
        cache.handle(Event::ListDone { revision: "1".to_owned() }, now);
        cache.handle(Event::WatchStarted, now);
        (cache, told)
    };
    let put = |cache: &mut Cache<Entries>, pair: KvPair| {
        told(cache.handle(Event::Watched(WatchEvent::Modified { new: pair }), now))
    };
    let (mut cache, first) = watching(vec![policy(1, "10.0.0.0/8")]);
    assert_eq!(first, ["allow"]);
    assert_eq!(put(&mut cache, policy(2, "nonsense")), NOTHING);
    assert_eq!(put(&mut cache, policy(3, "10.0.0.0/9")), ["allow"]);
    // There never was a readable version: an unreadable one denies until it can be read.
    let (mut cache, first) = watching(vec![policy(1, "nonsense")]);
    assert_eq!(first, ["deny"]);
    assert_eq!(put(&mut cache, policy(2, "more nonsense")), ["deny"]);
    assert_eq!(put(&mut cache, policy(2, "more nonsense")), NOTHING);
    assert_eq!(put(&mut cache, policy(3, "10.0.0.0/8")), ["allow"]);
    assert_eq!(put(&mut cache, policy(4, "nonsense")), NOTHING);
    let gone = Event::Watched(WatchEvent::Deleted(policy(5, "nonsense")));
    assert_eq!(told(cache.handle(gone, now)), ["gone: true"]);
    // The same with an object that is only partly readable.
    let invalid = |salvaged: KvPair| {
        Event::Watched(WatchEvent::Invalid(InvalidEntry {
            key: "networkpolicies/shop/p".to_owned(),
            parsed_key: Some(salvaged.key.clone()),
            reason: "broken".to_owned(),
            salvaged: Some(Box::new(salvaged)),
        }))
    };
    assert_eq!(told(cache.handle(invalid(policy(6, "10.0.0.0/8")), now)), ["allow"]);
    assert_eq!(told(cache.handle(invalid(policy(7, "nonsense")), now)), ["deny"]);
    assert_eq!(put(&mut cache, policy(8, "10.0.0.0/8")), ["allow"]);
    assert_eq!(told(cache.handle(invalid(policy(9, "nonsense")), now)), NOTHING);
}

#[test]
fn a_profiles_own_half_of_the_revision_counts() {
    let profile = |name: &str, revision: &str| {
        let object = serde_json::json!({"metadata": {"name": name}});
        let mut pair = KvPair::resource(Resource::from_value(Kind::Profile, object).unwrap());
        pair.set_revision(revision);
        pair
    };
    let mut bench = Bench::of(Cache::new(Entries::new(Box::new(Converted)), CacheOptions::default()));
    bench.tick();
    let items = vec![profile("kns.a", "5/"), profile("ksa.a.b", "/6")];
    let page = Event::ListPart(KvList { items, ..KvList::default() }.into());
    let rules = |name: &str| format!("ProfileRules(name={name})@");
    let namespace = |sign: char| [format!("{sign}{}", rules("kns.a")), format!("{sign}kns.a@")];
    let account = [format!("+{}", rules("ksa.a.b")), "+ksa.a.b@".to_owned()];
    let both = [&["resync".to_owned()][..], &namespace('+'), &account].concat();
    assert_eq!(bench.handle(page), both);
    bench.done("5/6");
    bench.handle(Event::WatchStarted);
    let put = |pair| Event::Watched(WatchEvent::Modified { new: pair });
    assert_eq!(bench.handle(put(profile("kns.a", "7/6"))), namespace('~'));
    assert_eq!(bench.handle(put(profile("ksa.a.b", "7/6"))), NOTHING);
    bench.end(FailureClass::Other);
    assert_eq!(bench.after(MIN_RESYNC_INTERVAL), ["watch 7/6"]);
}

/// Applies entries to the values that a follower of the feed would hold.
pub(super) fn fold(state: &mut BTreeMap<FeedKey, String>, entries: &[FeedEntry]) -> Result<(), String> {
    for entry in entries {
        let key = entry.key().to_owned();
        match entry {
            FeedEntry::Resource(_, Some(resource)) => {
                state.insert(key, resource.metadata().labels["revision"].clone());
            }
            _ if state.remove(&key).is_some() => {}
            _ => return Err(format!("{key} is gone and was never there")),
        }
    }
    Ok(())
}

#[test]
fn errors_of_the_store_have_classes() {
    use datastore::Error;
    for (error, class) in [
        (Error::Expired { reason: String::new() }, FailureClass::Expired),
        (Error::DoesNotExist { key: String::new(), reason: String::new() }, FailureClass::DoesNotExist),
        (
            Error::NotSupported { operation: "Watch", key: String::new(), reason: String::new() },
            FailureClass::NotSupported,
        ),
        (Error::transient("x", "refused"), FailureClass::Unreachable),
        (Error::permanent("x", "broken"), FailureClass::Other),
        (Error::WatchClosed { reason: String::new() }, FailureClass::Other),
        (Error::Unauthorized { reason: String::new() }, FailureClass::Refused),
    ] {
        assert_eq!(Failure::from(error).class, class);
    }
}
