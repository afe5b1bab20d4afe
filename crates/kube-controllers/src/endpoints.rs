//! Copies labels and service accounts of pods to their workload endpoints in the etcd datastore. (In the Kubernetes
//! datastore the pod itself is the endpoint.)
//!
//! The CNI plugin creates and deletes endpoints with the pod's state at that time; later changes are applied here. This
//! controller never creates or deletes an endpoint.

use crate::config::SyncConfig;
use crate::controller::{Context, Controller};
use crate::informer::kinds::Pod;
use crate::informer::{Informer, ObjectKey};
use crate::profiles::metadata;
use crate::queue::{Outcome, RETRY, WorkQueue};
use crate::workers;
use api::meta::StringMap;
use api::words::KUBERNETES;
use api::{Kind, Resource, WorkloadEndpoint, WorkloadEndpointIdentifiers, kubernetes};
use async_trait::async_trait;
use daemon::Shutdown;
use datastore::{Backend, Error};
use futures::StreamExt as _;
use model::kubernetes::pod::{DEFAULT_INTERFACE_PREFIX, workload_endpoint};
use model::{KvPair, ListOptions, Value};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A node for pods that are not scheduled yet: the conversion needs one, but we do not use it.
const NO_NODE: &str = "unknown.node";

/// The part of an endpoint that follows its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The labels, with those that Calico adds.
    pub labels: StringMap,
    /// The service account.
    pub service_account: String,
}

/// The desired part of the endpoint of this pod; `None` if the pod has no endpoint.
#[must_use]
pub(crate) fn desired(key: &ObjectKey, pod: &Pod) -> Option<Followed> {
    if pod.host_network {
        return None;
    }
    let mut converted = kubernetes::Pod { metadata: metadata(key, &pod.labels), ..Default::default() };
    converted.spec.node_name = NO_NODE.to_owned();
    converted.spec.service_account_name = pod.service_account.to_string();
    match workload_endpoint(&converted, DEFAULT_INTERFACE_PREFIX).map(|converted| converted.pair.value) {
        Ok(Value::Resource(Resource::WorkloadEndpoint(endpoint))) => Some(Followed {
            labels: endpoint.metadata.labels,
            service_account: endpoint.spec.service_account_name,
        }),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(pod = %key, %error, "cannot determine the labels of its endpoint");
            None
        }
    }
}

/// Updates an endpoint to match its pod. Returns whether anything changed.
pub(crate) fn bring_after(endpoint: &mut WorkloadEndpoint, desired: &Followed) -> bool {
    let is_same = endpoint.metadata.labels == desired.labels
        && endpoint.spec.service_account_name == desired.service_account;
    if !is_same {
        endpoint.metadata.labels.clone_from(&desired.labels);
        endpoint.spec.service_account_name.clone_from(&desired.service_account);
    }
    !is_same
}

/// Whether the CNI plugin has created the pod's endpoint, as far as Kubernetes knows.
fn is_ready(pod: &Pod) -> bool {
    !pod.host_network && pod.has_address && !pod.node.is_empty()
}

fn is_same_to_policy(old: &Pod, new: &Pod) -> bool {
    old.labels == new.labels && old.service_account == new.service_account
}

/// The controller.
pub(crate) struct Endpoints {
    inner: Arc<Inner>,
    config: SyncConfig,
}

struct Inner {
    context: Context,
    informer: Informer<Pod>,
    queue: WorkQueue<ObjectKey>,
    is_live: AtomicBool,
    /// Pods that changed before they were ready.
    early: Mutex<HashSet<ObjectKey>>,
}

impl Endpoints {
    /// Creates the controller, ready to run.
    #[must_use]
    pub(crate) fn new(context: &Context, config: SyncConfig) -> Self {
        context.informers.want_pod_labels();
        let inner = Arc::new(Inner {
            context: context.clone(),
            informer: context.informers.of::<Pod>(),
            queue: WorkQueue::new(RETRY),
            is_live: AtomicBool::new(false),
            early: Mutex::default(),
        });
        let follower = Arc::clone(&inner);
        inner.informer.subscribe(move |change| {
            if follower.is_live.load(Ordering::Acquire) {
                follower.hear(&change.key, change.old.as_deref(), change.new.as_deref());
            }
        });
        Self { inner, config }
    }
}

#[async_trait]
impl Controller for Endpoints {
    fn name(&self) -> &'static str {
        "Pod"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        let inner = &self.inner;
        let work = async {
            inner.informer.synced().await;
            inner.is_live.store(true, Ordering::Release);
            workers::run("Pod", &self.config, || inner.work(), || inner.compare()).await;
        };
        tokio::select! {
            () = work => {}
            () = shutdown.requested() => {}
        }
        Ok(())
    }
}

impl Inner {
    /// Handles a new, changed or deleted pod. The CNI plugin reads a new pod itself.
    fn hear(&self, key: &ObjectKey, old: Option<&Pod>, new: Option<&Pod>) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(new) = new else {
            early.remove(key);
            return;
        };
        let Some(old) = old else { return };
        let changed = !is_same_to_policy(old, new);
        if is_ready(new) {
            if early.remove(key) || changed {
                self.queue.add(key.clone());
            }
        } else if changed && !new.host_network {
            early.insert(key.clone());
        }
    }

    /// Finds endpoints that do not match their pods.
    async fn compare(&self) -> Result<(usize, usize), Error> {
        let (mut checked, mut wrong) = (0, 0);
        let mut parts =
            self.backend().list_parts(&ListOptions::resources(Kind::WorkloadEndpoint), None).await?;
        while let Some(part) = parts.next().await {
            for entry in part?.items {
                let Some(mut endpoint) = endpoint_of_pod(entry) else { continue };
                let key = ObjectKey::new(&endpoint.metadata.namespace, &endpoint.spec.pod);
                let Some(pod) = self.informer.get(&key) else { continue };
                checked += 1;
                if desired(&key, &pod).is_some_and(|desired| bring_after(&mut endpoint, &desired)) {
                    wrong += 1;
                    self.queue.add(key);
                }
            }
        }
        Ok((checked, wrong))
    }

    async fn work(&self) {
        loop {
            let key = self.queue.take().await;
            let outcome = match self.sync(&key).await {
                Ok(()) => Outcome::Done,
                Err(error) => {
                    if error.is_conflict() {
                        tracing::debug!(pod = %key, %error, "another client was faster");
                    } else {
                        tracing::warn!(pod = %key, %error, "cannot update its endpoint; trying again");
                    }
                    Outcome::Failed
                }
            };
            self.queue.finish(&key, outcome);
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Result<(), Error> {
        let Some(pod) = self.informer.get(key) else { return Ok(()) };
        let Some(desired) = desired(key, &pod) else { return Ok(()) };
        for mut endpoint in self.endpoints(key, &pod).await? {
            if !bring_after(&mut endpoint, &desired) {
                continue;
            }
            match self.backend().update(&KvPair::resource(endpoint)).await {
                // The pod is being deleted.
                Err(error) if error.is_does_not_exist() => {}
                outcome => drop(outcome?),
            }
            tracing::debug!(pod = %key, "endpoint updated");
        }
        Ok(())
    }

    /// The endpoints of a pod: found by the prefix of their names or, if the node has different names in Calico and
    /// Kubernetes, among all in the namespace.
    async fn endpoints(&self, key: &ObjectKey, pod: &Pod) -> Result<Vec<WorkloadEndpoint>, Error> {
        let identifiers = WorkloadEndpointIdentifiers {
            node: pod.node.to_string(),
            orchestrator: KUBERNETES.to_owned(),
            pod: key.name.to_string(),
            ..WorkloadEndpointIdentifiers::default()
        };
        for prefix in [identifiers.prefix().ok(), None] {
            let list = ListOptions::Resource {
                kind: Kind::WorkloadEndpoint,
                namespace: Some(key.namespace.to_string()),
                name_is_prefix: prefix.is_some(),
                name: prefix,
            };
            let found: Vec<WorkloadEndpoint> = self
                .backend()
                .list(&list, None)
                .await?
                .items
                .into_iter()
                .filter_map(endpoint_of_pod)
                .filter(|endpoint| *endpoint.spec.pod == *key.name)
                .collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    fn backend(&self) -> &Arc<dyn Backend> {
        self.context.client.backend()
    }
}

/// Converts an entry to a pod's endpoint with its revision; `None` if it is not one.
fn endpoint_of_pod(entry: KvPair) -> Option<WorkloadEndpoint> {
    let Value::Resource(Resource::WorkloadEndpoint(mut endpoint)) = entry.value else { return None };
    endpoint.metadata.resource_version = entry.revision;
    (endpoint.spec.orchestrator == KUBERNETES).then_some(*endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::{Slim as _, Strings};

    fn pod(labels: &serde_json::Value, host_network: bool) -> (ObjectKey, Pod) {
        let wire = serde_json::json!({
            "metadata": {"namespace": "shop", "name": "web", "labels": labels},
            "spec": {"nodeName": "n", "hostNetwork": host_network, "serviceAccountName": "robot"},
        });
        let wire = serde_json::from_value(wire).expect("a pod");
        let taken = Pod::take(wire, &mut Strings::with_pod_labels());
        (taken.key, taken.object)
    }

    #[test]
    fn an_endpoint_has_its_pods_labels_and_calicos() {
        let (key, pod) = pod(&serde_json::json!({"app": "web"}), false);
        let desired = desired(&key, &pod).expect("an endpoint");
        let labels: Vec<String> =
            desired.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            labels,
            [
                "app=web",
                "projectcalico.org/namespace=shop",
                "projectcalico.org/orchestrator=k8s",
                "projectcalico.org/serviceaccount=robot",
            ]
        );
        let mut endpoint = WorkloadEndpoint::default();
        assert!(bring_after(&mut endpoint, &desired));
        assert!(!bring_after(&mut endpoint, &desired));
        assert_eq!(endpoint.spec.service_account_name, "robot");
        endpoint.metadata.labels.insert("app".to_owned(), "other".to_owned());
        assert!(bring_after(&mut endpoint, &desired));
    }

    #[test]
    fn pods_on_the_hosts_network_have_no_endpoint() {
        let (key, pod) = pod(&serde_json::json!({}), true);
        assert_eq!(desired(&key, &pod), None);
    }
}
