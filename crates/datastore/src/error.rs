//! The errors of a datastore, in Calico's classes and wording.

use model::KvPair;
use std::time::Duration;

/// A result of a datastore operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a datastore operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed or could not be reached (Calico: `ErrorDatastoreError`).
    #[error("{context}: {source}")]
    Datastore {
        /// What was attempted, on which object.
        context: String,
        /// The error of the store or the network.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
        /// Whether the same call may succeed later without any change.
        transient: bool,
        /// How long the store asked to wait.
        retry_after: Option<Duration>,
    },
    /// The object does not exist.
    #[error("resource does not exist: {key}{}", because(.reason))]
    DoesNotExist {
        /// The key of the object that the call was about.
        key: String,
        /// Details, if any.
        reason: String,
    },
    /// The object exists already.
    #[error("resource already exists: {key}")]
    AlreadyExists {
        /// The key of the object that the call was about.
        key: String,
        /// The existing object, if the store returned it.
        existing: Option<Box<KvPair>>,
    },
    /// The object has changed since it was read.
    #[error("update conflict: {key}")]
    UpdateConflict {
        /// The key of the object that the call was about.
        key: String,
        /// The existing object, if the store returned it.
        existing: Option<Box<KvPair>>,
    },
    /// The store refuses our credentials, or this operation to them.
    #[error("connection is unauthorized: {reason}")]
    Unauthorized {
        /// The store's message.
        reason: String,
    },
    /// The object is invalid.
    #[error(transparent)]
    Validation(#[from] api::FieldErrors),
    /// A name or namespace is missing.
    #[error("insufficient identifiers: missing '{missing}'")]
    InsufficientIdentifiers {
        /// What is missing.
        missing: String,
    },
    /// This store cannot do this to this kind of object.
    #[error("operation {operation} is not supported on {key}{}", because(.reason))]
    NotSupported {
        /// What was attempted.
        operation: &'static str,
        /// The object it was attempted on.
        key: String,
        /// The reason, if any.
        reason: String,
    },
    /// A stored entry cannot be read.
    #[error("failed to parse datastore entry {key}: {reason}")]
    Parse {
        /// The key of the object that the call was about.
        key: String,
        /// What is wrong, with the JSON path where one is known.
        reason: String,
    },
    /// The requested revision no longer exists, or does not exist yet: list again.
    #[error("revision is not available: {reason}")]
    Expired {
        /// The store's message.
        reason: String,
    },
    /// The connection of a watch ended. List or watch again.
    #[error("watch closed: {reason}")]
    WatchClosed {
        /// The reason that the store gave, if any.
        reason: String,
    },
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl Error {
    /// A failure of the store that may pass.
    pub fn transient(
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Datastore { context: context.into(), source: source.into(), transient: true, retry_after: None }
    }

    /// A permanent failure of the store.
    pub fn permanent(
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Datastore {
            context: context.into(),
            source: source.into(),
            transient: false,
            retry_after: None,
        }
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_does_not_exist(&self) -> bool {
        matches!(self, Self::DoesNotExist { .. })
    }

    /// Whether the object exists already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::AlreadyExists { .. })
    }

    /// Whether another writer changed the object first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::UpdateConflict { .. })
    }

    /// Whether the revision is gone, so that a new list is needed.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Expired { .. })
    }

    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Datastore { transient: true, .. } | Self::WatchClosed { .. })
    }
}
