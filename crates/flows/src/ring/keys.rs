//! The keys of all flows in the ring, each in a slot for as long as a bucket contains it, and the sets of labels of
//! each.
//!
//! Readers hold the pages of one moment; a later change copies the page of slots first.

use crate::key::{FlowKey, Peer, Reporter, Text};
use crate::labels::{LabelSets, Labels};
use crate::trace::Trace;
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

const PAGE: usize = 256;
/// The number for "no labels at all", which every key has. Also the fallback when a key has too many sets to tell
/// apart.
pub(crate) const NO_LABELS: u8 = u8::MAX;

/// The labels of both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelPair {
    pub(crate) source: Labels,
    pub(crate) dest: Labels,
}

impl LabelPair {
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self { source: self.source.intersection(&other.source), dest: self.dest.intersection(&other.dest) }
    }
}

/// A key in its slot.
#[derive(Clone, Debug)]
pub struct Entry {
    id: u64,
    key: FlowKey,
    trace_slot: u32,
    variants: Vec<LabelPair>,
    encoded: OnceLock<Box<[u8]>>,
}

impl Entry {
    /// The key's number, from 1. A key that was forgotten and returns gets a new number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The key in an encoded form that readers often need; encoded once.
    pub fn encoded(&self, encode: impl FnOnce(&FlowKey) -> Vec<u8>) -> &[u8] {
        self.encoded.get_or_init(|| encode(&self.key).into_boxed_slice())
    }

    pub(crate) fn trace_slot(&self) -> u32 {
        self.trace_slot
    }

    pub(crate) fn labels(&self, variant: u8) -> LabelPair {
        self.variants.get(usize::from(variant)).cloned().unwrap_or_default()
    }
}

type Page = Vec<Option<Arc<Entry>>>;
type Traces = Vec<Option<(Arc<Trace>, Reporter)>>;

/// The keys at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Arc<Page>>,
    traces: Arc<Traces>,
    slots: usize,
}

impl Pages {
    pub(crate) fn get(&self, slot: u32) -> Option<&Arc<Entry>> {
        self.pages.get(slot as usize / PAGE)?.get(slot as usize % PAGE)?.as_ref()
    }

    pub(crate) fn trace(&self, slot: u32) -> Option<&(Arc<Trace>, Reporter)> {
        self.traces.get(slot as usize)?.as_ref()
    }

    /// The exclusive upper bound of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }
}

/// State that changes too often to be in a page.
#[derive(Debug, Default)]
struct Use {
    /// The number of bucket parts that contain this slot.
    parts: u32,
    /// The last bucket of each set of labels.
    variants: Vec<i64>,
}

/// All keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pages: Pages,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    uses: Vec<Use>,
    free: Vec<u32>,
    last_id: u64,
    texts: HashSet<Text>,
    label_sets: LabelSets,
    trace_index: HashMap<(Arc<Trace>, Reporter), u32>,
    trace_uses: Vec<u32>,
    free_traces: Vec<u32>,
}

impl Keys {
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let is_same = |slot: &u32| self.pages.get(*slot).is_some_and(|entry| entry.key == *key);
        self.index.find(hash, is_same).copied()
    }

    /// Gives a new key its slot.
    pub(crate) fn insert(&mut self, key: &FlowKey) -> u32 {
        let key = self.shared(key);
        let trace_slot = self.trace_slot(&key);
        self.last_id += 1;
        let entry =
            Entry { id: self.last_id, key, trace_slot, variants: Vec::new(), encoded: OnceLock::new() };
        let hash = self.hasher.hash_one(&entry.key);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.pages.slots += 1;
            self.uses.push(Use::default());
            u32::try_from(self.pages.slots - 1).unwrap_or(u32::MAX)
        });
        let (page, place) = (slot as usize / PAGE, slot as usize % PAGE);
        if page == self.pages.pages.len() {
            self.pages.pages.push(Arc::new(vec![None; PAGE]));
        }
        Arc::make_mut(&mut self.pages.pages[page])[place] = Some(Arc::new(entry));
        let (pages, hasher) = (&self.pages, &self.hasher);
        self.index.insert_unique(hash, slot, |slot| {
            pages.get(*slot).map_or(0, |entry| hasher.hash_one(&entry.key))
        });
        slot
    }

    /// Records that one more part of a bucket contains this slot.
    pub(crate) fn retain(&mut self, slot: u32) {
        self.uses[slot as usize].parts += 1;
    }

    /// Records that a part of a bucket no longer contains this slot. An unused key is forgotten.
    pub(crate) fn release(&mut self, slot: u32) {
        let used = &mut self.uses[slot as usize];
        used.parts -= 1;
        if used.parts > 0 {
            return;
        }
        *used = Use::default();
        let (page, place) = (slot as usize / PAGE, slot as usize % PAGE);
        let Some(entry) = Arc::make_mut(&mut self.pages.pages[page])[place].take() else { return };
        let hash = self.hasher.hash_one(&entry.key);
        if let Ok(found) = self.index.find_entry(hash, |found| *found == slot) {
            found.remove();
        }
        self.release_trace(&entry);
        self.free.push(slot);
    }

    /// The number of a set of labels for a flow in this bucket. The labels are in the sender's order.
    pub(crate) fn variant<'a>(
        &mut self,
        slot: u32,
        bucket: i64,
        oldest: i64,
        source: &(impl ExactSizeIterator<Item = &'a [u8]> + Clone),
        dest: &(impl ExactSizeIterator<Item = &'a [u8]> + Clone),
    ) -> u8 {
        let Some(entry) = self.pages.get(slot) else { return NO_LABELS };
        let is_same = |pair: &LabelPair| pair.source.is(source.clone()) && pair.dest.is(dest.clone());
        if let Some(place) = entry.variants.iter().position(is_same) {
            return self.used_variant(slot, place, bucket);
        }
        let labels = |texts: &mut dyn Iterator<Item = &'a [u8]>| {
            texts.map(String::from_utf8_lossy).collect::<Labels>()
        };
        let pair = LabelPair { source: labels(&mut source.clone()), dest: labels(&mut dest.clone()) };
        self.variant_of(slot, bucket, oldest, &pair)
    }

    /// The number of the labels that two sets of a key have in common.
    pub(crate) fn common_variant(&mut self, slot: u32, bucket: i64, oldest: i64, one: u8, two: u8) -> u8 {
        if one == two {
            return one;
        }
        let Some(entry) = self.pages.get(slot) else { return NO_LABELS };
        let pair = entry.labels(one).intersection(&entry.labels(two));
        self.variant_of(slot, bucket, oldest, &pair)
    }

    fn variant_of(&mut self, slot: u32, bucket: i64, oldest: i64, pair: &LabelPair) -> u8 {
        if *pair == LabelPair::default() {
            return NO_LABELS;
        }
        let Some(entry) = self.pages.get(slot) else { return NO_LABELS };
        if let Some(place) = entry.variants.iter().position(|known| known == pair) {
            return self.used_variant(slot, place, bucket);
        }
        let used = &mut self.uses[slot as usize].variants;
        // A set that no bucket uses any more makes room.
        let expired = used.iter().position(|last| *last < oldest);
        let place = expired.unwrap_or(used.len());
        if place >= usize::from(NO_LABELS) {
            return NO_LABELS;
        }
        let pair = LabelPair {
            source: self.label_sets.shared(&pair.source),
            dest: self.label_sets.shared(&pair.dest),
        };
        let page = Arc::make_mut(&mut self.pages.pages[slot as usize / PAGE]);
        let Some(entry) = page[slot as usize % PAGE].as_mut() else { return NO_LABELS };
        let entry = Arc::make_mut(entry);
        match expired {
            Some(place) => {
                entry.variants[place] = pair;
                used[place] = bucket;
            }
            None => {
                entry.variants.push(pair);
                used.push(bucket);
            }
        }
        u8::try_from(place).unwrap_or(NO_LABELS)
    }

    fn used_variant(&mut self, slot: u32, place: usize, bucket: i64) -> u8 {
        if let Some(last) = self.uses[slot as usize].variants.get_mut(place) {
            *last = bucket.max(*last);
        }
        u8::try_from(place).unwrap_or(NO_LABELS)
    }

    /// Continues the numbering of another ring's keys.
    pub(crate) fn continue_after(&mut self, others: &Self) {
        self.last_id = others.last_id;
    }

    /// Drops strings and sets of labels that are no longer used.
    pub(crate) fn sweep(&mut self) {
        self.label_sets.sweep();
        self.texts.retain(|text| Arc::strong_count(text) > 1);
    }

    /// Returns an equal key that consists of shared strings.
    fn shared(&mut self, key: &FlowKey) -> FlowKey {
        let texts = &mut self.texts;
        let mut text = |text: &Text| texts.get_or_insert_with(&**text, |_| Arc::clone(text)).clone();
        let mut peer =
            |peer: &Peer| Peer { kind: peer.kind, namespace: text(&peer.namespace), name: text(&peer.name) };
        let (source, dest) = (peer(&key.source), peer(&key.dest));
        FlowKey {
            source,
            dest,
            dest_port: key.dest_port,
            service: crate::key::Service {
                namespace: text(&key.service.namespace),
                name: text(&key.service.name),
                port_name: text(&key.service.port_name),
                port: key.service.port,
            },
            protocol: text(&key.protocol),
            reporter: key.reporter,
            action: key.action,
            trace: match self.trace_index.get_key_value(&(Arc::clone(&key.trace), key.reporter)) {
                Some(((trace, _), _)) => Arc::clone(trace),
                None => Arc::clone(&key.trace),
            },
        }
    }

    fn trace_slot(&mut self, key: &FlowKey) -> u32 {
        let name = (Arc::clone(&key.trace), key.reporter);
        if let Some(slot) = self.trace_index.get(&name) {
            self.trace_uses[*slot as usize] += 1;
            return *slot;
        }
        let traces = Arc::make_mut(&mut self.pages.traces);
        let slot = self.free_traces.pop().unwrap_or_else(|| {
            traces.push(None);
            self.trace_uses.push(0);
            u32::try_from(traces.len() - 1).unwrap_or(u32::MAX)
        });
        traces[slot as usize] = Some(name.clone());
        self.trace_uses[slot as usize] = 1;
        self.trace_index.insert(name, slot);
        slot
    }

    fn release_trace(&mut self, entry: &Entry) {
        let uses = &mut self.trace_uses[entry.trace_slot as usize];
        *uses -= 1;
        if *uses == 0 {
            Arc::make_mut(&mut self.pages.traces)[entry.trace_slot as usize] = None;
            self.trace_index.remove(&(Arc::clone(&entry.key.trace), entry.key.reporter));
            self.free_traces.push(entry.trace_slot);
        }
    }
}
