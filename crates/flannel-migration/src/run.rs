//! The whole migration, in order. Every step can be repeated; what is left to do is read from labels each time.

use crate::calico::{CalicoError, CalicoSide};
use crate::config::{CANAL, FlannelConfig, FlannelConfigError, FlannelNetwork};
use crate::facts::{NodeFacts, container, container_variable};
use crate::kubernetes::{KubernetesError, KubernetesSide, check_tunnel, read_subnet, remove_flannel};
use crate::plan::{NETWORK_LABEL, NodeStep, PAUSE_LABEL, PROGRESS_LABEL, Stage, order, pause, steps};
use client::Client;
use daemon::Shutdown;
use ipam::Ipam;
use kube_access::cluster::Cluster;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The label that makes an add-on manager keep an object in place.
const ADDON_LABEL: &str = "addonmanager.kubernetes.io/mode";
/// The ConfigMap that keeps flannel's settings for a restarted controller.
const CONFIG_MAP: &str = "flannel-migration-config";
const CONFIG_KEY: &str = "flannel_subnet_env";
/// The ConfigMap that sets calico-node's MTU.
const CALICO_CONFIG_MAP: &str = "calico-config";
const MTU_KEY: &str = "veth_mtu";

/// Twice the time that the kubelet takes to notice a changed CNI configuration.
const KUBELET_PAUSE: Duration = Duration::from_secs(10);

/// Why the migration stopped.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A step in Kubernetes failed.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// A step on Calico's resources failed.
    #[error(transparent)]
    Calico(#[from] CalicoError),
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] FlannelConfigError),
    /// calico-node's DaemonSet does not meet the requirements.
    #[error("DaemonSet {namespace}/{name} {problem}")]
    DaemonSet {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A step on a node failed.
    #[error("node {node}: cannot {step}: {source}")]
    Node {
        /// The node.
        node: String,
        /// The step.
        step: NodeStep,
        /// The error that stopped the work on this node.
        #[source]
        source: Box<MigrationError>,
    },
}

type Result<T> = std::result::Result<T, MigrationError>;

/// The migration controller.
#[derive(Debug)]
pub struct FlannelMigration {
    config: FlannelConfig,
    calico: CalicoSide,
    cluster: Cluster,
    kubelet_pause: Duration,
}

/// The parts of calico-node's DaemonSet that the migration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CalicoNode {
    image: String,
    cni_file: String,
}

impl FlannelMigration {
    /// Prepares the migration; changes nothing yet.
    #[must_use]
    pub fn new(client: Client, cluster: Cluster, config: FlannelConfig) -> Self {
        let ipam = Ipam::new(Arc::clone(client.backend()));
        Self { config, calico: CalicoSide { client, ipam }, cluster, kubelet_pause: KUBELET_PAUSE }
    }

    /// Sets another pause for the kubelet, for tests.
    #[must_use]
    pub fn with_kubelet_pause(mut self, pause: Duration) -> Self {
        self.kubelet_pause = pause;
        self
    }

    /// Migrates the whole cluster. Returns false if there is nothing to migrate.
    ///
    /// # Errors
    /// When a step failed. A new start resumes there.
    pub async fn migrate(&mut self, kubernetes: &KubernetesSide) -> Result<bool> {
        if !self.is_due(kubernetes).await? {
            return Ok(false);
        }
        let calico_node = self.calico_node(kubernetes).await?;
        let network = self.network(kubernetes, &calico_node).await?;
        let namespace = &self.config.calico_namespace;
        kubernetes.set_config(namespace, CALICO_CONFIG_MAP, MTU_KEY, &network.mtu.to_string()).await?;

        // Felix must not handle flannel's packets before it knows flannel's tunnels.
        self.calico.set_vxlan(Some(false)).await?;
        self.calico.make_pools(&self.config, &network).await?;
        self.calico.set_vxlan_parameters(self.config.vni, self.config.port, network.mtu).await?;

        let nodes = kubernetes.nodes().await?;
        let mut known: BTreeSet<String> = nodes.iter().map(|node| node.name.clone()).collect();
        let work: Vec<NodeFacts> = order(&nodes, &self.config.own_node).into_iter().cloned().collect();
        for node in &work {
            if Stage::of(node) == Stage::Unlabelled {
                kubernetes.label(&node.name, NETWORK_LABEL, Some("flannel")).await?;
            }
        }
        for node in &work {
            self.calico.take_node(node, &self.config).await?;
        }
        self.calico.set_vxlan(None).await?;

        // From here on, new nodes no longer get flannel.
        let (flannel_namespace, flannel) = (&self.config.flannel_namespace, &self.config.flannel_daemonset);
        kubernetes.select_nodes(flannel_namespace, flannel, NETWORK_LABEL, "flannel", true).await?;
        for (place, node) in work.iter().enumerate() {
            self.welcome_new_nodes(kubernetes, &mut known).await?;
            tracing::info!(node = node.name, place = place + 1, of = work.len(), "moving a node to Calico");
            self.migrate_node(kubernetes, &node.name, &calico_node).await?;
        }
        self.welcome_new_nodes(kubernetes, &mut known).await?;
        self.finish(kubernetes).await?;
        Ok(true)
    }

    /// Whether there is anything to migrate. Fails if migrating is not possible now.
    async fn is_due(&mut self, kubernetes: &KubernetesSide) -> Result<bool> {
        let namespace = &self.config.variables.flannel_namespace;
        if kubernetes.daemonset(namespace, CANAL).await?.is_some() {
            tracing::info!("this is Canal: flannel's network with Calico's policy");
            self.config.variables.flannel_daemonset = CANAL.to_owned();
        }
        let name = &self.config.flannel_daemonset;
        let Some(set) = kubernetes.daemonset(namespace, name).await? else {
            tracing::info!(
                daemonset = format!("{namespace}/{name}"),
                "it does not exist: there is nothing to migrate"
            );
            return Ok(false);
        };
        if let Some(mode) = set["metadata"]["labels"][ADDON_LABEL].as_str() {
            tracing::warn!(
                daemonset = format!("{namespace}/{name}"),
                mode,
                "an add-on manager keeps this DaemonSet in place and would undo the migration: remove its label {ADDON_LABEL} first"
            );
            return Ok(false);
        }
        Ok(true)
    }

    async fn calico_node(&self, kubernetes: &KubernetesSide) -> Result<CalicoNode> {
        let (namespace, name) = (&self.config.calico_namespace, &self.config.calico_daemonset);
        let wrong = |problem: &str| MigrationError::DaemonSet {
            namespace: namespace.clone(),
            name: name.clone(),
            problem: problem.to_owned(),
        };
        let set = kubernetes.daemonset(namespace, name).await?.ok_or_else(|| wrong("does not exist"))?;
        let image = container(&set, "calico-node").and_then(|found| found["image"].as_str());
        let image = image.ok_or_else(|| wrong("has no container calico-node"))?;
        let install = container(&set, "install-cni").ok_or_else(|| wrong("has no container install-cni"))?;
        let cni_file = container_variable(install, "CNI_CONF_NAME");
        let cni_file =
            cni_file.ok_or_else(|| wrong("has no variable CNI_CONF_NAME in its container install-cni"))?;
        Ok(CalicoNode { image: image.to_owned(), cni_file: cni_file.to_owned() })
    }

    /// flannel's own network settings: kept from an earlier start, or read now and kept.
    async fn network(
        &mut self,
        kubernetes: &KubernetesSide,
        calico_node: &CalicoNode,
    ) -> Result<FlannelNetwork> {
        if let Some(network) = &self.config.network {
            return Ok(network.clone());
        }
        let namespace = &self.config.calico_namespace;
        let text = kubernetes.run(&read_subnet(&self.config), namespace, &calico_node.image).await?;
        let network = FlannelNetwork::parse(&text)?;
        // flannel may be gone when the controller is restarted.
        kubernetes.set_config(namespace, CONFIG_MAP, CONFIG_KEY, &text.replace('\n', ";")).await?;
        self.config.network = Some(network.clone());
        Ok(network)
    }

    /// Lets nodes that joined in the meantime use Calico at once.
    async fn welcome_new_nodes(
        &self,
        kubernetes: &KubernetesSide,
        known: &mut BTreeSet<String>,
    ) -> Result<()> {
        for node in kubernetes.nodes().await? {
            if known.insert(node.name.clone()) && node.label(NETWORK_LABEL).is_none() {
                tracing::info!(node = node.name, "a new node uses Calico");
                self.calico.take_node(&node, &self.config).await?;
                kubernetes.label(&node.name, NETWORK_LABEL, Some("calico")).await?;
            }
        }
        Ok(())
    }

    async fn migrate_node(
        &self,
        kubernetes: &KubernetesSide,
        name: &str,
        calico_node: &CalicoNode,
    ) -> Result<()> {
        let Some(node) = kubernetes.node(name).await? else {
            tracing::info!(node = name, "the node is gone");
            return Ok(());
        };
        self.hold(kubernetes, &node).await?;
        for step in steps(Stage::of(&node)) {
            tracing::info!(node = name, %step, "next step");
            let Err(source) = self.step(kubernetes, name, step, calico_node).await else { continue };
            let is_stopped = matches!(source, MigrationError::Kubernetes(KubernetesError::Stopped));
            if !is_stopped && kubernetes.node(name).await?.is_none() {
                tracing::info!(node = name, "the node was deleted in the meantime");
                return Ok(());
            }
            return Err(MigrationError::Node { node: name.to_owned(), step, source: Box::new(source) });
        }
        Ok(())
    }

    /// Waits while a label pauses the work on a node.
    async fn hold(&self, kubernetes: &KubernetesSide, node: &NodeFacts) -> Result<()> {
        let Some(seconds) = pause(node) else { return Ok(()) };
        tracing::info!(node = node.name, seconds, "the label {PAUSE_LABEL} pauses the work on the node");
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            let is_held =
                kubernetes.node(&node.name).await?.is_some_and(|node| node.label(PAUSE_LABEL).is_some());
            if !is_held {
                break;
            }
            kubernetes.sleep(Duration::from_secs(1)).await?;
        }
        Ok(())
    }

    async fn step(
        &self,
        kubernetes: &KubernetesSide,
        node: &str,
        step: NodeStep,
        calico_node: &CalicoNode,
    ) -> Result<()> {
        let namespace = &self.config.calico_namespace;
        let image = &calico_node.image;
        match step {
            NodeStep::MarkInProgress => kubernetes.label(node, PROGRESS_LABEL, Some("true")).await?,
            NodeStep::Cordon => kubernetes.cordon(node, true).await?,
            NodeStep::Drain => kubernetes.drain(node).await?,
            NodeStep::LabelNone => kubernetes.label(node, NETWORK_LABEL, Some("none")).await?,
            NodeStep::RemoveFlannel => {
                let errand = remove_flannel(&self.config, node, &calico_node.cni_file);
                kubernetes.run(&errand, namespace, image).await?;
                kubernetes.sleep(self.kubelet_pause).await?;
            }
            NodeStep::DeletePods => kubernetes.delete_networked_pods(node).await?,
            NodeStep::LabelCalico => kubernetes.label(node, NETWORK_LABEL, Some("calico")).await?,
            NodeStep::WaitForCalico => kubernetes.wait_for_calico(namespace, node).await?,
            NodeStep::CheckTunnel => {
                kubernetes.run(&check_tunnel(&self.config, node), namespace, image).await?;
            }
            NodeStep::Uncordon => kubernetes.cordon(node, false).await?,
            NodeStep::MarkDone => kubernetes.label(node, PROGRESS_LABEL, None).await?,
        }
        Ok(())
    }

    /// Removes flannel and everything that only the migration needed.
    async fn finish(&self, kubernetes: &KubernetesSide) -> Result<()> {
        let config = &self.config;
        kubernetes.delete_daemonset(&config.flannel_namespace, &config.flannel_daemonset).await?;
        let (namespace, name) = (&config.calico_namespace, &config.calico_daemonset);
        kubernetes.select_nodes(namespace, name, NETWORK_LABEL, "calico", false).await?;
        for node in kubernetes.nodes().await? {
            if node.label(NETWORK_LABEL).is_some() {
                kubernetes.label(&node.name, NETWORK_LABEL, None).await?;
            }
        }
        Ok(())
    }
}

impl FlannelMigration {
    /// Runs the migration once, with the pauses that the settings request. Ends early on shutdown.
    ///
    /// # Errors
    /// When a step failed.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<()> {
        let kubernetes = KubernetesSide { cluster: self.cluster.clone(), shutdown: shutdown.clone() };
        if !shutdown.sleep(Duration::from_secs(self.config.wait_before_start)).await {
            return Ok(());
        }
        let outcome = self.migrate(&kubernetes).await;
        if shutdown.is_requested() {
            return Ok(());
        }
        match &outcome {
            Ok(true) => tracing::info!("the whole cluster uses Calico"),
            Ok(false) => tracing::info!("no migration"),
            Err(error) => {
                tracing::error!(%error, "the migration stopped; start it again to continue");
            }
        }
        shutdown.sleep(Duration::from_secs(self.config.wait_before_exit)).await;
        outcome.map(drop)
    }
}
