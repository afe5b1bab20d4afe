//! Nodes: cleanup after deleted ones, and labels and host endpoints of existing ones.
//!
//! | part | datastore | task |
//! |---|---|---|
//! | deletion | etcd | deletes the Calico node whose Kubernetes node is gone, with everything that belongs to it |
//! | [`labels`] | etcd | copies labels of the Kubernetes node to the Calico node |
//! | [`host_endpoints`] | both | creates endpoints for the node's own interfaces, and removes unwanted ones |
//!
//! (Addresses left behind by nodes and pods are collected elsewhere.) The three parts share one view of Calico's nodes,
//! maintained by the feed, and one queue. Before anything is deleted, its source is checked once more.

pub(crate) mod host_endpoints;
pub(crate) mod labels;

use crate::config::NodeConfig;
use crate::controller::{Context, Controller};
use crate::informer::kinds::Node as KubernetesNode;
use crate::informer::{Informer, ObjectKey, Slim as _};
use crate::queue::{Outcome, RETRY, WorkQueue};
use api::meta::StringMap;
use api::words::KUBERNETES;
use api::words::node::KUBE_LABELS;
use api::{HostEndpoint, HostEndpointSpec, Kind, Node, NodeSpec, Resource};
use async_trait::async_trait;
use client::DeleteOptions;
use daemon::Shutdown;
use host_endpoints::{NodeFacts, Step, is_ours};
use model::ListOptions;
use model::feed::{FeedEntry, Status};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often everything is checked.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// How many nodes are handled concurrently.
const WORKERS: usize = 4;

/// A check to do. Each names a Calico node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    /// Does its Kubernetes node still exist?
    Existence(String),
    /// Does it have the labels of its Kubernetes node?
    Labels(String),
    /// Does it have the desired endpoints?
    HostEndpoints(String),
}

/// The known state of a Calico node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    /// Its name in Kubernetes; empty if it is not a Kubernetes node.
    kubernetes_name: String,
    /// For copying labels: the labels, and the annotation that belongs to them.
    labels: Option<(StringMap, Option<String>)>,
    /// For host endpoints.
    facts: Option<NodeFacts>,
}

/// The known state of Calico's data.
#[derive(Debug, Default)]
struct View {
    in_sync: bool,
    nodes: BTreeMap<String, Known>,
    /// Calico nodes by their names in Kubernetes.
    by_kubernetes_name: BTreeMap<String, String>,
    /// Our endpoints by node and name.
    endpoints: BTreeMap<String, BTreeMap<String, HostEndpoint>>,
}

/// The controller.
pub(crate) struct Nodes {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    config: NodeConfig,
    informer: Option<Informer<KubernetesNode>>,
    queue: WorkQueue<Task>,
    view: Mutex<View>,
}

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    Datastore(#[from] client::Error),
    #[error(transparent)]
    Cluster(#[from] kube_access::cluster::ClusterError),
}

impl Nodes {
    /// Creates the controller, ready to run. It follows only what the configuration needs.
    #[must_use]
    pub(crate) fn new(context: &Context, config: NodeConfig) -> Self {
        let needs_kubernetes = config.sync_labels || config.delete_nodes;
        let needs_nodes = needs_kubernetes || config.host_endpoints.auto_create;
        let inner = Arc::new(Inner {
            informer: needs_kubernetes.then(|| context.informers.of::<KubernetesNode>()),
            context: context.clone(),
            config,
            queue: WorkQueue::new(RETRY),
            view: Mutex::default(),
        });
        let follower = Arc::clone(&inner);
        if let Some(informer) = &inner.informer {
            informer.subscribe(move |change| follower.hear_kubernetes(&change.key, change.new.is_none()));
        }
        let follower = Arc::clone(&inner);
        if needs_nodes {
            let follower = Arc::clone(&inner);
            let nodes = ListOptions::resources(Kind::Node);
            context.feed.follow(nodes, move |update| follower.hear_node(update));
        }
        let endpoints = ListOptions::resources(Kind::HostEndpoint);
        context.feed.follow(endpoints, move |update| follower.hear_endpoint(update));
        let follower = Arc::clone(&inner);
        context.feed.on_status(move |status| follower.hear_status(status));
        Self { inner }
    }
}

#[async_trait]
impl Controller for Nodes {
    fn name(&self) -> &'static str {
        "Node"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        let inner = &self.inner;
        let work = async {
            if let Some(informer) = &inner.informer {
                informer.synced().await;
            }
            let everything = async {
                loop {
                    inner.look_at_everything();
                    tokio::time::sleep(PERIOD).await;
                }
            };
            let workers = futures::future::join_all((0..WORKERS).map(|_| inner.work()));
            let ((), _) = futures::future::join(everything, workers).await;
        };
        tokio::select! {
            () = work => {}
            () = shutdown.requested() => {}
        }
        Ok(())
    }
}

impl Inner {
    /// Handles a new, changed or deleted Kubernetes node.
    fn hear_kubernetes(&self, key: &ObjectKey, is_gone: bool) {
        let view = self.view();
        let Some(name) = view.by_kubernetes_name.get(&*key.name).filter(|_| view.in_sync) else { return };
        if is_gone && self.config.delete_nodes {
            self.queue.add(Task::Existence(name.clone()));
        } else if !is_gone && self.config.sync_labels {
            self.queue.add(Task::Labels(name.clone()));
        }
    }

    /// Handles a new, changed or deleted Calico node.
    fn hear_node(&self, entry: &FeedEntry) {
        let FeedEntry::Resource(key, resource) = entry else { return };
        let mut view = self.view();
        let known = match resource.as_deref() {
            Some(Resource::Node(node)) => Some(self.keep(node)),
            _ => None,
        };
        let before = view.nodes.get(&key.name).cloned();
        if before == known {
            return;
        }
        if let Some(before) = &before {
            view.by_kubernetes_name.remove(&before.kubernetes_name);
        }
        match known {
            Some(known) => {
                if !known.kubernetes_name.is_empty() {
                    view.by_kubernetes_name.insert(known.kubernetes_name.clone(), key.name.clone());
                }
                view.nodes.insert(key.name.clone(), known);
            }
            None => drop(view.nodes.remove(&key.name)),
        }
        if view.in_sync {
            self.add_tasks(&key.name);
        }
    }

    fn keep(&self, node: &Node) -> Known {
        let metadata = &node.metadata;
        let labels = || (metadata.labels.clone(), metadata.annotations.get(KUBE_LABELS).cloned());
        Known {
            kubernetes_name: kubernetes_name_of(node).to_owned(),
            labels: self.config.sync_labels.then(labels),
            facts: self.config.host_endpoints.auto_create.then(|| NodeFacts::of(node)),
        }
    }

    /// Handles a new, changed or deleted host endpoint.
    fn hear_endpoint(&self, entry: &FeedEntry) {
        let FeedEntry::Resource(key, resource) = entry else { return };
        let mut view = self.view();
        let mut touched = view.forget_endpoint(&key.name);
        if let Some(Resource::HostEndpoint(endpoint)) = resource.as_deref()
            && is_ours(endpoint)
        {
            let endpoint = HostEndpoint::clone(endpoint);
            touched = Some(endpoint.spec.node.clone());
            view.remember_endpoint(endpoint);
        }
        if let Some(node) = touched.filter(|_| view.in_sync) {
            self.queue.add(Task::HostEndpoints(node));
        }
    }

    fn hear_status(&self, status: Status) {
        let is_in_sync = status == Status::InSync;
        let became = is_in_sync && !self.view().in_sync;
        self.view().in_sync = is_in_sync;
        if became {
            self.look_at_everything();
        }
    }

    fn look_at_everything(&self) {
        let names: Vec<String> = {
            let view = self.view();
            if !view.in_sync {
                return;
            }
            view.nodes.keys().chain(view.endpoints.keys()).cloned().collect()
        };
        for name in names {
            self.add_tasks(&name);
        }
    }

    fn add_tasks(&self, name: &str) {
        if self.config.delete_nodes {
            self.queue.add(Task::Existence(name.to_owned()));
        }
        if self.config.sync_labels {
            self.queue.add(Task::Labels(name.to_owned()));
        }
        self.queue.add(Task::HostEndpoints(name.to_owned()));
    }

    async fn work(&self) {
        loop {
            let task = self.queue.take().await;
            let outcome = match &task {
                Task::Existence(name) => self.check_existence(name).await,
                Task::Labels(name) => self.sync_labels(name).await,
                Task::HostEndpoints(name) => self.sync_endpoints(name).await,
            };
            let outcome = match outcome {
                Ok(()) => Outcome::Done,
                Err(error) => {
                    tracing::warn!(controller = "Node", ?task, %error, "trying again");
                    Outcome::Failed
                }
            };
            self.queue.finish(&task, outcome);
        }
    }

    /// Deletes a Calico node whose Kubernetes node is gone, after Kubernetes has confirmed that once more.
    async fn check_existence(&self, name: &str) -> Result<(), TaskError> {
        let Some(informer) = &self.informer else { return Ok(()) };
        let kubernetes_name = self.view().nodes.get(name).map(|known| known.kubernetes_name.clone());
        let Some(kubernetes_name) = kubernetes_name.filter(|name| !name.is_empty()) else { return Ok(()) };
        if informer.get(&ObjectKey::new("", &kubernetes_name)).is_some() {
            return Ok(());
        }
        let what = format!("look for node {kubernetes_name}");
        let path = KubernetesNode::COLLECTION.object("", &kubernetes_name);
        match self.context.cluster.get::<serde::de::IgnoredAny>(&what, &path).await {
            Err(error) if error.is_not_found() => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let nodes = self.context.client.resource::<NodeSpec>();
        let node = match nodes.get("", name).await {
            Ok(node) => node,
            Err(error) if error.is_does_not_exist() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if kubernetes_name_of(&node) != kubernetes_name {
            return Ok(());
        }
        match nodes.delete("", name, &DeleteOptions::at(&node.metadata.resource_version)).await {
            Ok(_) => tracing::info!(
                node = name,
                "its Kubernetes node no longer exists: deleted with everything that belonged to it"
            ),
            Err(error) if error.is_does_not_exist() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Updates the labels of a Calico node to match those of its Kubernetes node.
    async fn sync_labels(&self, name: &str) -> Result<(), TaskError> {
        let Some(informer) = &self.informer else { return Ok(()) };
        let Some(known) = self.view().nodes.get(name).cloned() else { return Ok(()) };
        let Some(source) = informer.get(&ObjectKey::new("", &known.kubernetes_name)) else { return Ok(()) };
        // The feed's state is enough to see that there is nothing to do, which is the usual case.
        if let Some((mut labels, annotation)) = known.labels {
            let mut annotations: StringMap =
                annotation.into_iter().map(|text| (KUBE_LABELS.to_owned(), text)).collect();
            if labels::bring_after(&mut labels, &mut annotations, &source.labels) == Ok(false) {
                return Ok(());
            }
        }
        let nodes = self.context.client.resource::<NodeSpec>();
        let outcome = nodes
            .update_with_retry("", name, |node| {
                let metadata = &mut node.metadata;
                match labels::bring_after(&mut metadata.labels, &mut metadata.annotations, &source.labels) {
                    Ok(changed) => changed,
                    Err(reason) => {
                        tracing::error!(node = name, reason, "cannot copy its labels from Kubernetes");
                        false
                    }
                }
            })
            .await;
        match outcome {
            Err(error) if error.is_does_not_exist() => Ok(()),
            outcome => {
                outcome?;
                Ok(())
            }
        }
    }

    /// Creates, updates and deletes the endpoints of a node.
    async fn sync_endpoints(&self, name: &str) -> Result<(), TaskError> {
        let (facts, actual) = {
            let view = self.view();
            let facts = view.nodes.get(name).and_then(|known| known.facts.clone());
            (facts, view.endpoints.get(name).cloned().unwrap_or_default())
        };
        let desired = match &facts {
            Some(facts) => match host_endpoints::desired(&self.config.host_endpoints, facts) {
                Ok(desired) => desired,
                Err(reason) => {
                    tracing::error!(node = name, reason, "cannot determine its host endpoints");
                    return Ok(());
                }
            },
            None => BTreeMap::new(),
        };
        let steps = host_endpoints::steps(desired, &actual);
        if steps.is_empty() {
            return Ok(());
        }
        // Endpoints are deleted with their node only if it is really gone: an unreadable node is still protected by
        // them.
        if self.config.host_endpoints.auto_create && facts.is_none() {
            match self.context.client.resource::<NodeSpec>().get("", name).await {
                Err(error) if error.is_does_not_exist() => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        for step in steps {
            self.carry_out(step).await?;
        }
        Ok(())
    }

    async fn carry_out(&self, step: Step) -> Result<(), TaskError> {
        let endpoints = self.context.client.resource::<HostEndpointSpec>();
        let stored = match step {
            Step::Create(endpoint) => match endpoints.create(endpoint.clone()).await {
                Err(error) if error.is_already_exists() => {
                    let there = endpoints.get("", &endpoint.metadata.name).await?;
                    if !is_ours(&there) {
                        let name = &endpoint.metadata.name;
                        tracing::warn!(name, "another host endpoint has this name: it is kept");
                        return Ok(());
                    }
                    // It is ours but not in the feed yet: check again once it is known.
                    self.queue.add(Task::HostEndpoints(there.spec.node.clone()));
                    there
                }
                outcome => outcome?,
            },
            Step::Update(endpoint) => endpoints.update(endpoint).await?,
            Step::Delete(endpoint) => {
                let metadata = &endpoint.metadata;
                let options = DeleteOptions::at(&metadata.resource_version);
                match endpoints.delete("", &metadata.name, &options).await {
                    Err(error) if error.is_does_not_exist() => {}
                    outcome => drop(outcome?),
                }
                self.view().forget_endpoint(&metadata.name);
                return Ok(());
            }
        };
        // The feed reports it later; until then it must not be repeated.
        let mut view = self.view();
        view.forget_endpoint(&stored.metadata.name);
        view.remember_endpoint(stored);
        Ok(())
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a Calico node in Kubernetes; empty if it is not a Kubernetes node.
fn kubernetes_name_of(node: &Node) -> &str {
    let reference = node.spec.orch_refs.iter().find(|reference| reference.orchestrator == KUBERNETES);
    reference.map_or("", |reference| &reference.node_name)
}

impl View {
    fn remember_endpoint(&mut self, endpoint: HostEndpoint) {
        let of_node = self.endpoints.entry(endpoint.spec.node.clone()).or_default();
        of_node.insert(endpoint.metadata.name.clone(), endpoint);
    }

    /// Forgets an endpoint. Returns the node that it belonged to.
    fn forget_endpoint(&mut self, name: &str) -> Option<String> {
        let node = self.endpoints.iter().find(|(_, of_node)| of_node.contains_key(name))?.0.clone();
        if let Some(of_node) = self.endpoints.get_mut(&node) {
            of_node.remove(name);
            if of_node.is_empty() {
                self.endpoints.remove(&node);
            }
        }
        Some(node)
    }
}
