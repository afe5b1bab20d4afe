//! What can go wrong with a datastore, in Calico's classes and wording.

use model::KvPair;
use std::time::Duration;

/// A result of a datastore operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed or could not be reached (Calico: `ErrorDatastoreError`).
    #[error("{context}: {source}")]
    Datastore {
        /// What was attempted, on which object.
        context: String,
        /// What the store or the network said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
        /// Whether the same call may succeed later without any change.
        transient: bool,
        /// How long the store asked us to wait.
        retry_after: Option<Duration>,
    },
    /// There is no such object.
    #[error("resource does not exist: {key}{}", because(.reason))]
    DoesNotExist {
        /// The key of the object that the call was about.
        key: String,
        /// More, where there is more to say.
        reason: String,
    },
    /// There is such an object already.
    #[error("resource already exists: {key}")]
    AlreadyExists {
        /// The key of the object that the call was about.
        key: String,
        /// What is there, where the store told.
        existing: Option<Box<KvPair>>,
    },
    /// The object has changed since it was read.
    #[error("update conflict: {key}")]
    UpdateConflict {
        /// The key of the object that the call was about.
        key: String,
        /// What is there, where the store told.
        existing: Option<Box<KvPair>>,
    },
    /// The store refuses our credentials, or this operation to them.
    #[error("connection is unauthorized: {reason}")]
    Unauthorized {
        /// What it said.
        reason: String,
    },
    /// The object is not acceptable.
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
        /// On what.
        key: String,
        /// Why, where there is a why.
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
    /// The revision asked for is no longer (or not yet) there: list again.
    #[error("revision is not available: {reason}")]
    Expired {
        /// What the store said.
        reason: String,
    },
    /// The connection of a watch ended. List or watch again.
    #[error("watch closed: {reason}")]
    WatchClosed {
        /// The program's end, and its last words.
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

    /// A failure of the store that will not pass by itself.
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

    /// Whether there is no such object.
    #[must_use]
    pub fn is_does_not_exist(&self) -> bool {
        matches!(self, Self::DoesNotExist { .. })
    }

    /// Whether there is such an object already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::AlreadyExists { .. })
    }

    /// Whether somebody else changed the object first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::UpdateConflict { .. })
    }

    /// Whether a list is due because the revision is gone.
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
