//! Parts of a list that are decoded by their consumer.
//!
//! An entry consists of many small allocations. If one thread allocates and another frees them, each costs twice as
//! much: so the thread that decodes an entry also converts it for its reader, and frees the rest before it takes the
//! next.

use crate::backend::{InvalidEntry, KvList};
use crate::error::{Error, Result};
use futures::stream::{BoxStream, StreamExt as _};
use model::KvPair;
use std::sync::OnceLock;

/// This many entries are worth passing to another thread.
pub(crate) const CHUNK: usize = 250;

/// A decoded entry; or one that exists but cannot be read.
pub type DecodedEntry = std::result::Result<KvPair, InvalidEntry>;

/// A list in parts that are not decoded yet. An `Err` item is the last one.
pub type UndecodedParts = BoxStream<'static, Result<UndecodedPart>>;

type Decode = Box<dyn FnOnce(&mut dyn FnMut(DecodedEntry)) + Send>;

/// A part of a list that is not decoded yet.
pub struct UndecodedPart {
    revision: String,
    stored: usize,
    decode: Decode,
}

impl UndecodedPart {
    /// Creates a part of a list at this revision, with `most` stored entries; `decode` passes on the selected ones.
    pub(crate) fn new(
        revision: String,
        stored: usize,
        decode: impl FnOnce(&mut dyn FnMut(DecodedEntry)) + Send + 'static,
    ) -> Self {
        Self { revision, stored, decode: Box::new(decode) }
    }

    /// The revision of the whole list; empty if the store has none.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The maximum number of its entries.
    #[must_use]
    pub fn most(&self) -> usize {
        self.stored
    }

    /// Decodes the entries in turn.
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

/// All entries are decoded already.
impl From<KvList> for UndecodedPart {
    fn from(list: KvList) -> Self {
        let KvList { items, revision, invalid } = list;
        Self::new(revision, items.len() + invalid.len(), move |take| {
            items.into_iter().map(Ok).chain(invalid.into_iter().map(Err)).for_each(take);
        })
    }
}

/// Maximum number of parts processed at once, however many processors there are: each part takes memory.
const MOST_AT_ONCE: usize = 8;

/// Processes parts on other threads, one part per processor, and returns the results in the order of the list. An `Err`
/// item is the last one. Needs a Tokio runtime.
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

/// After this many entries there is room for as many more.
pub(crate) const ROOM_FOR: usize = 32;
/// Less than the size for which the allocator would make a separate mapping.
const ROOM: usize = 120 << 10;

/// Makes the allocator reserve memory for the next entries at once. On threads other than the first, the C library's
/// grows by one page at a time: a system call for each, which delays the other threads' page faults.
pub(crate) fn make_room() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(ROOM)));
}

/// The number of decoding threads. Determined once: it requires reading several files.
pub(crate) fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
