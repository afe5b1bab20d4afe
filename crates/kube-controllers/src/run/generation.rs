//! All controllers of one configuration: creates, starts, watches and ends them.

use super::{Base, health, listen};
use crate::compaction;
use crate::config::RunConfig;
use crate::controller::{Context, Controller};
use crate::copy::Copier;
use crate::endpoints::Endpoints;
use crate::feed::DataFeed;
use crate::informer::Informers;
use crate::ipam_gc::IpamGc;
use crate::load_balancer::LoadBalancer;
use crate::nodes::Nodes;
use crate::policies::Policies;
use crate::policy_names::PolicyNames;
use crate::pools::{PoolController, TierController};
use crate::profiles::{Namespaces, ServiceAccounts};
use anyhow::{Context as _, Result};
use client::DatastoreType;
use daemon::{Shutdown, ShutdownHandle};
use follow::Follower;
use std::sync::Arc;
use std::time::Duration;
use telemetry::Metrics;
use telemetry_server::{Pages, serve};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long controllers may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How long after the first lists unused memory is returned: until then the first comparisons need it.
const FIRST_WORK: Duration = Duration::from_secs(5);

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The configuration changed.
    Changed,
    /// The shutdown was requested.
    Shutdown,
}

/// Running controllers.
pub(super) struct Generation {
    end: ShutdownHandle,
    controllers: JoinSet<(&'static str, Result<()>)>,
    /// Informers, health, compaction and metrics: they end with the generation, and their end has no effect on it.
    helpers: JoinSet<()>,
    /// Dropped at the end, which stops them.
    feeds: Vec<Follower>,
}

impl Generation {
    /// Creates and starts the controllers that the configuration enables.
    pub(super) async fn start(base: &Arc<Base>, config: &RunConfig) -> Self {
        let (end, shutdown) = ShutdownHandle::new();
        let (informers, metrics) = (Informers::default(), Metrics::default());
        // Only the migration of policy names needs policies, and it must not hold back other controllers: older roles
        // forbid reading policies.
        let (feed, policy_feed) = (DataFeed::default(), DataFeed::default());
        let context = base.context(&informers, &feed, &metrics);
        let policy_context = base.context(&informers, &policy_feed, &metrics);
        let made = controllers(base, &context, &policy_context, config);

        let mut helpers = JoinSet::new();
        if let Some(port) = config.metrics_port {
            match listen(port).await {
                Ok(listener) => {
                    tracing::info!(port, "serving metrics");
                    helpers.spawn(serve(listener, Pages { health: None, metrics: Some(metrics.clone()) }));
                }
                // Failing to serve figures is not a reason to stop the controllers.
                Err(error) => tracing::error!(%error, port, "metrics are not served"),
            }
        }
        if base.datastore != DatastoreType::Kubernetes {
            let backend = Arc::clone(base.client.backend());
            helpers.spawn(compaction::run(backend, config.compaction_period, shutdown.clone()));
        }
        for informer in informers.start(&base.cluster, &shutdown) {
            helpers.spawn(async move {
                // It ends with its generation, and logs its own failures.
                let _ = informer.await;
            });
        }
        helpers.spawn({
            let informers = informers.clone();
            async move {
                informers.synced().await;
                tokio::time::sleep(FIRST_WORK).await;
                // The pages of the first lists are the peak of memory use.
                telemetry::memory::give_back();
                telemetry::memory::let_go_of_code();
            }
        });
        let mut controllers = JoinSet::new();
        for controller in made {
            let shutdown = shutdown.clone();
            let name = controller.name();
            tracing::info!(controller = name, "starting");
            controllers.spawn(async move { (name, controller.run(shutdown).await) });
        }
        let feed = feed.start(base.client.backend());
        let policy_feed = policy_feed.start(base.client.backend());
        if config.health_enabled {
            let refusals = |feed: &Option<Follower>| feed.as_ref().map(|feed| feed.refusals().clone());
            let followed =
                health::Followed { informers, needed: refusals(&feed), lesser: refusals(&policy_feed) };
            helpers.spawn(health::run(Arc::clone(base), followed, shutdown.clone()));
        }
        Self { end, controllers, helpers, feeds: feed.into_iter().chain(policy_feed).collect() }
    }

    /// Runs until the configuration changes or the shutdown is requested; then ends the controllers.
    pub(super) async fn until_change(
        mut self,
        config: &mut watch::Receiver<Option<RunConfig>>,
        current: &RunConfig,
        shutdown: &Shutdown,
    ) -> Result<Ended> {
        let outcome = loop {
            tokio::select! {
                changed = config.changed() => {
                    let is_other = changed.is_ok()
                        && config.borrow_and_update().as_ref().is_some_and(|config| config != current);
                    if is_other {
                        break Ok(Ended::Changed);
                    }
                    if changed.is_err() {
                        break Ok(Ended::Shutdown);
                    }
                }
                () = shutdown.requested() => break Ok(Ended::Shutdown),
                Some(ended) = self.controllers.join_next() => match ended {
                    Ok((name, Ok(()))) => tracing::info!(controller = name, "has nothing more to do"),
                    Ok((name, Err(error))) => {
                        break Err(error).with_context(|| format!("controller {name}"));
                    }
                    Err(error) => break Err(error).context("a controller failed"),
                },
            }
        };
        self.stop().await;
        outcome
    }

    async fn stop(mut self) {
        self.end.request();
        self.feeds.clear();
        let ended = async { while self.controllers.join_next().await.is_some() {} };
        if tokio::time::timeout(END_PATIENCE, ended).await.is_err() {
            tracing::warn!("a controller did not stop in time; continuing without it");
        }
        self.controllers.shutdown().await;
        self.helpers.shutdown().await;
    }
}

/// Creates the controllers that the configuration enables.
fn controllers(
    base: &Base,
    context: &Context,
    policy_context: &Context,
    config: &RunConfig,
) -> Vec<Box<dyn Controller>> {
    let mut made: Vec<Box<dyn Controller>> = Vec::new();
    let asked = &config.controllers;
    if base.datastore == DatastoreType::Kubernetes {
        // With this datastore Calico reads the originals, so there is nothing to copy.
        tracing::debug!("namespaces, service accounts, policies and pods are where Calico's data are");
    } else {
        if let Some(config) = asked.namespace {
            made.push(Box::new(Copier::<Namespaces>::new(context, config)));
        }
        if let Some(config) = asked.service_account {
            made.push(Box::new(Copier::<ServiceAccounts>::new(context, config)));
        }
        if let Some(config) = asked.policy {
            made.push(Box::new(Copier::<Policies>::new(context, config)));
        }
        if let Some(config) = asked.workload_endpoint {
            made.push(Box::new(Endpoints::new(context, config)));
        }
    }
    if let Some(config) = &asked.node {
        made.push(Box::new(Nodes::new(context, config.clone())));
        made.push(Box::new(IpamGc::new(context, config.leak_grace_period)));
    }
    if let Some(config) = &asked.load_balancer {
        made.push(Box::new(LoadBalancer::new(context, config.assign_ips.clone())));
    }
    if asked.policy_name_migrator {
        made.push(Box::new(PolicyNames::new(policy_context, Some(base.namespace.clone()))));
    }
    if base.has_v3_resources {
        made.push(Box::new(PoolController::new(context)));
        made.push(Box::new(TierController::new(context)));
    }
    made
}
