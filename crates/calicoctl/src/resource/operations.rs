//! What each command does to one object, with Calico's rules: which metadata a user may set, when a create becomes an
//! update, how often a conflict is tried again.

use super::target::Identity;
use api::meta::ObjectMeta;
use api::{Kind, Resource};
use client::{Client, DeleteOptions, Error};
use std::error::Error as _;
use std::fmt;
use std::time::Duration;

/// How often an update is tried when another client was faster, and the pause between.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// The beginning of the names of policies that stand for Kubernetes' own.
const KUBERNETES_POLICY: &str = "knp.default.";

/// Why an operation on one object failed; prints as Calico prints it.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// What the client or the store said.
    Store(Box<Error>),
    /// What the command line itself says.
    Text(String),
    /// This many mistakes, which were shown with their places.
    Shown(usize),
}

impl Refusal {
    /// Whether there is no such object.
    #[must_use]
    pub(crate) fn is_does_not_exist(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_does_not_exist())
    }

    /// How many mistakes were shown already.
    #[must_use]
    pub(crate) fn shown(&self) -> usize {
        match self {
            Self::Shown(count) => *count,
            _ => 0,
        }
    }

    /// Whether there is such an object already.
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
            // Calico's tool adds `with error: <nil>` where there is no more to say.
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
    // Everything else in the metadata is for the store to say.
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

/// Creates an object, or updates it where it is there.
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

/// Updates an object that is there. A version in the object must be the stored one.
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

/// The object with the metadata that is stored, except for what a user may set.
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

/// Deletes an object; with a version, only that version of it.
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

/// Refuses what belongs to Calico or to Kubernetes.
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
