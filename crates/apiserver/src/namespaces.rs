//! Admission by namespace, like Kubernetes' plug-in NamespaceLifecycle: nothing is written in a missing namespace, and
//! nothing is created in one that is being deleted. Deletions always pass.

use crate::status::{Cause, Outcome, Refusal};
use kube_access::cluster::{Cluster, encode};
use kube_access::remembered::Remembered;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a namespace that was found is assumed to exist.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// The labels of a namespace.
pub(crate) type Labels = Arc<BTreeMap<String, String>>;

/// Looks up namespaces in Kubernetes.
#[derive(Debug)]
pub struct Namespaces {
    cluster: Option<Cluster>,
    known: Remembered<String, Labels>,
}

impl Namespaces {
    /// Uses this API; without one every namespace is assumed to exist.
    #[must_use]
    pub fn new(cluster: Option<Cluster>) -> Self {
        Self { cluster, known: Remembered::new(4096) }
    }

    /// Checks that objects can be created in a namespace.
    ///
    /// # Errors
    /// When they cannot.
    pub async fn check_new(&self, plural: &str, name: &str, namespace: &str) -> Outcome<()> {
        if self.is_ending(namespace).await? { Err(ending(plural, name, namespace)) } else { Ok(()) }
    }

    /// Checks that objects can be changed in a namespace.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub async fn check_known(&self, namespace: &str) -> Outcome<()> {
        self.is_ending(namespace).await.map(|_| ())
    }

    /// The labels of a namespace; empty if it does not exist.
    ///
    /// # Errors
    /// When Kubernetes cannot be asked.
    pub async fn labels(&self, namespace: &str) -> Outcome<Labels> {
        match self.look(namespace).await {
            Ok((_, labels)) => Ok(labels),
            Err(refusal) if refusal.code == 404 => Ok(Labels::default()),
            Err(refusal) => Err(refusal),
        }
    }

    async fn is_ending(&self, namespace: &str) -> Outcome<bool> {
        Ok(self.look(namespace).await?.0)
    }

    /// Whether a namespace is being deleted, and its labels.
    async fn look(&self, namespace: &str) -> Outcome<(bool, Labels)> {
        let Some(cluster) = &self.cluster else { return Ok((false, Labels::default())) };
        if namespace.is_empty() {
            return Ok((false, Labels::default()));
        }
        if let Some(known) = self.known.get(&namespace.to_owned()) {
            return Ok((false, known));
        }
        let path = format!("/api/v1/namespaces/{}", encode(namespace));
        let found: Result<Value, _> = cluster.get("read a namespace", &path).await;
        match found {
            Ok(found) => {
                let is_ending = found.pointer("/metadata/deletionTimestamp").is_some();
                let labels =
                    found.pointer("/metadata/labels").and_then(|labels| BTreeMap::deserialize(labels).ok());
                let labels = Labels::new(labels.unwrap_or_default());
                if !is_ending {
                    self.known.put(namespace.to_owned(), Arc::clone(&labels), GOOD_FOR);
                }
                Ok((is_ending, labels))
            }
            Err(error) if error.is_not_found() => Err(Refusal::no_namespace(namespace)),
            Err(error) => {
                Err(Refusal::internal(format!("cannot check whether the namespace exists: {error}")))
            }
        }
    }
}

/// The refusal for a terminating namespace, worded like Kubernetes' servers.
fn ending(plural: &str, name: &str, namespace: &str) -> Box<Refusal> {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut refusal = Refusal::forbidden(plural, name, &why);
    refusal.causes.push(Cause {
        reason: "NamespaceTerminating",
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    });
    refusal
}
