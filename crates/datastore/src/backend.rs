//! The backend trait and the values that go through it.

use crate::error::{Error, Result};
use crate::parts::{UndecodedPart, UndecodedParts};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt as _};
use model::{Key, KvPair, ListOptions};

/// A place that keeps Calico's data. Revisions are opaque text, compared only for equality by callers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Stores a new entry.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when the key is taken.
    async fn create(&self, entry: &KvPair) -> Result<KvPair>;

    /// Stores several new entries at once: all of them, or none (`None`), because one of the keys is taken or the store
    /// cannot do so many in one step. No two entries may have the same key.
    ///
    /// # Errors
    /// Those of the store.
    async fn create_all(&self, _entries: &[KvPair]) -> Result<Option<Vec<KvPair>>> {
        Ok(None)
    }

    /// Does several writes at once, each under its own condition: all of them or none. No two may have the same key.
    /// Stores without transactions do nothing and say so; the caller then does the writes one by one, in an order that is
    /// safe wherever it stops.
    ///
    /// # Errors
    /// Those of the store; it is then not known whether the writes happened.
    async fn write_all(&self, _writes: &[Write]) -> Result<Batch> {
        Ok(Batch::Unsupported)
    }

    /// Replaces an entry whose current revision is `entry.revision`.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`] when there is none; [`Error::UpdateConflict`] when it has another revision.
    async fn update(&self, entry: &KvPair) -> Result<KvPair>;

    /// Replaces only the status of an entry; an ordinary update where the store knows no such difference.
    ///
    /// # Errors
    /// As [`Backend::update`].
    async fn update_status(&self, entry: &KvPair) -> Result<KvPair> {
        self.update(entry).await
    }

    /// Stores an entry whatever is there.
    ///
    /// # Errors
    /// Only those of the store itself.
    async fn apply(&self, entry: &KvPair) -> Result<KvPair>;

    /// Deletes the entry of this key and returns what it held. With a revision, only if that is the current one.
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
    /// [`Error::DoesNotExist`] when there is none.
    async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair>;

    /// Reads all entries that `list` selects, now or at a revision.
    ///
    /// # Errors
    /// Those of the store. An entry that cannot be read does not fail the list: it is in [`KvList::invalid`].
    async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList>;

    /// Reads all entries that `list` selects, in parts, all of one moment: whoever looks at each entry only once need
    /// not hold all of them. Every part carries the revision of the whole.
    ///
    /// # Errors
    /// Those of the store, before the first part or as the last item. [`Error::Expired`] when the moment of the first
    /// part is gone: begin again.
    async fn list_parts(&self, list: &ListOptions, revision: Option<&str>) -> Result<ListParts> {
        let whole = self.list(list, revision).await?;
        Ok(futures::stream::once(std::future::ready(Ok(whole))).boxed())
    }

    /// The same, for whoever decodes the parts: what comes of an entry is then made by the thread that decoded it, entry by
    /// entry, and little is allocated by one thread and freed by another.
    ///
    /// # Errors
    /// As [`Backend::list_parts`].
    async fn list_undecoded(&self, list: &ListOptions, revision: Option<&str>) -> Result<UndecodedParts> {
        let parts = self.list_parts(list, revision).await?;
        Ok(parts.map(|part| part.map(UndecodedPart::from)).boxed())
    }

    /// The revision of the newest change of the whole store, asked of the store itself. Nothing where that costs as much as a
    /// list.
    ///
    /// # Errors
    /// Those of the store.
    async fn newest_revision(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Follows the entries that `list` selects.
    ///
    /// # Errors
    /// When the watch cannot be started; later troubles come as items of the stream.
    async fn watch(&self, list: &ListOptions, options: WatchOptions) -> Result<Watch>;

    /// Makes the store ready for Calico's data, where that takes anything (a Kubernetes backend needs its CRDs).
    ///
    /// # Errors
    /// When the store cannot be used as it is; the message says what is missing.
    async fn ensure_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Installs what the store must have before it can take Calico's data, and waits for it: on Kubernetes the custom
    /// resource definitions of this version. Other stores take anything. Only for tools that set up a store.
    ///
    /// # Errors
    /// Those of the store; the message says what is missing.
    async fn install(&self) -> Result<()> {
        Ok(())
    }

    /// Moves a policy that a release before v3.32 stored as `default.NAME` to its own name. False when it is there
    /// already.
    ///
    /// # Errors
    /// As [`Backend::update`]: `entry` is what a list found.
    async fn store_under_own_name(&self, _entry: &KvPair) -> Result<bool> {
        Ok(false)
    }

    /// One round of forgetting old revisions, where the store keeps any: what was current at the last round becomes the
    /// oldest that can be read. Rounds are a period apart; whoever has the turn compacts for all.
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

    /// Whether this is the Kubernetes API (the client leaves defaulting by schema to it, and adds `kdd`).
    fn is_kubernetes(&self) -> bool {
        false
    }
}

/// What a round of compaction leaves for the next one to know. The first round gets the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// The revision that last wrote the key by which programs take turns; 0 when nobody has.
    pub marker: i64,
    /// The revision of the store at that round.
    pub revision: i64,
    /// To which revision this round compacted, if it was its turn.
    pub compacted: Option<i64>,
}

/// One of several writes that happen at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Store a new entry; its key must be free.
    Create(KvPair),
    /// Replace an entry that has this revision.
    Update(KvPair),
    /// Delete an entry that has this revision.
    Delete(KvPair),
    /// Write nothing, but only go on if the entry of this key has this revision, or (`None`) is not there.
    Unchanged {
        /// The key.
        key: Key,
        /// Its revision.
        revision: Option<String>,
    },
}

impl Write {
    /// The key that this is about.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Create(entry) | Self::Update(entry) | Self::Delete(entry) => &entry.key,
            Self::Unchanged { key, .. } => key,
        }
    }
}

/// What became of several writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// All were done. In their order: what is stored now; nothing for deletions and conditions.
    Done(Vec<Option<KvPair>>),
    /// None was done, because a condition did not hold. In their order: what is there.
    Conflict(Vec<Option<KvPair>>),
    /// None was done: the store cannot do these at once.
    Unsupported,
}

/// What a list found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvList {
    /// The entries, in key order.
    pub items: Vec<KvPair>,
    /// The revision of the whole answer: a watch from here misses nothing.
    pub revision: String,
    /// Entries that are there and cannot be read. Whoever enforces anything must not treat these as absent.
    pub invalid: Vec<InvalidEntry>,
}

/// A list in parts. An `Err` item is the last one.
pub type ListParts = BoxStream<'static, std::result::Result<KvList, Error>>;

/// An entry that is there and cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidEntry {
    /// Its key: the etcd path, or `<plural>/<namespace>/<name>`.
    pub key: String,
    /// Its key as a value, where the key itself could be read.
    pub parsed_key: Option<Key>,
    /// What is wrong, with the JSON path where one is known.
    pub reason: String,
    /// As much of it as can be read, for kinds whose absence would open something: see [`model::convert::salvage`].
    /// Only for whoever enforces policy; nobody may show it or write it back.
    pub salvaged: Option<Box<KvPair>>,
}

impl InvalidEntry {
    /// Whether this may be any entry of the list. A path of etcd that is not a key of Calico's is not one.
    #[must_use]
    pub fn may_be_any(&self) -> bool {
        self.parsed_key.is_none() && !self.key.starts_with('/')
    }
}

/// The part of a revision that says which version of an entry this is: equal for equal versions, whether a list or a watch
/// brought them. A list of profiles on Kubernetes spans two kinds of objects; an event's revision says how far both have
/// come, so that a watch can go on from it, and only one half of it is about the profile.
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

/// How to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Follow what happened after this revision. Without one (or with `"0"`): first everything that is there, as
    /// [`WatchEvent::Added`], then what happens.
    pub revision: Option<String>,
    /// Ask for bookmarks, where the store has them.
    pub bookmarks: bool,
    /// Whether the key of a deleted entry is enough. What it held then need not be sent, and a [`WatchEvent::Deleted`] may
    /// have the entry's identity alone.
    pub deleted_keys_only: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The entry is new.
    Added(KvPair),
    /// The entry changed.
    Modified {
        /// What it is now.
        new: KvPair,
    },
    /// The entry is gone; this is what it held.
    Deleted(KvPair),
    /// Nothing selected by this watch happened up to this revision.
    Bookmark(String),
    /// Something happened to an entry that cannot be read. The watch goes on.
    Invalid(InvalidEntry),
}

/// A running watch: dropping it ends it. An `Err` item is the last one; [`Error::is_expired`] says that the revision is
/// gone and a list is due.
pub type Watch = BoxStream<'static, std::result::Result<WatchEvent, Error>>;
