//! Requests and results: options, lists and watch events.

use api::Resource;
use datastore::{InvalidEntry, Result};
use follow::source::{Change, Part};
use futures::stream::BoxStream;

/// Selects objects of a kind, at some revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this name.
    pub name: Option<String>,
    /// Whether `name` is a prefix.
    pub name_is_prefix: bool,
    /// For a list: the revision to read. For a watch: the revision after which changes are reported.
    pub revision: Option<String>,
}

impl ListQuery {
    /// All objects of the kind.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn in_namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    /// The objects of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::default() }
    }

    /// The objects whose name has this prefix.
    #[must_use]
    pub fn with_name_prefix(prefix: &str) -> Self {
        Self { name: Some(prefix.to_owned()), name_is_prefix: true, ..Self::default() }
    }

    /// Sets the revision to read, or to watch from.
    #[must_use]
    pub fn at(mut self, revision: &str) -> Self {
        self.revision = Some(revision.to_owned());
        self
    }
}

/// Conditions on a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Delete only this revision of the object.
    pub revision: Option<String>,
    /// Delete only the object with this uid, not a later one with the same name.
    pub uid: Option<String>,
}

impl DeleteOptions {
    /// Restricts the deletion to this revision.
    #[must_use]
    pub fn at(revision: &str) -> Self {
        Self { revision: Some(revision.to_owned()), uid: None }
    }
}

/// Objects of a kind, in the order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceList<T> {
    /// The objects.
    pub items: Vec<T>,
    /// The revision of the answer: a watch from this revision misses nothing.
    pub revision: String,
    /// Objects that exist but cannot be read. Code that enforces anything must not treat them as absent.
    pub invalid: Vec<InvalidEntry>,
}

impl Part for ResourceList<Resource> {
    fn entries(&self) -> usize {
        self.items.len() + self.invalid.len()
    }

    fn revision(&self) -> &str {
        &self.revision
    }
}

/// A change of the objects of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum ResourceEvent<T> {
    /// The object is new.
    Added(T),
    /// The object changed.
    Modified {
        /// The new state.
        new: T,
    },
    /// The object was deleted; this is its last state.
    Deleted(T),
    /// No further events up to this revision.
    Bookmark(String),
    /// An object that cannot be read changed. The watch continues.
    Invalid(InvalidEntry),
}

impl<T> ResourceEvent<T> {
    /// Converts the event's objects.
    pub(crate) fn try_map<U>(self, convert: impl FnOnce(T) -> Result<U>) -> Result<ResourceEvent<U>> {
        Ok(match self {
            Self::Added(object) => ResourceEvent::Added(convert(object)?),
            Self::Modified { new } => ResourceEvent::Modified { new: convert(new)? },
            Self::Deleted(object) => ResourceEvent::Deleted(convert(object)?),
            Self::Bookmark(revision) => ResourceEvent::Bookmark(revision),
            Self::Invalid(entry) => ResourceEvent::Invalid(entry),
        })
    }
}

impl Change for ResourceEvent<Resource> {
    fn revision(&self) -> Option<&str> {
        match self {
            Self::Added(object) | Self::Modified { new: object } | Self::Deleted(object) => {
                Some(&object.metadata().resource_version)
            }
            Self::Bookmark(revision) => Some(revision),
            Self::Invalid(_) => None,
        }
    }
}

/// A running watch: dropping it ends it. An `Err` item is the last one.
pub type ResourceWatch<T> = BoxStream<'static, Result<ResourceEvent<T>>>;
