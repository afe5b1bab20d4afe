//! Parts of a list that are decoded by whoever looks at them.
//!
//! An entry is many small pieces of memory. Decoded by one thread and freed by another, each of them costs twice: so the
//! thread that decodes an entry also makes what its reader wants of it, and frees the rest before it takes the next.

use crate::backend::{InvalidEntry, KvList};
use crate::error::{Error, Result};
use futures::stream::{BoxStream, StreamExt as _};
use model::KvPair;
use std::sync::OnceLock;

/// So many entries are worth handing over to another thread.
pub(crate) const CHUNK: usize = 250;

/// An entry, decoded; or one that is there and cannot be read.
pub type DecodedEntry = std::result::Result<KvPair, InvalidEntry>;

/// A list in parts that nobody has decoded yet. An `Err` item is the last one.
pub type UndecodedParts = BoxStream<'static, Result<UndecodedPart>>;

type Decode = Box<dyn FnOnce(&mut dyn FnMut(DecodedEntry)) + Send>;

/// A part of a list that nobody has decoded yet.
pub struct UndecodedPart {
    revision: String,
    stored: usize,
    decode: Decode,
}

impl UndecodedPart {
    /// A part of a list at this revision, with so many stored entries; `decode` hands over those that are selected.
    pub(crate) fn new(
        revision: String,
        stored: usize,
        decode: impl FnOnce(&mut dyn FnMut(DecodedEntry)) + Send + 'static,
    ) -> Self {
        Self { revision, stored, decode: Box::new(decode) }
    }

    /// The revision of the whole list; empty where the store has none.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// How many entries it may have.
    #[must_use]
    pub fn most(&self) -> usize {
        self.stored
    }

    /// Decodes one entry after the other.
    pub fn for_each(self, mut take: impl FnMut(DecodedEntry)) {
        (self.decode)(&mut take);
    }

    /// Decodes everything.
    #[must_use]
    pub fn decode(self) -> KvList {
        let mut list = KvList { revision: self.revision, ..KvList::default() };
        list.items.reserve_exact(self.stored);
        (self.decode)(&mut |entry| match entry {
            Ok(pair) => list.items.push(pair),
            Err(entry) => list.invalid.push(entry),
        });
        list
    }
}

/// Everything is decoded already.
impl From<KvList> for UndecodedPart {
    fn from(list: KvList) -> Self {
        let KvList { items, revision, invalid } = list;
        Self::new(revision, items.len() + invalid.len(), move |take| {
            items.into_iter().map(Ok).chain(invalid.into_iter().map(Err)).for_each(take);
        })
    }
}

/// How many parts are looked at at once at most, however many processors there are: each of them is memory.
const MOST_AT_ONCE: usize = 8;

/// Has parts looked at by other threads, one part for each processor. What they make of them comes in the order of the list. An `Err` item is the last one. Needs a Tokio runtime.
pub fn look_ahead<T: Send + 'static>(
    parts: UndecodedParts,
    look: impl Fn(UndecodedPart) -> T + Clone + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let looked = parts.map(move |part| {
        let look = look.clone();
        async move {
            let part = part?;
            if part.most() < CHUNK {
                return Ok(look(part));
            }
            let looking = tokio::task::spawn_blocking(move || look(part));
            looking.await.map_err(|error| Error::permanent("cannot decode a list", error))
        }
    });
    looked.buffered(threads().min(MOST_AT_ONCE)).boxed()
}

/// After so many entries there is room for as many more.
pub(crate) const ROOM_FOR: usize = 32;
/// Less than what the allocator would take from the kernel apart from everything else.
const ROOM: usize = 120 << 10;

/// Has the allocator get memory for the next entries at once. For threads other than the first the C library's gets one page at
/// a time: a call of the kernel for each, which holds up the other threads' page faults.
pub(crate) fn make_room() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(ROOM)));
}

/// How many threads decode. Asked once: the answer takes several files.
pub(crate) fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
