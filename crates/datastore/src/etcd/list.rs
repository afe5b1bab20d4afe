//! Lists: the keys to read for a selection, page by page at one revision, decoded while the next page is fetched.
//!
//! An entry that cannot be read never fails the list and is never dropped: it is reported beside the entries.

mod parts;

pub(super) use parts::list_undecoded;

use super::convert::{
    default_allow_key, default_allow_profile, invalid, is_default_allow, key_error, pair, salvaged,
    store_error, user_name, with_place,
};
use super::names::{OLD_PREFIX, old_key};
use super::transport::{Entry, RangeRequest, Span, Transport};
use crate::backend::{InvalidEntry, KvList};
use crate::error::{Error, Result};
use crate::parts::{CHUNK, ROOM_FOR, make_room, threads};
use model::{Key, KvPair, ListOptions, ResourceKey};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// How many keys to fetch first: few, so that decoding starts early.
const FIRST_PAGE: i64 = 500;
/// The number of pages of equal size in which to fetch the rest. With more pages, less is left to decode when the last
/// one has arrived; but for every page etcd counts all remaining keys.
const FURTHER_PAGES: i64 = 5;
/// Smaller pages are not worth a request.
const SMALLEST_PAGE: i64 = 1000;

/// The entries that a list or watch selects.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    options: ListOptions,
    /// The keys to read. They do not overlap.
    pub(super) spans: Vec<Span>,
    /// The keys to watch: one span that covers all of `spans`.
    pub(super) watch_span: Span,
    /// Whether entries may be stored under an old name, so that the key alone is not enough.
    by_name_inside: bool,
}

/// The outcome of decoding an entry.
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, from the decoder into the list; a box would cost more"
)]
pub(super) enum Decoded {
    /// It is selected.
    Selected(KvPair),
    /// It may be selected, but cannot be read.
    Invalid(InvalidEntry),
    /// It is not selected.
    Other,
}

impl Selection {
    pub(super) fn new(options: &ListOptions) -> Result<Self> {
        let prefix = |options: &ListOptions| -> Result<Span> {
            let text = options.prefix().map_err(|error| key_error(options, &error))?;
            Ok(Span::prefix(text))
        };
        let ListOptions::Resource { kind, namespace, name: Some(name), name_is_prefix } = options else {
            let span = prefix(options)?;
            return Ok(Self {
                options: options.clone(),
                spans: vec![span.clone()],
                watch_span: span,
                by_name_inside: false,
            });
        };
        let complete = !kind.is_namespaced() || namespace.is_some();
        let by_name_inside = kind.is_tiered_policy() && !name.starts_with(OLD_PREFIX);
        let key = Key::resource(*kind, namespace.as_deref().unwrap_or_default(), name);
        let (spans, watch_span) = if complete && !name_is_prefix {
            let mut spans = vec![Span::key(super::convert::path(&key)?)];
            if let Some(old) = old_key(&key) {
                spans.push(Span::key(super::convert::path(&old)?));
            }
            let watch_span = spans[0].clone();
            (spans, watch_span)
        } else if complete {
            let mut spans = vec![prefix(options)?];
            // A prefix such as `def` already covers every old name.
            if by_name_inside && !OLD_PREFIX.starts_with(name.as_str()) {
                let name = Some(format!("{OLD_PREFIX}{name}"));
                let (kind, namespace, name_is_prefix) = (*kind, namespace.clone(), *name_is_prefix);
                spans.push(prefix(&ListOptions::Resource { kind, namespace, name, name_is_prefix })?);
            }
            (spans, prefix(options)?)
        } else {
            // A name in every namespace: only the whole kind covers that.
            let all = prefix(&ListOptions::Resource {
                kind: *kind,
                namespace: None,
                name: None,
                name_is_prefix: false,
            })?;
            (vec![all.clone()], all)
        };
        let watch_span = if by_name_inside {
            // A change may occur under the plain or under the old name; only the parent covers both.
            prefix(&ListOptions::Resource {
                kind: *kind,
                namespace: namespace.clone(),
                name: None,
                name_is_prefix: false,
            })?
        } else {
            watch_span
        };
        Ok(Self { options: options.clone(), spans, watch_span, by_name_inside })
    }

    /// Whether the profile that exists in every store without being stored is selected.
    fn has_default_allow(&self) -> bool {
        self.options.matches(&default_allow_key())
    }

    /// The key of a path, if it may be selected. `Err` for a path that is not a key at all.
    fn key_of(&self, path: &[u8]) -> std::result::Result<Option<Key>, String> {
        let text = std::str::from_utf8(path).map_err(|_| "the key is not UTF-8 text".to_owned())?;
        let key = Key::parse(text).ok_or_else(|| "the key is not one of Calico's".to_owned())?;
        // The default-allow profile is never read from the store, even where an older release stored it.
        if is_default_allow(&key) {
            return Ok(None);
        }
        if self.options.matches(&key) || (self.by_name_inside && self.may_match_inside(&key)) {
            return Ok(Some(key));
        }
        Ok(None)
    }

    fn may_match_inside(&self, key: &Key) -> bool {
        match key {
            Key::Resource(ResourceKey { kind, namespace, name }) => name
                .strip_prefix(OLD_PREFIX)
                .is_some_and(|rest| self.options.matches(&Key::resource(*kind, namespace, rest))),
            _ => false,
        }
    }

    /// Decodes a key and, if the key is selected, its value.
    pub(super) fn decode(&self, entry: &Entry) -> Decoded {
        let key = match self.key_of(&entry.key) {
            Ok(Some(key)) => key,
            Ok(None) => return Decoded::Other,
            Err(reason) => return Decoded::Invalid(invalid(&entry.key, None, reason)),
        };
        match model::decode(&key, &entry.value) {
            Ok(value) => {
                let pair = pair(key, value, entry.mod_revision.to_string());
                if self.is_selected(&pair) { Decoded::Selected(pair) } else { Decoded::Other }
            }
            Err(error) => {
                let reason = with_place(&key, entry, error.to_string());
                let salvaged = salvaged(&key, entry);
                Decoded::Invalid(InvalidEntry { salvaged, ..invalid(&entry.key, Some(key), reason) })
            }
        }
    }

    /// The key of a deleted path, if it may have been selected.
    pub(super) fn deleted_key(&self, path: &[u8]) -> Option<Key> {
        self.key_of(path).ok().flatten()
    }

    /// Whether the path of a deleted entry is enough to determine that it was selected, and to represent it.
    pub(super) fn is_told_by_path(&self) -> bool {
        matches!(self.options, ListOptions::Resource { .. }) && !self.by_name_inside
    }

    fn is_selected(&self, pair: &KvPair) -> bool {
        if !self.by_name_inside || self.options.matches(&pair.key) {
            return true;
        }
        match (&pair.key, user_name(&pair.key, &pair.value)) {
            (Key::Resource(key), Some(name)) => {
                self.options.matches(&Key::resource(key.kind, &key.namespace, name))
            }
            _ => false,
        }
    }
}

/// Reads everything that is selected, now (0) or at a revision.
pub(super) async fn list(
    transport: &dyn Transport,
    selection: &Arc<Selection>,
    revision: i64,
) -> Result<KvList> {
    match read_spans(transport, selection, revision, FIRST_PAGE).await {
        // The store was compacted between two pages. A single answer cannot be interrupted like that.
        Err(Error::Expired { .. }) if revision == 0 => read_spans(transport, selection, revision, 0).await,
        other => other,
    }
}

/// The results of decoding some entries.
#[derive(Default)]
struct Part {
    items: Vec<KvPair>,
    invalid: Vec<InvalidEntry>,
}

async fn read_spans(
    transport: &dyn Transport,
    selection: &Arc<Selection>,
    mut revision: i64,
    first_page: i64,
) -> Result<KvList> {
    let mut decoder = Decoder::new(Arc::clone(selection));
    for span in &selection.spans {
        let mut rest = span.clone();
        let mut limit = first_page;
        loop {
            let request = RangeRequest { span: rest.clone(), revision, limit };
            let answer = transport.range(request).await.map_err(|error| {
                store_error(error, || format!("cannot list {}", String::from_utf8_lossy(&span.key)))
            })?;
            if revision == 0 {
                revision = answer.revision;
            }
            if limit == first_page {
                let left = answer.count.saturating_sub(limit);
                limit = limit.max(SMALLEST_PAGE).max(left / FURTHER_PAGES + 1);
            }
            let last = answer.entries.last().map(|entry| entry.key.clone());
            decoder.take(answer.entries);
            match last {
                Some(last) if answer.more => rest = rest.after(&last),
                _ => break,
            }
        }
    }
    let mut found = decoder.finish().await?;
    found.revision = revision.to_string();
    if selection.spans.len() > 1 {
        found.items.sort_by(|left, right| left.key.cmp(&right.key));
    }
    if selection.has_default_allow() {
        let profile = default_allow_profile()?;
        let place = found.items.partition_point(|item| item.key < profile.key);
        found.items.insert(place, profile);
    }
    Ok(found)
}

/// Decodes on other threads while the caller fetches more; the result is in order.
///
/// While there is more to fetch, one processor is left for that: decoding on all of them would delay the next page, and
/// then there would be nothing to decode.
struct Decoder {
    work: Arc<Work>,
    workers: Vec<JoinHandle<()>>,
}

/// The state shared by the threads.
struct Work {
    selection: Arc<Selection>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Chunk>,
    /// The results of the chunks, by their number.
    done: Vec<Part>,
    /// The number of threads at work.
    busy: usize,
}

/// A piece of a page.
struct Chunk {
    number: usize,
    page: Arc<Vec<Entry>>,
    range: Range<usize>,
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes until nothing is pending.
    fn run(&self) {
        loop {
            let mut state = self.state();
            let Some(Chunk { number, page, range }) = state.waiting.pop_front() else {
                state.busy -= 1;
                return;
            };
            drop(state);
            let part = decode(&self.selection, &page[range]);
            self.state().done[number] = part;
        }
    }
}

impl Decoder {
    fn new(selection: Arc<Selection>) -> Self {
        let work = Arc::new(Work { selection, state: Mutex::default() });
        Self { work, workers: Vec::new() }
    }

    /// Adds a page.
    fn take(&mut self, entries: Vec<Entry>) {
        if entries.len() < CHUNK {
            let part = decode(&self.work.selection, &entries);
            self.work.state().done.push(part);
            return;
        }
        let page = Arc::new(entries);
        let mut state = self.work.state();
        for start in (0..page.len()).step_by(CHUNK) {
            let range = start..(start + CHUNK).min(page.len());
            let number = state.done.len();
            state.done.push(Part::default());
            state.waiting.push_back(Chunk { number, page: Arc::clone(&page), range });
        }
        drop(state);
        self.employ((threads() - 1).max(1));
    }

    /// Ensures that up to `most` threads are at work, as long as there is work.
    fn employ(&mut self, most: usize) {
        let mut state = self.work.state();
        for _ in state.busy..most.min(state.busy + state.waiting.len()) {
            state.busy += 1;
            let work = Arc::clone(&self.work);
            self.workers.push(tokio::task::spawn_blocking(move || work.run()));
        }
    }

    async fn finish(mut self) -> Result<KvList> {
        if !self.workers.is_empty() {
            self.employ(threads());
        }
        for worker in std::mem::take(&mut self.workers) {
            worker.await.map_err(|error| Error::permanent("cannot decode a list", error))?;
        }
        let done = std::mem::take(&mut self.work.state().done);
        let mut found = KvList::default();
        found.items.reserve_exact(done.iter().map(|part| part.items.len()).sum());
        for mut part in done {
            found.items.append(&mut part.items);
            found.invalid.append(&mut part.invalid);
        }
        Ok(found)
    }
}

impl Drop for Decoder {
    /// An abandoned list is not decoded further.
    fn drop(&mut self) {
        self.work.state().waiting.clear();
    }
}

fn decode(selection: &Selection, entries: &[Entry]) -> Part {
    let mut part = Part { items: Vec::with_capacity(entries.len()), invalid: Vec::new() };
    for (place, entry) in entries.iter().enumerate() {
        // Few entries find room.
        if place % ROOM_FOR == ROOM_FOR - 1 {
            make_room();
        }
        match selection.decode(entry) {
            Decoded::Selected(pair) => part.items.push(pair),
            Decoded::Invalid(entry) => part.invalid.push(entry),
            Decoded::Other => {}
        }
    }
    part
}
