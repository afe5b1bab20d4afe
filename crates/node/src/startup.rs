//! `node startup`: prepares everything that must be in place before anything else runs on a node.
//!
//! In this order: wait for the datastore; upgrade address claims of an older version; write the node's resource with
//! the right addresses, which no other node may have; create the folders; create default pools and settings; write the
//! node's name where other programs look for it.
//!
//! The decisions are in [`addresses`], [`node_resource`], [`pools`] and [`defaults`], as functions of values; this file
//! reads their inputs and writes their results. A second start with the same input writes nothing to the datastore. Any
//! failed step stops the start-up: components started on half a configuration would cut off pods.

pub(crate) mod addresses;
pub(crate) mod defaults;
pub(crate) mod files;
pub(crate) mod node_resource;
pub(crate) mod pools;
pub(crate) mod registration;
mod wait;

use crate::context::{Context, ContextError};
use crate::environment::Backend;
use crate::host::HostError;
use addresses::AddressError;
use api::{BGPConfigurationSpec, FelixConfigurationSpec, IPAMConfigurationSpec, IPPoolSpec, Object};
use client::{Client, DatastoreType, ListQuery, OpenError, Storable};
use defaults::{Change, GLOBAL};
use ipam::Ipam;
use kube_access::KubeAccess;
use node_resource::{Conflict, UnreadableAddress};
use pools::{PoolError, PoolFacts};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long Kubernetes may take to answer: other parts of the node may not be running yet, and a longer wait would not
/// help.
const KUBERNETES_PATIENCE: Duration = Duration::from_secs(2);

/// How long the upgrade of old claims may take.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(90);

const SYSTEM_NAMESPACE: &str = "kube-system";
const KUBEADM_CONFIG: &str = "kubeadm-config";
const RANCHER_STATE: &str = "full-cluster-state";

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The datastore cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The datastore rejected our credentials.
    #[error(
        "the datastore rejects this node's credentials: {0}. Check ETCD_* or the service account's roles"
    )]
    Unauthorized(String),
    /// The datastore failed.
    #[error("{step}: {source}")]
    Datastore {
        /// The step.
        step: String,
        /// The error.
        #[source]
        source: client::Error,
    },
    /// Old claims could not be upgraded.
    #[error("cannot bring this node's claims on address blocks up to date: {0}")]
    Upgrade(String),
    /// The connection to Kubernetes cannot be prepared.
    #[error(transparent)]
    KubernetesConfig(#[from] kube_access::OpenError),
    /// Kubernetes returned an error.
    #[error(transparent)]
    Kubernetes(#[from] kube_access::ApiError),
    /// The state of the host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The node has no usable address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Another node has our address.
    #[error(
        "conflicting node detected: {}. Give each node its own address, or set DISABLE_NODE_IP_CHECK=true",
        listed(.0)
    )]
    Conflict(Vec<Conflict>),
    /// The address of another node cannot be parsed.
    #[error(transparent)]
    Unreadable(#[from] UnreadableAddress),
    /// The default pools cannot be created.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A file or folder cannot be created.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

fn listed(conflicts: &[Conflict]) -> String {
    conflicts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The result of a finished start-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The node's name.
    pub node_name: String,
    /// Whether the node's resource was written.
    pub node_written: bool,
}

/// Carries out the whole start-up.
///
/// # Errors
/// When a step fails; later steps are skipped.
pub async fn run(context: &Context) -> Result<Started, StartupError> {
    let node_name = context.node_name()?;
    tracing::info!(node = node_name, version = context.calico_version, "starting");
    let config = context.client_config()?;
    let client = if context.settings.wait_for_datastore {
        wait::for_datastore(&config).await?
    } else {
        tracing::info!("not waiting for the datastore");
        Client::open(&config).await?
    };
    // With host-local addresses there are no blocks, and nothing to upgrade.
    if !config.kubernetes.use_pod_cidr {
        upgrade(&client, &node_name).await?;
    }
    let cluster = Cluster::read(context, &node_name).await?;
    let node_written = registration::register(context, &client, &cluster, &node_name).await?;
    files::ensure_folders(context)?;
    ensure_pools(context, &client, &cluster).await?;
    ensure_defaults(context, &client, &cluster, config.datastore_type, &node_name).await?;
    files::write_node_name(context, &node_name)?;
    tracing::info!(node = node_name, "this node's name is known to the other programs");
    Ok(Started { node_name, node_written })
}

async fn upgrade(client: &Client, node_name: &str) -> Result<(), StartupError> {
    let ipam = Ipam::new(client.backend().clone());
    match tokio::time::timeout(UPGRADE_PATIENCE, ipam.upgrade_host(node_name)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(StartupError::Upgrade(error.to_string())),
        Err(_) => Err(StartupError::Upgrade(format!("not done within {} s", UPGRADE_PATIENCE.as_secs()))),
    }
}

/// Facts from Kubernetes, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// kubeadm's settings.
    pub kubeadm: Option<BTreeMap<String, String>>,
    /// Whether the cluster was created by Rancher.
    pub is_rancher: bool,
    /// The `InternalIP`s of this node; `None` without Kubernetes.
    pub internal_addresses: Option<Vec<String>>,
}

impl Cluster {
    /// Reads the facts from Kubernetes.
    ///
    /// # Errors
    /// When Kubernetes does not answer, or does not know this node.
    pub(crate) async fn read(context: &Context, node_name: &str) -> Result<Self, StartupError> {
        let Some(access) = KubeAccess::from_environment(&*context.environment).await? else {
            return Ok(Self::default());
        };
        let access = access.with_patience(KUBERNETES_PATIENCE);
        let name = context.kubernetes_node(node_name);
        let (kubeadm, rancher, internal_addresses) = tokio::join!(
            readable_config_map(&access, KUBEADM_CONFIG),
            readable_config_map(&access, RANCHER_STATE),
            internal_addresses(&access, &name),
        );
        Ok(Self {
            kubeadm: kubeadm?,
            is_rancher: rancher?.is_some(),
            internal_addresses: Some(internal_addresses?),
        })
    }
}

/// The `InternalIP`s of a node in Kubernetes.
pub(crate) async fn internal_addresses(
    access: &KubeAccess,
    node: &str,
) -> Result<Vec<String>, kube_access::ApiError> {
    let node = access.node(node).await?;
    let addresses = node.status.addresses.into_iter().filter(|address| address.kind == api::INTERNAL_IP);
    Ok(addresses.map(|address| address.address).collect())
}

/// Reads a ConfigMap of the system, if it exists and we have permission.
async fn readable_config_map(
    access: &KubeAccess,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, StartupError> {
    match access.config_map(SYSTEM_NAMESPACE, name).await {
        Ok(map) => Ok(Some(map)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.is_unauthorized() => {
            tracing::info!(%error, "treated as absent; no range of addresses is read from it");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn ensure_pools(context: &Context, client: &Client, cluster: &Cluster) -> Result<(), StartupError> {
    let pools = client.resource::<IPPoolSpec>();
    let mut facts = PoolFacts {
        kubeadm: cluster.kubeadm.clone(),
        host_has_ipv6: context.host.has_ipv6(),
        random: random_bytes(),
        ..PoolFacts::default()
    };
    if !context.settings.no_default_pools {
        let list = pools.list(&ListQuery::all()).await.map_err(failed("listing IP pools"))?;
        facts.existing = list.items.into_iter().map(|pool| pool.spec.cidr).collect();
        let interfaces = context.host.interfaces()?;
        facts.host_addresses =
            interfaces.iter().flat_map(|interface| &interface.addresses).map(ipnet::IpNet::addr).collect();
    }
    for pool in pools::plan(&context.settings, &facts)? {
        let (name, cidr) = (pool.metadata.name.clone(), pool.spec.cidr.clone());
        match pools.create(pool).await {
            Ok(_) => tracing::info!(name, %cidr, "created default pool"),
            // Another node was faster.
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(failed(&format!("creating IP pool {name} ({cidr})"))(error)),
        }
    }
    Ok(())
}

async fn ensure_defaults(
    context: &Context,
    client: &Client,
    cluster: &Cluster,
    datastore_type: DatastoreType,
    node_name: &str,
) -> Result<(), StartupError> {
    let cluster_type =
        defaults::cluster_type(&context.settings.cluster_type, cluster.kubeadm.is_some(), cluster.is_rancher);
    client
        .ensure_initialized(&context.calico_version, &cluster_type)
        .await
        .map_err(failed("initialising the datastore"))?;
    let stored = existing::<FelixConfigurationSpec>(client, GLOBAL).await?;
    carry_out(client, defaults::felix(stored)).await?;
    // On Kubernetes, Felix has no per-node settings.
    if datastore_type != DatastoreType::Kubernetes {
        let stored =
            existing::<FelixConfigurationSpec>(client, &defaults::node_settings_name(node_name)).await?;
        carry_out(client, defaults::felix_of_node(node_name, stored)).await?;
    }
    if existing::<BGPConfigurationSpec>(client, GLOBAL).await?.is_none() {
        let object = Object::<BGPConfigurationSpec>::new("", GLOBAL, BGPConfigurationSpec::default());
        carry_out(client, Change::Create(object)).await?;
    }
    match ensure_ipam_settings(client).await {
        // The roles of canal.yaml and calico-policy-only.yaml do not permit it: another program manages addresses
        // there.
        Err(StartupError::Unauthorized(reason)) => {
            tracing::warn!(
                reason,
                "not allowed to read or create the settings of address management: continuing without them"
            );
            Ok(())
        }
        outcome => outcome,
    }
}

async fn ensure_ipam_settings(client: &Client) -> Result<(), StartupError> {
    match existing::<IPAMConfigurationSpec>(client, GLOBAL).await? {
        Some(_) => Ok(()),
        None => carry_out(client, Change::Create(defaults::ipam())).await,
    }
}

/// Reads an object that may not exist.
async fn existing<S: Storable>(client: &Client, name: &str) -> Result<Option<Object<S>>, StartupError> {
    match client.resource::<S>().get("", name).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(failed(&format!("reading {} {name}", S::KIND))(error)),
    }
}

/// Stores an object. If another writer was faster, it wrote the same.
async fn carry_out<S: Storable>(client: &Client, change: Change<Object<S>>) -> Result<(), StartupError> {
    let (outcome, what) = match change {
        Change::None => return Ok(()),
        Change::Create(object) => {
            let what = format!("creating {} {}", S::KIND, object.metadata.name);
            (client.resource::<S>().create(object).await, what)
        }
        Change::Update(object) => {
            let what = format!("updating {} {}", S::KIND, object.metadata.name);
            (client.resource::<S>().update(object).await, what)
        }
    };
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() || error.is_conflict() => {
            tracing::info!(what, "another node was faster");
            Ok(())
        }
        Err(error) => Err(failed(&what)(error)),
    }
}

/// Converts the datastore's error for this step.
pub(crate) fn failed(step: &str) -> impl FnOnce(client::Error) -> StartupError {
    let step = step.to_owned();
    move |source| match source {
        client::Error::Unauthorized { reason } => StartupError::Unauthorized(format!("{step}: {reason}")),
        source => StartupError::Datastore { step, source },
    }
}

/// Random bytes, unique to this node.
fn random_bytes() -> [u8; 5] {
    // The fixed bits of a version 4 UUID come after these bytes.
    let bytes = uuid::Uuid::new_v4().into_bytes();
    [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]
}

/// Whether Calico manages the node's addresses.
pub(crate) fn has_networking(context: &Context) -> bool {
    context.settings.backend() != Backend::None
}
