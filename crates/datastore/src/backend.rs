//! The backend trait and the values that go through it.

use crate::error::{Error, Result};
use crate::parts::{UndecodedPart, UndecodedParts};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt as _};
use model::{Key, KvPair, ListOptions};

/// A store of Calico's data. Revisions are opaque text, which callers only compare for equality.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Stores a new entry.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when the key is taken.
    async fn create(&self, entry: &KvPair) -> Result<KvPair>;

    /// Stores several new entries at once: all of them, or none (`None`), because one of the keys is taken or the store
    /// cannot do so in one step. No two entries may have the same key.
    ///
    /// # Errors
    /// Those of the store.
    async fn create_all(&self, _entries: &[KvPair]) -> Result<Option<Vec<KvPair>>> {
        Ok(None)
    }

    /// Performs several writes at once, each under its own condition: all of them or none. No two may have the same
    /// key. Stores without transactions do nothing and return [`Batch::Unsupported`]; the caller then writes one by
    /// one, in an order that is safe wherever it stops.
    ///
    /// # Errors
    /// Those of the store; it is then unknown whether the writes happened.
    async fn write_all(&self, _writes: &[Write]) -> Result<Batch> {
        Ok(Batch::Unsupported)
    }

    /// Replaces an entry whose current revision is `entry.revision`.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`] when the entry does not exist; [`Error::UpdateConflict`] when it has another revision.
    async fn update(&self, entry: &KvPair) -> Result<KvPair>;

    /// Replaces only the status of an entry; an ordinary update where the store does not separate the status.
    ///
    /// # Errors
    /// As [`Backend::update`].
    async fn update_status(&self, entry: &KvPair) -> Result<KvPair> {
        self.update(entry).await
    }

    /// Stores an entry whether or not it exists.
    ///
    /// # Errors
    /// Only those of the store itself.
    async fn apply(&self, entry: &KvPair) -> Result<KvPair>;

    /// Deletes the entry of this key and returns its last state. With a revision, only if that is the current one.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`]; [`Error::UpdateConflict`] when it has another revision.
    async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair>;

    /// Deletes exactly this entry: its revision, and its uid where the store keeps one.
    ///
    /// # Errors
    /// As [`Backend::delete`].
    async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair>;

    /// Reads one entry, now or at a revision.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`] when the entry does not exist.
    async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair>;

    /// Reads all entries that `list` selects, now or at a revision.
    ///
    /// # Errors
    /// Those of the store. An entry that cannot be read does not fail the list: it is in [`KvList::invalid`].
    async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList>;

    /// Reads all entries that `list` selects, in parts, all of one revision: a caller that needs each entry only once
    /// need not hold all of them. Every part carries the revision of the whole list.
    ///
    /// # Errors
    /// Those of the store, before the first part or as the last item. [`Error::Expired`] when the revision of the first
    /// part is gone: start again.
    async fn list_parts(&self, list: &ListOptions, revision: Option<&str>) -> Result<ListParts> {
        let whole = self.list(list, revision).await?;
        Ok(futures::stream::once(std::future::ready(Ok(whole))).boxed())
    }

    /// [`Backend::list_parts`] for callers that decode the parts: the thread that decodes an entry also processes it,
    /// entry by entry, so that little is allocated by one thread and freed by another.
    ///
    /// # Errors
    /// As [`Backend::list_parts`].
    async fn list_undecoded(&self, list: &ListOptions, revision: Option<&str>) -> Result<UndecodedParts> {
        let parts = self.list_parts(list, revision).await?;
        Ok(parts.map(|part| part.map(UndecodedPart::from)).boxed())
    }

    /// The revision of the newest change of the whole store, read from the store itself. `None` where that costs as
    /// much as a list.
    ///
    /// # Errors
    /// Those of the store.
    async fn newest_revision(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Watches the entries that `list` selects.
    ///
    /// # Errors
    /// When the watch cannot be started; later errors are items of the stream.
    async fn watch(&self, list: &ListOptions, options: WatchOptions) -> Result<Watch>;

    /// Prepares the store for Calico's data, where necessary (a Kubernetes backend needs its CRDs).
    ///
    /// # Errors
    /// When the store cannot be used as it is; the message names what is missing.
    async fn ensure_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Installs what the store needs before it can hold Calico's data, and waits for it: on Kubernetes the custom
    /// resource definitions of this version. Other stores need nothing. Only for tools that set up a store.
    /// # Errors
    /// Those of the store; the message names what is missing.
    async fn install(&self) -> Result<()> {
        Ok(())
    }

    /// Moves a policy that a release before v3.32 stored as `default.NAME` to its own name. Returns false when it
    /// already exists there.
    ///
    /// # Errors
    /// As [`Backend::update`]: `entry` was found by a list.
    async fn store_under_own_name(&self, _entry: &KvPair) -> Result<bool> {
        Ok(false)
    }

    /// Runs one round of compacting old revisions, where the store keeps any: the revision that was current in the last
    /// round becomes the oldest that can be read. Rounds are a period apart; the program whose turn it is compacts for
    /// all.
    ///
    /// # Errors
    /// Those of the store.
    async fn compaction_round(&self, last: Compaction) -> Result<Compaction> {
        Ok(last)
    }

    /// Removes all of Calico's data. Used by tests and by an explicit clean-up, never on a normal path.
    ///
    /// # Errors
    /// Those of the store.
    async fn clean(&self) -> Result<()>;

    /// Whether this is the Kubernetes API (which applies schema defaults itself, and adds `kdd`).
    fn is_kubernetes(&self) -> bool {
        false
    }
}

/// The state carried from one round of compaction to the next. The first round gets the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// The revision that last wrote the key with which programs take turns; 0 if it does not exist.
    pub marker: i64,
    /// The revision of the store at that round.
    pub revision: i64,
    /// The revision up to which this round compacted, if it was its turn.
    pub compacted: Option<i64>,
}

/// One of several writes performed at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Store a new entry; its key must not exist.
    Create(KvPair),
    /// Replace the entry if it has this revision.
    Update(KvPair),
    /// Delete the entry if it has this revision.
    Delete(KvPair),
    /// Write nothing, but require that the entry of this key has this revision, or (`None`) does not exist.
    Unchanged {
        /// The key.
        key: Key,
        /// Its revision.
        revision: Option<String>,
    },
}

impl Write {
    /// The key of the write.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Create(entry) | Self::Update(entry) | Self::Delete(entry) => &entry.key,
            Self::Unchanged { key, .. } => key,
        }
    }
}

/// The outcome of several writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// All were performed. For each, the stored entry; `None` for deletions and conditions.
    Done(Vec<Option<KvPair>>),
    /// None was performed, because a condition did not hold. For each, the existing entry.
    Conflict(Vec<Option<KvPair>>),
    /// None was performed: the store cannot do this at once.
    Unsupported,
}

/// The result of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvList {
    /// The entries, in key order.
    pub items: Vec<KvPair>,
    /// The revision of the whole answer: a watch from this revision misses nothing.
    pub revision: String,
    /// Entries that exist but cannot be read. Code that enforces anything must not treat these as absent.
    pub invalid: Vec<InvalidEntry>,
}

/// A list in parts. An `Err` item is the last one.
pub type ListParts = BoxStream<'static, std::result::Result<KvList, Error>>;

/// An entry that exists but cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidEntry {
    /// Its key: the etcd path, or `<plural>/<namespace>/<name>`.
    pub key: String,
    /// Its parsed key, if the key itself could be read.
    pub parsed_key: Option<Key>,
    /// What is wrong, with the JSON path where one is known.
    pub reason: String,
    /// As much of it as can be read, for kinds whose absence would permit something: see [`model::convert::salvage`].
    /// Only for enforcing policy; it must not be shown or written back.
    pub salvaged: Option<Box<KvPair>>,
}

impl InvalidEntry {
    /// Whether this could be any entry of the list. A path of etcd that is not one of Calico's keys could not.
    #[must_use]
    pub fn may_be_any(&self) -> bool {
        self.parsed_key.is_none() && !self.key.starts_with('/')
    }
}

/// The part of a revision that identifies the version of an entry: equal for equal versions, whether from a list or a
/// watch. A list of profiles on Kubernetes spans two kinds of objects; an event's revision gives the position in both,
/// so that a watch can resume from it, and only one half of it belongs to the profile.
#[must_use]
pub fn own_revision<'a>(key: &Key, revision: &'a str) -> &'a str {
    use model::kubernetes::profile::{ProfileOwner, profile_owner, split_revision};
    let Key::Resource(key) = key else { return revision };
    if key.kind != api::Kind::Profile {
        return revision;
    }
    match (split_revision(revision), profile_owner(&key.name)) {
        (Some((namespaces, _)), Some(ProfileOwner::Namespace(_))) => namespaces,
        (Some((_, accounts)), Some(ProfileOwner::ServiceAccount { .. })) => accounts,
        _ => revision,
    }
}

/// The options of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Report changes after this revision. Without one (or with `"0"`): first all existing entries, as
    /// [`WatchEvent::Added`], then changes.
    pub revision: Option<String>,
    /// Whether to request bookmarks, where the store has them.
    pub bookmarks: bool,
    /// Whether the key of a deleted entry is enough. Its last value then need not be sent, and a
    /// [`WatchEvent::Deleted`] may contain the entry's identity alone.
    pub deleted_keys_only: bool,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The entry is new.
    Added(KvPair),
    /// The entry changed.
    Modified {
        /// Its new state.
        new: KvPair,
    },
    /// The entry was deleted; this is its last state.
    Deleted(KvPair),
    /// Nothing selected by this watch changed up to this revision.
    Bookmark(String),
    /// An entry that cannot be read changed. The watch continues.
    Invalid(InvalidEntry),
}

/// A running watch: dropping it ends it. An `Err` item is the last one; with [`Error::is_expired`] the revision is gone
/// and a new list is needed.
pub type Watch = BoxStream<'static, std::result::Result<WatchEvent, Error>>;
