//! Sources to follow: a list in parts, and a watch from its revision.
//!
//! [`Stored`] is Calico's data in a [`Backend`]. Other sources decode for themselves; the machine and its policy are
//! the same.

use crate::cache::Failure;
use datastore::{Backend, KvList, UndecodedParts, WatchEvent, WatchOptions};
use futures::stream::{self, BoxStream, StreamExt as _};
use model::ListOptions;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many entries of a list are processed before the results are passed on.
const PIECE: usize = 1000;

/// A list in parts, or the changes of a watch. An `Err` item is the last one.
pub type Items<T> = BoxStream<'static, Result<T, Failure>>;

/// A kind that can be listed and watched. Its `Display` names it in the log.
pub trait Source: fmt::Display + Send + Sync {
    /// A part of a list.
    type Part: Part;
    /// A change reported by the watch.
    type Change: Change;

    /// Lists at or after this revision; `0` for whatever the store has.
    fn list(&self, revision: &str) -> impl Future<Output = Result<Items<Self::Part>, Failure>> + Send;

    /// Watches from this revision on.
    fn watch(&self, revision: &str) -> impl Future<Output = Result<Items<Self::Change>, Failure>> + Send;
}

/// A part of a list.
pub trait Part {
    /// The number of entries, including unreadable ones.
    fn entries(&self) -> usize;

    /// The revision of the whole list; empty if the store has none.
    fn revision(&self) -> &str;
}

/// A change reported by a watch.
pub trait Change {
    /// The revision that the watch has reached; `None` if the change does not contain it.
    fn revision(&self) -> Option<&str>;
}

impl Part for KvList {
    fn entries(&self) -> usize {
        self.items.len() + self.invalid.len()
    }

    fn revision(&self) -> &str {
        &self.revision
    }
}

impl Change for WatchEvent {
    fn revision(&self) -> Option<&str> {
        match self {
            Self::Added(pair) | Self::Modified { new: pair } | Self::Deleted(pair) => Some(&pair.revision),
            Self::Bookmark(revision) => Some(revision),
            Self::Invalid(_) => None,
        }
    }
}

/// Calico's data in a store.
pub struct Stored {
    backend: Arc<dyn Backend>,
    list: ListOptions,
    /// Whether lists are read from the store itself, instead of from a server's cache.
    reads_newest: bool,
    /// Whether the last list was refused, and the single entry read instead. Its revision may be too old to watch from.
    is_read_alone: AtomicBool,
}

impl Stored {
    /// Follows the entries of a list.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, list: ListOptions) -> Self {
        Self { backend, list, reads_newest: false, is_read_alone: AtomicBool::new(false) }
    }

    /// Follows the entries of a list, read from the store itself each time.
    #[must_use]
    pub fn newest(backend: Arc<dyn Backend>, list: ListOptions) -> Self {
        Self { reads_newest: true, ..Self::new(backend, list) }
    }

    /// Reads the one entry that the list names. Old roles permit reading and watching an object, but not listing its
    /// kind.
    async fn read(&self, refusal: datastore::Error) -> Result<Items<KvList>, datastore::Error> {
        let Some(key) = self.list.exact_key() else { return Err(refusal) };
        self.is_read_alone.store(true, Ordering::Relaxed);
        let part = match self.backend.get(&key, None).await {
            Ok(entry) => KvList { revision: entry.revision.clone(), items: vec![entry], invalid: Vec::new() },
            // There is no revision to watch from: the machine retries after a while.
            Err(datastore::Error::DoesNotExist { .. }) => KvList::default(),
            Err(_) => return Err(refusal),
        };
        Ok(stream::iter([Ok(part)]).boxed())
    }

    /// The list that is followed.
    pub(crate) fn options(&self) -> &ListOptions {
        &self.list
    }

    /// Lists without decoding. `None` if the store decodes itself, or does not permit the list.
    pub(crate) async fn undecoded(&self, revision: &str) -> Result<Option<UndecodedParts>, Failure> {
        if self.backend.is_kubernetes() {
            return Ok(None);
        }
        let at = Some(revision).filter(|_| !self.reads_newest);
        match self.backend.list_undecoded(&self.list, at).await {
            Ok(parts) => {
                self.is_read_alone.store(false, Ordering::Relaxed);
                Ok(Some(parts))
            }
            Err(datastore::Error::Unauthorized { .. }) => Ok(None),
            Err(error) => Err(failure(&self.list, "list", error)),
        }
    }

    async fn try_list(&self, revision: &str) -> Result<Items<KvList>, datastore::Error> {
        let at = Some(revision).filter(|_| !self.reads_newest);
        match self.backend.list_parts(&self.list, at).await {
            Ok(parts) => {
                self.is_read_alone.store(false, Ordering::Relaxed);
                let list = self.list.clone();
                let parts = parts.map(move |part| part.map_err(|error| failure(&list, "list", error)));
                Ok(parts.flat_map(|part| stream::iter(pieces(part))).boxed())
            }
            Err(refusal @ datastore::Error::Unauthorized { .. }) => self.read(refusal).await,
            Err(error) => Err(error),
        }
    }
}

/// Splits a part into pieces, so that followers start with the first entries while the others are processed here.
fn pieces(part: Result<KvList, Failure>) -> impl Iterator<Item = Result<KvList, Failure>> + Send {
    let (mut rest, failure) = match part {
        Ok(part) => (Some((part.revision, part.items.into_iter(), part.invalid)), None),
        Err(failure) => (None, Some(Err(failure))),
    };
    let pieces = std::iter::from_fn(move || {
        let (revision, items, invalid) = rest.as_mut()?;
        let piece = items.by_ref().take(PIECE).collect();
        let mut piece = KvList { revision: revision.clone(), items: piece, invalid: Vec::new() };
        if items.len() == 0 {
            piece.invalid = std::mem::take(invalid);
            rest = None;
        }
        Some(Ok(piece))
    });
    pieces.chain(failure)
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl Source for Stored {
    type Part = KvList;
    type Change = WatchEvent;

    async fn list(&self, revision: &str) -> Result<Items<KvList>, Failure> {
        self.try_list(revision).await.map_err(|error| failure(&self.list, "list", error))
    }

    async fn watch(&self, revision: &str) -> Result<Items<WatchEvent>, Failure> {
        // Without a revision a watch begins with the existing entries.
        let revision = (!self.is_read_alone.load(Ordering::Relaxed)).then(|| revision.to_owned());
        let options = WatchOptions { revision, bookmarks: true, deleted_keys_only: true };
        let list = self.list.clone();
        match self.backend.watch(&self.list, options).await {
            Ok(watch) => {
                Ok(watch.map(move |event| event.map_err(|error| failure(&list, "follow", error))).boxed())
            }
            Err(error) => Err(failure(&self.list, "watch", error)),
        }
    }
}

pub(crate) fn failure(list: &ListOptions, verb: &str, error: datastore::Error) -> Failure {
    let failure = Failure::from(error);
    tracing::info!(kind = %list, class = ?failure.class, error = %failure.message, "cannot {verb}");
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::FailureClass;
    use datastore::InvalidEntry;
    use model::{Key, KvPair, V1Key, Value};

    #[test]
    fn a_part_is_split_into_pieces_without_loss() {
        for (count, expected) in
            [(0, vec![0]), (1, vec![1]), (PIECE, vec![PIECE]), (2 * PIECE + 1, vec![PIECE, PIECE, 1])]
        {
            let name = |number| Key::V1(V1Key::GlobalConfig { name: format!("{number:05}") });
            let items: Vec<KvPair> =
                (0..count).map(|number| KvPair::new(name(number), Value::IpamHost)).collect();
            let (key, reason) = ("bad".to_owned(), "not JSON".to_owned());
            let invalid = vec![InvalidEntry { key, parsed_key: None, reason, salvaged: None }];
            let part = KvList { revision: "7".to_owned(), items: items.clone(), invalid };
            let pieces: Vec<KvList> = pieces(Ok(part)).map(Result::unwrap).collect();
            assert_eq!(pieces.iter().map(|piece| piece.items.len()).collect::<Vec<_>>(), expected);
            assert!(pieces.iter().all(|piece| piece.revision == "7"));
            assert_eq!(pieces.iter().map(|piece| piece.invalid.len()).sum::<usize>(), 1);
            assert_eq!(pieces.into_iter().flat_map(|piece| piece.items).collect::<Vec<_>>(), items);
        }
        let failure = Failure { class: FailureClass::Other, message: String::new(), retry_after: None };
        assert_eq!(pieces(Err(failure.clone())).map(Result::unwrap_err).collect::<Vec<_>>(), [failure]);
    }
}
