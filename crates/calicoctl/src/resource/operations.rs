//! What each command does to one object, by Calico's rules: which metadata a user may set, when a create becomes an
//! update, how often a conflict is retried.

use super::target::Identity;
use api::meta::ObjectMeta;
use api::{Kind, Resource};
use client::{Client, DeleteOptions, Error};
use std::error::Error as _;
use std::fmt;
use std::time::Duration;

/// How often an update is retried after a conflict, and the pause in between.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// The prefix of the names of policies that represent Kubernetes policies.
const KUBERNETES_POLICY: &str = "knp.default.";

/// Why an operation on one object failed; formatted like Calico.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An error of the client or the store.
    Store(Box<Error>),
    /// An error of the command line itself.
    Text(String),
    /// This many mistakes, which were already shown with their places.
    Shown(usize),
}

impl Refusal {
    /// Whether the object does not exist.
    #[must_use]
    pub(crate) fn is_does_not_exist(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_does_not_exist())
    }

    /// How many mistakes have been shown already.
    #[must_use]
    pub(crate) fn shown(&self) -> usize {
        match self {
            Self::Shown(count) => *count,
            _ => 0,
        }
    }

    /// Whether the object already exists.
    #[must_use]
    pub(crate) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_already_exists())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Store(Box::new(error))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Shown(1) => return f.write_str("1 mistake, shown above"),
            Self::Shown(count) => return write!(f, "{count} mistakes, shown above"),
            Self::Store(error) => error,
        };
        match &**error {
            // Calico's tool adds `with error: <nil>` where there is no reason.
            Error::DoesNotExist { key, reason } if reason.is_empty() => {
                write!(f, "resource does not exist: {key}")
            }
            Error::DoesNotExist { key, reason } => {
                write!(f, "resource does not exist: {key} with error: {reason}")
            }
            Error::AlreadyExists { key, .. } => write!(f, "resource already exists: {key}"),
            Error::InsufficientIdentifiers { missing } => {
                write!(f, "insufficient identifiers, missing '{missing}'")
            }
            other => {
                let mut text = other.to_string();
                let mut cause = other.source();
                while let Some(inner) = cause {
                    let more = inner.to_string();
                    if !text.contains(&more) {
                        text = format!("{text}: {more}");
                    }
                    cause = inner.source();
                }
                f.write_str(&text)
            }
        }
    }
}

/// A result of an operation on one object.
pub(crate) type Outcome = Result<Resource, Refusal>;

/// Creates an object.
///
/// # Errors
/// As the client's create.
pub(crate) async fn create(client: &Client, resource: &Resource) -> Outcome {
    check_writable(resource.kind(), resource.name(), resource.namespace(), "create or apply")?;
    let mut new = resource.clone();
    let metadata = new.metadata_mut();
    let written = std::mem::take(metadata);
    // The rest of the metadata is set by the store.
    *metadata = ObjectMeta {
        name: written.name,
        namespace: written.namespace,
        resource_version: written.resource_version,
        labels: written.labels,
        annotations: written.annotations,
        ..ObjectMeta::default()
    };
    Ok(client.create_any(new).await?)
}

/// Creates an object, or updates it if it exists.
///
/// # Errors
/// As the client's create and update.
pub(crate) async fn apply(client: &Client, resource: &Resource) -> Outcome {
    if resource.kind() == Kind::ClusterInformation {
        return Err(Refusal::Text(
            "operation apply is not supported on ClusterInformation: resource is readonly".to_owned(),
        ));
    }
    let mut new = resource.clone();
    new.metadata_mut().resource_version.clear();
    match create(client, &new).await {
        Err(Refusal::Store(error))
            if matches!(*error, Error::AlreadyExists { .. } | Error::NotSupported { .. }) =>
        {
            update(client, resource).await
        }
        outcome => outcome,
    }
}

/// Updates an existing object. A version in the object must be the stored one.
///
/// # Errors
/// As the client's update; a conflict only after a few attempts.
pub(crate) async fn update(client: &Client, resource: &Resource) -> Outcome {
    check_writable(resource.kind(), resource.name(), resource.namespace(), "apply or replace")?;
    let identity = Identity::of(resource);
    let wanted = &resource.metadata().resource_version;
    let mut attempt = 1;
    loop {
        let stored = client.get_any(identity.kind, &identity.namespace, &identity.name, None).await?;
        let latest = &stored.metadata().resource_version;
        if !wanted.is_empty() && wanted != latest {
            return Err(Refusal::Text(format!(
                "update conflict: {identity}: resource version '{wanted}' is out of date (latest: {latest}). Update the \
                 resource YAML/JSON in order to make changes"
            )));
        }
        match client.update_any(with_metadata_of(&stored, resource)).await {
            Err(error) if error.is_conflict() && wanted.is_empty() && attempt < ATTEMPTS => {
                tracing::info!(object = %identity, %error, "the object changed meanwhile: trying again");
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// The object with the stored metadata, except for the fields that a user may set.
#[must_use]
pub(crate) fn with_metadata_of(stored: &Resource, resource: &Resource) -> Resource {
    let mut merged = resource.clone();
    let metadata = merged.metadata_mut();
    *metadata = ObjectMeta {
        labels: std::mem::take(&mut metadata.labels),
        annotations: std::mem::take(&mut metadata.annotations),
        ..stored.metadata().clone()
    };
    merged
}

/// Deletes an object; if a version is given, only that version of it.
///
/// # Errors
/// As the client's delete.
pub(crate) async fn delete(client: &Client, identity: &Identity, revision: &str) -> Outcome {
    check_writable(identity.kind, &identity.name, &identity.namespace, "delete")?;
    if identity.name.is_empty() {
        return Err(Refusal::Text("resource name may not be empty".to_owned()));
    }
    let options =
        DeleteOptions { revision: Some(revision.to_owned()).filter(|text| !text.is_empty()), uid: None };
    Ok(client.delete_any(identity.kind, &identity.namespace, &identity.name, &options).await?)
}

/// Refuses objects that belong to Calico or to Kubernetes.
fn check_writable(kind: Kind, name: &str, namespace: &str, operation: &str) -> Result<(), Refusal> {
    let refused = |key: &str, reason: &str| {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        Err(Refusal::Text(format!("operation {operation} is not supported on {key}{reason}")))
    };
    match kind {
        Kind::ClusterInformation => refused("ClusterInformation", ""),
        Kind::NetworkPolicy if name.starts_with(KUBERNETES_POLICY) => refused(
            &format!("NetworkPolicy({namespace}/{name})"),
            "kubernetes network policies must be managed through the kubernetes API",
        ),
        _ => Ok(()),
    }
}
