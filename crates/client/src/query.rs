//! What callers ask for and what they get: options, lists and watch events.

use api::Resource;
use datastore::{InvalidEntry, Result};
use follow::source::{Change, Part};
use futures::stream::BoxStream;

/// Which objects of a kind, and as of when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this name.
    pub name: Option<String>,
    /// Whether `name` is only the beginning of the name.
    pub name_is_prefix: bool,
    /// For a list: as of this revision. For a watch: what happened after it.
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

    /// The objects whose name begins like this.
    #[must_use]
    pub fn with_name_prefix(prefix: &str) -> Self {
        Self { name: Some(prefix.to_owned()), name_is_prefix: true, ..Self::default() }
    }

    /// The same, as of (or after) this revision.
    #[must_use]
    pub fn at(mut self, revision: &str) -> Self {
        self.revision = Some(revision.to_owned());
        self
    }
}

/// Conditions on a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Delete only this version of the object.
    pub revision: Option<String>,
    /// Delete only the object with this uid, not a later one of the same name.
    pub uid: Option<String>,
}

impl DeleteOptions {
    /// Delete only this version.
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
    /// The revision of the answer: a watch from here misses nothing.
    pub revision: String,
    /// Objects that are there and cannot be read. Whoever enforces anything must not treat these as absent.
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

/// One thing that happened to the objects of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum ResourceEvent<T> {
    /// The object is new.
    Added(T),
    /// The object changed.
    Modified {
        /// What it is now.
        new: T,
    },
    /// The object is gone; this is what it was.
    Deleted(T),
    /// Nothing happened up to this revision.
    Bookmark(String),
    /// Something happened to an object that cannot be read. The watch goes on.
    Invalid(InvalidEntry),
}

impl<T> ResourceEvent<T> {
    /// The same event with its objects converted.
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
