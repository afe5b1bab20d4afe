//! The requests that operations consist of: objects by kind and name are applied, read and deleted.
//!
//! Writes are server-side applies: fields of other managers are not taken over unless requested, and the server refuses
//! mistyped fields.

use crate::FIELD_MANAGER;
use anyhow::{Context as _, Result, bail};
use daemon::{Environment, SystemEnvironment, Variables};
use http::Method;
use kube_access::KubeAccess;
use kube_access::cluster::{Cluster, ClusterError, MERGE_PATCH, encode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where kinds are served: the kind, the group and version, the resource name in the path.
const KINDS: [(&str, &str, &str); 14] = [
    ("APIService", "/apis/apiregistration.k8s.io/v1", "apiservices"),
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    ("ConfigMap", "/api/v1", "configmaps"),
    ("CustomResourceDefinition", "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    ("DaemonSet", "/apis/apps/v1", "daemonsets"),
    ("Deployment", "/apis/apps/v1", "deployments"),
    ("Namespace", "/api/v1", "namespaces"),
    ("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies"),
    ("Pod", "/api/v1", "pods"),
    ("PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets"),
    ("Secret", "/api/v1", "secrets"),
    ("Service", "/api/v1", "services"),
    ("ServiceAccount", "/api/v1", "serviceaccounts"),
];

/// One object, by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Reference {
    /// References a namespaced or, with an empty namespace, a cluster-scoped object.
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The reference of an object.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        let text = |place: &str| value.pointer(place).and_then(Value::as_str).unwrap_or_default();
        Self::new(text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    }

    /// The path of the object.
    ///
    /// # Errors
    /// When the kind is not one of ours.
    pub fn path(&self) -> Result<String> {
        let Some((_, prefix, plural)) = KINDS.into_iter().find(|(kind, _, _)| *kind == self.kind) else {
            bail!("{self}: a kind that this command does not handle");
        };
        let name = encode(&self.name);
        Ok(match self.namespace.as_str() {
            "" => format!("{prefix}/{plural}/{name}"),
            namespace => format!("{prefix}/namespaces/{}/{plural}/{name}", encode(namespace)),
        })
    }
}

/// For display: `DaemonSet kube-system/calico-node`.
impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// The effect of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Done {
    /// It did not exist.
    Created,
    /// It was different.
    Changed,
    /// It was the same already.
    Unchanged,
}

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Whether the server only simulates the write.
    pub dry_run: bool,
    /// Whether to take over fields of other managers.
    pub force: bool,
}

/// A cluster to operate on.
#[derive(Clone, Debug)]
pub struct Target {
    cluster: Cluster,
    access: KubeAccess,
}

impl Target {
    /// Opens the cluster of a kubeconfig: the given file, `KUBECONFIG`, `~/.kube/config`, or the pod's own account,
    /// whichever comes first.
    ///
    /// # Errors
    /// When there is none, or it cannot be used.
    pub async fn open(kubeconfig: Option<&Path>) -> Result<Self> {
        let system = SystemEnvironment;
        let chosen = kubeconfig.map(Path::to_owned).or_else(|| default_kubeconfig(&system));
        let access = match chosen {
            Some(path) => {
                let environment = Variables::new([("KUBECONFIG", path.as_os_str())]);
                KubeAccess::from_environment(&environment).await?
            }
            None => KubeAccess::from_environment(&system).await?,
        };
        let access = access.context(
            "no cluster: none of --kubeconfig, KUBECONFIG and ~/.kube/config names one, and this process is not in a pod",
        )?;
        Ok(Self { cluster: Cluster::new(&access), access })
    }

    /// The address of the API.
    #[must_use]
    pub fn server(&self) -> &str {
        self.access.server()
    }

    /// The newest lines of a pod's log.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn log(&self, namespace: &str, pod: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{}/pods/{}/log?tailLines=100", encode(namespace), encode(pod));
        let request = http::Request::get(path).body(Vec::new())?;
        let text = self.access.client().request_text(request);
        text.await.with_context(|| format!("cannot read the log of pod {namespace}/{pod}"))
    }

    /// Reads the object at a path; `None` if the kind or the object does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn look(&self, path: &str) -> Result<Option<Value>> {
        match self.cluster.get::<Value>(&format!("read {path}"), path).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(&self, reference: &Reference) -> Result<Option<Value>> {
        self.look(&reference.path()?).await
    }

    /// The items of the list at a path; empty if the kind does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.look(path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Applies an object.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn apply(&self, object: &Value, mode: Mode) -> Result<Done> {
        let reference = Reference::of(object);
        let before = self.get(&reference).await?;
        let dry_run = if mode.dry_run { "&dryRun=All" } else { "" };
        let path = format!(
            "{}?fieldManager={FIELD_MANAGER}&force={}&fieldValidation=Strict{dry_run}",
            reference.path()?,
            mode.force
        );
        let what = format!("apply {reference}");
        let sent: Result<Value, ClusterError> =
            self.cluster.send(&what, Method::PATCH, &path, object, "application/apply-patch+yaml").await;
        let after = match sent {
            Ok(after) => after,
            // Its namespace would be created first.
            Err(error) if mode.dry_run && error.is_not_found() => return Ok(Done::Created),
            Err(error) if error.is_conflict() => {
                return Err(error).context(
                    "another manager owns some of its fields: `kubectl get -o yaml --show-managed-fields` shows which; take \
                     them over with --force-conflicts",
                );
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match before {
            None => Done::Created,
            // A dry run gives no new revision: compare the objects themselves.
            Some(before) if without_bookkeeping(&before) == without_bookkeeping(&after) => Done::Unchanged,
            Some(_) => Done::Changed,
        })
    }

    /// Changes the object at a path by a merge patch.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn patch_path(&self, path: &str, patch: &Value) -> Result<Value> {
        Ok(self.cluster.send(&format!("change {path}"), Method::PATCH, path, patch, MERGE_PATCH).await?)
    }

    /// Changes an object by a strategic merge patch, which identifies containers by name.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn patch_strategically(&self, reference: &Reference, patch: &Value) -> Result<Value> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", reference.path()?);
        let kind = "application/strategic-merge-patch+json";
        Ok(self.cluster.send(&format!("change {reference}"), Method::PATCH, &path, patch, kind).await?)
    }

    /// Creates an object at the path of its collection and returns the server's version of it.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn create(&self, what: &str, path: &str, object: &Value) -> Result<Value> {
        Ok(self.cluster.create(what, path, object).await?)
    }

    /// Deletes the object at a path in the background: dependents are not waited for, and no finalizer is added.
    /// Returns whether it existed.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn delete_path(&self, path: &str) -> Result<bool> {
        let body = json!({"propagationPolicy": "Background"});
        let sent: Result<Value, ClusterError> = self
            .cluster
            .send(&format!("delete {path}"), Method::DELETE, path, &body, "application/json")
            .await;
        match sent {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes all finalizers from the object at a path.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn strip_finalizers(&self, path: &str) -> Result<()> {
        let patch = json!({"metadata": {"finalizers": null}});
        let what = format!("take the finalizers from {path}");
        let sent: Result<Value, ClusterError> =
            self.cluster.send(&what, Method::PATCH, path, &patch, MERGE_PATCH).await;
        match sent {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn default_kubeconfig(environment: &dyn Environment) -> Option<PathBuf> {
    if environment.variable("KUBECONFIG").is_some_and(|path| !path.is_empty()) {
        return None;
    }
    let path = Path::new(&environment.variable("HOME")?).join(".kube/config");
    environment.exists(&path).then_some(path)
}

/// An object without fields that change by themselves.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
            metadata.remove(name);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_objects() {
        let path = |kind, namespace, name| Reference::new(kind, namespace, name).path().unwrap();
        assert_eq!(
            path("ClusterRole", "", "calico-node"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/calico-node"
        );
        assert_eq!(
            path("ConfigMap", "kube-system", "a/b"),
            "/api/v1/namespaces/kube-system/configmaps/a%2Fb"
        );
        assert!(Reference::new("Widget", "", "x").path().is_err());
        let mut options = manifests::Options::new(manifests::Like::CalicoTypha, "r", "t");
        options.crds = true;
        for object in manifests::all(&options) {
            Reference::of(&object.value).path().unwrap();
        }
    }
}
