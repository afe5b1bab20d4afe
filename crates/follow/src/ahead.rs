//! Ahead-of-time conversion of a kind's first list: the thread that decodes an entry also converts it to the form that
//! the feed's reader wants, and frees the rest. The kind's state machine then only has to record the key.
//! Only for processors that keep nothing from one entry to the next, and only until a list is complete or something could not
//! Only for processors without state between entries, and only until a list is complete or an entry could not be read:
//! later lists mostly contain known entries, which need no conversion. A Kubernetes API delivers its pages already
//! decoded, so there nothing is converted ahead.

use crate::cache::Failure;
use crate::keys;
use crate::processor::{Outputs, Pure};
use crate::source::{self, Items, Part, Source, Stored};
use datastore::{InvalidEntry, KvList, UndecodedPart, WatchEvent, look_ahead, own_revision};
use futures::StreamExt as _;
use model::feed::FeedEntry;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A part of a list of a feed's kind.
#[derive(Debug)]
pub enum FeedPart<E> {
    /// Entries as they are stored.
    Stored(KvList),
    /// The results of converting them ahead.
    Looked(Looked<E>),
}

impl<E> From<KvList> for FeedPart<E> {
    fn from(list: KvList) -> Self {
        Self::Stored(list)
    }
}

impl<E> Part for FeedPart<E> {
    fn entries(&self) -> usize {
        match self {
            Self::Stored(list) => list.entries(),
            Self::Looked(looked) => looked.entries,
        }
    }

    fn revision(&self) -> &str {
        match self {
            Self::Stored(list) => list.revision(),
            Self::Looked(looked) => &looked.revision,
        }
    }
}

/// The results of converting a part's entries ahead.
#[derive(Debug)]
pub struct Looked<E> {
    revision: String,
    entries: usize,
    /// The keys of the outputs, concatenated.
    keys: Vec<u8>,
    outputs: Vec<LookedOutput<E>>,
    /// What could not be read, and why.
    pub(crate) faults: Vec<(String, String)>,
    /// Entries that could not be decoded.
    pub(crate) invalid: Vec<InvalidEntry>,
}

/// One output of a processor, in the form that the reader wants.
#[derive(Debug)]
pub(crate) struct LookedOutput<E> {
    pub(crate) entry: E,
    pub(crate) is_gone: bool,
    pub(crate) is_readable: bool,
    pub(crate) revision: u64,
    pub(crate) replaces: bool,
    key_end: usize,
}

impl<E: From<FeedEntry>> Looked<E> {
    /// Decodes and converts.
    pub(crate) fn of(part: UndecodedPart, pure: Pure) -> Self {
        let mut looked = Self {
            revision: part.revision().to_owned(),
            entries: 0,
            keys: Vec::new(),
            outputs: Vec::with_capacity(part.most()),
            faults: Vec::new(),
            invalid: Vec::new(),
        };
        let mut outputs = Outputs::default();
        part.for_each(|entry| {
            looked.entries += 1;
            let pair = match entry {
                Ok(pair) => pair,
                Err(entry) => return looked.invalid.push(entry),
            };
            let revision = own_revision(&pair.key, &pair.revision);
            pure(&pair.key, pair.value, revision, &mut outputs);
            if !outputs.faults.is_empty() {
                let faults = std::mem::take(&mut outputs.faults).to_string();
                looked.faults.push((pair.key.to_string(), faults));
            }
            for output in outputs.entries.drain(..) {
                keys::encode(output.entry.key(), &mut looked.keys);
                looked.outputs.push(LookedOutput {
                    is_gone: output.entry.is_gone(),
                    is_readable: output.is_readable,
                    revision: output.revision,
                    replaces: output.replaces,
                    key_end: looked.keys.len(),
                    entry: output.entry.into(),
                });
            }
        });
        looked
    }
}

impl<E> Looked<E> {
    /// Passes the outputs to `take`, each with its key.
    pub(crate) fn take_outputs(&mut self, mut take: impl FnMut(&[u8], LookedOutput<E>)) {
        let mut start = 0;
        for output in self.outputs.drain(..) {
            let end = output.key_end;
            take(&self.keys[start..end], output);
            start = end;
        }
    }
}

/// The entries of a list, as the source of a feed.
pub struct Followed<E> {
    stored: Stored,
    /// The conversion of entries, if any thread may do it.
    pure: Option<Pure>,
    /// Set once converting ahead no longer pays.
    is_known: Arc<AtomicBool>,
    form: PhantomData<fn() -> E>,
}

impl<E> Followed<E> {
    /// Converts ahead until `is_known` is set.
    #[must_use]
    pub fn new(stored: Stored, pure: Option<Pure>, is_known: Arc<AtomicBool>) -> Self {
        Self { stored, pure, is_known, form: PhantomData }
    }
}

impl<E> fmt::Display for Followed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stored.fmt(f)
    }
}

impl<E: From<FeedEntry> + Send + 'static> Source for Followed<E> {
    type Part = FeedPart<E>;
    type Change = WatchEvent;

    async fn list(&self, revision: &str) -> Result<Items<FeedPart<E>>, Failure> {
        if let Some(pure) = self.pure
            && !self.is_known.load(Ordering::Relaxed)
            && let Some(parts) = self.stored.undecoded(revision).await?
        {
            let looked = look_ahead(parts, move |part| FeedPart::Looked(Looked::of(part, pure)));
            let list = self.stored.options().clone();
            return Ok(looked
                .map(move |part| part.map_err(|error| source::failure(&list, "list", error)))
                .boxed());
        }
        let parts = self.stored.list(revision).await?;
        Ok(parts.map(|part| part.map(FeedPart::Stored)).boxed())
    }

    async fn watch(&self, revision: &str) -> Result<Items<WatchEvent>, Failure> {
        self.stored.watch(revision).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, CacheOptions, Entries, Event};
    use crate::processor::{Converted, Processor, Raw, Stored};
    use api::{Kind, Resource};
    use model::{Key, KvPair};
    use serde_json::json;
    use std::time::Duration;

    fn pair(kind: Kind, object: serde_json::Value, revision: &str) -> KvPair {
        let mut pair = KvPair::resource(Resource::from_value(kind, object).unwrap());
        pair.set_revision(revision);
        pair
    }

    fn invalid(key: &str, parsed_key: Option<Key>) -> InvalidEntry {
        InvalidEntry { key: key.to_owned(), parsed_key, reason: "broken".to_owned(), salvaged: None }
    }

    /// Objects of every kind that processors take, including faulty ones and some that this feed does not carry.
    fn lists() -> Vec<KvList> {
        let set = |name: &str, net: &str| {
            pair(Kind::GlobalNetworkSet, json!({"metadata": {"name": name}, "spec": {"nets": [net]}}), "4")
        };
        let endpoint = |name: &str, networks: serde_json::Value| {
            let object = json!({
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"interfaceName": "cali1", "ipNetworks": networks},
            });
            pair(Kind::WorkloadEndpoint, object, "5")
        };
        let profile = pair(Kind::Profile, json!({"metadata": {"name": "kns.a"}}), "7/");
        let node = pair(Kind::Node, json!({"metadata": {"name": "n1"}}), "8");
        let first = vec![
            set("good", "10.0.0.0/8"),
            set("bad", "10.0.0.0/99"),
            endpoint("n1-k8s-web-eth0", json!(["10.0.0.1/32"])),
            endpoint("n1-k8s-new-eth0", json!([])),
            endpoint("noform", json!(["10.0.0.1/32"])),
            profile,
            node,
        ];
        let hidden = Key::resource(Kind::GlobalNetworkSet, "", "hidden");
        let broken =
            vec![invalid("globalnetworksets/hidden", Some(hidden)), invalid("/calico/strange", None)];
        let list = |items, invalid| KvList { items, invalid, revision: "9".to_owned() };
        vec![list(first, broken), list(vec![set("last", "10.0.0.0/8")], Vec::new()), list(vec![], vec![])]
    }

    #[test]
    fn converting_ahead_gives_the_same_result() {
        let processors: [fn() -> Box<dyn Processor>; 3] =
            [|| Box::new(Converted), || Box::new(Raw), || Box::new(Stored)];
        for make in processors {
            let pure = make().pure().unwrap();
            let machine = || Cache::new(Entries::<FeedEntry>::new(make()), CacheOptions::default());
            let (mut stored, mut looked) = (machine(), machine());
            let now = Duration::from_secs(1);
            assert_eq!(stored.handle(Event::Timer, now), looked.handle(Event::Timer, now));
            let mut told = 0;
            // The same list twice: the second time it contains nothing new.
            for list in lists().into_iter().chain(lists()) {
                let ahead = FeedPart::Looked(Looked::of(list.clone().into(), pure));
                assert_eq!((ahead.entries(), ahead.revision()), (list.entries(), list.revision()));
                let expected = stored.handle(Event::ListPart(list.into()), now);
                told += expected.len();
                assert_eq!(looked.handle(Event::ListPart(ahead), now), expected);
            }
            assert!(told > 0);
            let done = || Event::ListDone { revision: "9".to_owned() };
            assert_eq!(stored.handle(done(), now), looked.handle(done(), now));
        }
    }

    #[test]
    fn nothing_is_converted_ahead_after_a_complete_list_or_an_unreadable_entry() {
        let entries = || Entries::<FeedEntry>::new(Box::new(Converted));
        let begin = |entries: Entries| {
            let mut cache = Cache::new(entries, CacheOptions::default());
            cache.handle(Event::Timer, Duration::ZERO);
            cache
        };
        let (complete, unreadable) = (entries(), entries());
        let (is_known, is_noted) = (complete.is_known(), unreadable.is_known());
        let mut cache = begin(complete);
        cache.handle(Event::ListPart(lists().remove(1).into()), Duration::ZERO);
        assert!(!is_known.load(Ordering::Relaxed));
        cache.handle(Event::ListDone { revision: "9".to_owned() }, Duration::ZERO);
        assert!(is_known.load(Ordering::Relaxed));
        begin(unreadable).handle(Event::ListPart(lists().remove(0).into()), Duration::ZERO);
        assert!(is_noted.load(Ordering::Relaxed));
    }
}
