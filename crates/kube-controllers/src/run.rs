//! The process: the connections that are opened once, and the controllers that depend on the configuration.
//!
//! ```text
//! environment ─► connections ─► datastore made ready ─► configuration ─► generation of controllers ─┐
//!                                                            ▲                                      │
//!                                                            └── it changed: all end, all start ◄────┘
//! ```
//!
//! Calico's program ends when its configuration changes and is restarted by a second process that waits for that. Here
//! only the controllers are created anew, and there is no second process.

mod generation;
mod health;

use crate::config::{Enabled, EnvironmentSettings, LogLevel, RunConfig, resource};
use crate::controller::Context;
use crate::feed::DataFeed;
use crate::informer::Informers;
use crate::leader::{Candidate, LeaderSettings};
use crate::status::StatusFile;
use anyhow::{Context as _, Result, bail};
use client::config::ClientConfig;
use client::{Client, DatastoreType};
use daemon::Environment;
use daemon::{Shutdown, ShutdownHandle};
use datastore::kubernetes::ApiGroup;
use flannel_migration::{FlannelConfig, FlannelMigration};
use generation::{Ended, Generation};
use kube_access::KubeAccess;
use kube_access::access::SERVICE_ACCOUNT_DIR;
use kube_access::cluster::Cluster;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use telemetry::{Health, Metrics, Pulse};
use telemetry_server::{Pages, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long the datastore may take to become ready, and the pause between attempts.
const START_PATIENCE: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_secs(5);

/// The namespace that is assumed if the pod's own is unknown.
const USUAL_NAMESPACE: &str = "calico-system";

/// The options on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The status file for probes.
    pub status_file: PathBuf,
    /// The port of the health pages; 0 disables them.
    pub health_port: u16,
    /// The lease for leader election; `None` without election.
    pub leader: Option<LeaderSettings>,
}

/// The process's surroundings, which tests replace.
pub struct Surroundings {
    /// Variables and files.
    pub environment: Box<dyn Environment + Send + Sync>,
    /// Sets the log level.
    pub set_log_level: Box<dyn Fn(LogLevel) + Send + Sync>,
}

/// State that lives as long as the process.
pub(crate) struct Base {
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) datastore: DatastoreType,
    /// Whether Calico's resources are custom resources of `projectcalico.org/v3`.
    pub(crate) has_v3_resources: bool,
    /// The namespace that we run in, which is also calico-node's.
    pub(crate) namespace: String,
    pub(crate) status: StatusFile,
    pub(crate) parts: Parts,
}

/// The parts shown on the health pages.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) startup: Pulse,
    pub(crate) datastore: Pulse,
    pub(crate) api_server: Pulse,
    pub(crate) informers: Pulse,
}

/// Runs until the shutdown.
///
/// # Errors
/// When the environment has unusable values, the datastore does not become ready, or a controller fails.
pub async fn run(options: Options, surroundings: Surroundings, shutdown: Shutdown) -> Result<()> {
    let environment = &*surroundings.environment;
    let settings = EnvironmentSettings::read(environment)?;
    let flannel = match settings.enabled == Some(Enabled::FlannelMigration) {
        true => Some(FlannelConfig::read(environment).context("settings of the migration from flannel")?),
        false => None,
    };
    if let Some(level) = settings.log_level {
        (surroundings.set_log_level)(level);
    }
    let (health, parts) = health_parts();
    if options.health_port != 0 {
        let listener = listen(options.health_port).await.context("serving health")?;
        tokio::spawn(serve(listener, Pages { health: Some(health), metrics: None }));
    }
    let base = Arc::new(open(&options, environment, parts).await?);
    tokio::select! {
        outcome = make_ready(&base) => outcome?,
        () = shutdown.requested() => return Ok(()),
    }
    if let Some(flannel) = flannel {
        return migrate_from_flannel(&base, flannel, shutdown).await;
    }

    let (config_sender, mut config) = watch::channel(None);
    let (follower_end, follower_shutdown) = ShutdownHandle::new();
    let follower =
        tokio::spawn(resource::follow(base.client.clone(), settings, config_sender, follower_shutdown));
    let outcome = match options.leader {
        None => work(&base, &surroundings, &mut config, &shutdown).await,
        Some(leader) => {
            let mut candidate = Candidate::new(base.cluster.clone(), leader);
            lead(&base, &surroundings, &mut config, &shutdown, &mut candidate).await
        }
    };
    follower_end.request();
    let _ = follower.await;
    outcome
}

/// Works whenever we hold the lease.
async fn lead(
    base: &Arc<Base>,
    surroundings: &Surroundings,
    config: &mut watch::Receiver<Option<RunConfig>>,
    shutdown: &Shutdown,
    candidate: &mut Candidate,
) -> Result<()> {
    while candidate.wait(shutdown).await {
        let (end, work_shutdown) = ShutdownHandle::new();
        let outcome = {
            let mut working = Box::pin(work(base, surroundings, config, &work_shutdown));
            let ended = tokio::select! {
                outcome = &mut working => Some(outcome),
                () = candidate.keep() => None,
                () = shutdown.requested() => None,
            };
            match ended {
                Some(outcome) => outcome,
                None => {
                    end.request();
                    // The lease is no longer renewed: work that has not ended in time is cut off, because another
                    // instance may begin.
                    let limit = candidate.end().unwrap_or_else(std::time::Instant::now);
                    match tokio::time::timeout_at(limit.into(), working).await {
                        Ok(outcome) => outcome,
                        Err(_) => {
                            tracing::warn!("controllers did not end before the lease expired: cut off");
                            Ok(())
                        }
                    }
                }
            }
        };
        candidate.release().await;
        outcome?;
        if shutdown.is_requested() {
            break;
        }
    }
    Ok(())
}

/// Runs one generation of controllers after another.
async fn work(
    base: &Arc<Base>,
    surroundings: &Surroundings,
    config: &mut watch::Receiver<Option<RunConfig>>,
    shutdown: &Shutdown,
) -> Result<()> {
    loop {
        let current = tokio::select! {
            current = config.wait_for(Option::is_some) => current.ok().and_then(|config| config.clone()),
            () = shutdown.requested() => return Ok(()),
        };
        let Some(current) = current else { bail!("the task that follows the configuration has ended") };
        (surroundings.set_log_level)(current.log_level);
        config.mark_unchanged();
        let generation = Generation::start(base, &current).await;
        match generation.until_change(config, &current, shutdown).await? {
            Ended::Changed => tracing::info!("the configuration changed: restarting all controllers"),
            Ended::Shutdown => return Ok(()),
        }
    }
}

fn health_parts() -> (Health, Parts) {
    let parts = Parts {
        startup: Pulse::new(),
        datastore: Pulse::new(),
        api_server: Pulse::new(),
        informers: Pulse::new(),
    };
    let health = Health::default();
    health.register("Startup", &parts.startup, true, true, Duration::ZERO);
    health.register("CalicoDatastore", &parts.datastore, true, true, Duration::ZERO);
    health.register("KubeAPIServer", &parts.api_server, true, true, Duration::ZERO);
    // Shown, but not a reason for a restart: a missing permission stays missing.
    health.register("Informers", &parts.informers, false, false, Duration::ZERO);
    (health, parts)
}

async fn open(
    options: &Options,
    environment: &(dyn Environment + Send + Sync),
    parts: Parts,
) -> Result<Base> {
    let access = KubeAccess::open(environment, Path::new(SERVICE_ACCOUNT_DIR)).await?;
    let cluster = Cluster::new(&access);
    let settings = ClientConfig::load(None, environment)?;
    let client = Client::open(&settings).await?;
    let has_v3_resources = settings.datastore_type == DatastoreType::Kubernetes
        && has_v3_resources(&cluster, &settings.kubernetes.calico_api_group).await;
    let namespace = environment.read_file(&Path::new(SERVICE_ACCOUNT_DIR).join("namespace")).ok();
    let namespace = namespace.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    Ok(Base {
        client,
        cluster,
        datastore: settings.datastore_type,
        has_v3_resources,
        namespace: namespace.unwrap_or_else(|| USUAL_NAMESPACE.to_owned()),
        status: StatusFile::new(options.status_file.clone()),
        parts,
    })
}

/// Determined like in the datastore: by the configuration, or by the API groups that exist.
async fn has_v3_resources(cluster: &Cluster, configured: &str) -> bool {
    #[derive(Deserialize)]
    struct Groups {
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    struct Group {
        name: String,
    }
    if let Some(group) = ApiGroup::configured(configured) {
        return group == ApiGroup::ProjectCalicoV3;
    }
    match cluster.get::<Groups>("list API groups", "/apis").await {
        Ok(answer) => {
            let has = |name: &str| answer.groups.iter().any(|group| group.name == name);
            has("projectcalico.org") && !has(api::kind::CRD_GROUP)
        }
        Err(error) => {
            tracing::warn!(%error, "cannot find out which API group Calico uses");
            false
        }
    }
}

/// Initialises the datastore, within the time limit.
async fn make_ready(base: &Base) -> Result<()> {
    base.status.set("Startup", false, "initialized to false");
    let attempts = async {
        loop {
            match base.client.ensure_initialized("", api::words::KUBERNETES).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::info!(%error, "the datastore is not ready");
                    base.status.set("Startup", false, format!("Error initializing datastore: {error}"));
                    base.parts.startup.report(false, error.to_string());
                }
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    };
    if tokio::time::timeout(START_PATIENCE, attempts).await.is_err() {
        bail!("the datastore did not become ready within {} s", START_PATIENCE.as_secs());
    }
    base.status.set("Startup", true, "");
    base.parts.startup.report(true, "");
    Ok(())
}

/// Runs the migration once, alone except for health. Afterwards the process keeps running, so that it is not restarted.
async fn migrate_from_flannel(base: &Arc<Base>, config: FlannelConfig, shutdown: Shutdown) -> Result<()> {
    let context = base.context(&Informers::default(), &DataFeed::default(), &Metrics::default());
    let migration = FlannelMigration::new(context.client, context.cluster, config);
    let health = tokio::spawn(health::run(Arc::clone(base), health::Followed::default(), shutdown.clone()));
    let outcome = migration.run(shutdown.clone()).await;
    if outcome.is_ok() {
        shutdown.requested().await;
    }
    health.abort();
    Ok(outcome?)
}

pub(crate) async fn listen(port: u16) -> std::io::Result<TcpListener> {
    // Without IPv6, only IPv4.
    match TcpListener::bind(("::", port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(("0.0.0.0", port)).await,
    }
}

impl Base {
    fn context(&self, informers: &Informers, feed: &DataFeed, metrics: &Metrics) -> Context {
        Context {
            client: self.client.clone(),
            cluster: self.cluster.clone(),
            informers: informers.clone(),
            feed: feed.clone(),
            metrics: metrics.clone(),
            datastore: self.datastore,
        }
    }
}
