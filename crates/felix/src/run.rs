//! Runs all parts of Felix together.

use crate::calculation::{Calculation, Verdict};
use crate::cli::Arguments;
use crate::log::outlets;
use crate::reports::{self, Latest, ReportSettings};
use crate::servers::Servers;
use crate::startup::{self, Startup};
use crate::wireguard;
use crate::{flows, policysync, typha};
use anyhow::{Context as _, Result};
use calc::GraphConfig;
use calc::network::NetworkSettings;
use daemon::dumps;
use daemon::log::{LevelFilter, Log};
use dataplane::runner::{self, Event};
use dataplane::settings::DataplaneSettings;
use felix_config::Config;
use felix_config::sources::Texts;
use messages::Encapsulation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use telemetry::{Health, Metrics, Pulse};

/// The time limit of the graph for one piece of work.
const GRAPH_TIMEOUT: Duration = Duration::from_secs(30);
/// The dataplane's limit is never shorter than this.
const SHORTEST_WATCHDOG: Duration = Duration::from_secs(20);

/// Why Felix ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The end was requested by a signal.
    Signal,
    /// The configuration changed in a way that requires a restart.
    Restart,
}

/// The source of the feed, which ends when this value is dropped.
#[expect(dead_code, reason = "held for their ends alone")]
enum Following {
    Datastore(follow::Follower),
    Typha(typha_client::Follower),
}

/// Runs Felix until it is asked to end, or cannot continue.
///
/// # Errors
/// When the configuration cannot be read, or the kernel cannot be reached.
pub async fn run(arguments: &Arguments) -> Result<Ended> {
    let health = Health::default();
    let metrics = Metrics::default();
    let begun = Pulse::new();
    health.register("FelixStartup", &begun, true, true, Duration::ZERO);
    let log = Log::start(LevelFilter::INFO);
    let follow = |config: &Config, texts: &Texts| {
        for problem in log.set(&outlets(config, texts)) {
            tracing::warn!("{problem}");
        }
    };
    let local = startup::local_settings(&arguments.config_file)?;
    follow(local.config(), &local.effective().texts);
    // Probes are answered while Felix waits for the datastore: it is alive, but not ready.
    let mut servers = Servers::default();
    servers.serve_health(local.config(), &health);
    // One listener for the whole run: a signal between two of them would be lost.
    let mut end = std::pin::pin!(daemon::signals::end().context("receiving signals")?);
    let Startup { backend, kubernetes, use_pod_cidr, resolver, encapsulation } = tokio::select! {
        started = startup::start(local) => started?,
        () = &mut end => return Ok(Ended::Signal),
    };
    let config = Arc::new(resolver.config().clone());
    follow(&config, &resolver.effective().texts);
    for notice in startup::notices(&resolver) {
        tracing::warn!("{notice}");
    }
    tracing::info!(host = %config.felix_hostname, ?encapsulation, "starting");
    let typha = typha::plan(&config).await?;
    let (graph_pulse, dataplane_pulse) = (Pulse::new(), Pulse::new());
    health.register("CalculationGraph", &graph_pulse, true, true, GRAPH_TIMEOUT);
    let watchdog = config.dataplane_watchdog_timeout.or_zero().max(SHORTEST_WATCHDOG);
    health.register("InternalDataplaneMainLoop", &dataplane_pulse, true, true, watchdog);
    health.set_overrides(health_overrides(&config));
    servers.serve_health(&config, &health);
    servers.serve_metrics(&config, &metrics);

    let client = client::Client::new(Arc::clone(&backend));
    if config.is_leader() {
        wireguard::prepare(&config, &client).await;
    }
    let settings = DataplaneSettings {
        host: config.felix_hostname.as_str().into(),
        config: Arc::clone(&config),
        encapsulation,
        has_services: kubernetes,
        pulse: dataplane_pulse,
        metrics: metrics.clone(),
    };
    let (reported, keys, machines) = (Latest::default(), Latest::default(), Latest::default());
    let running = runner::start(settings, {
        let (reported, keys, machines) = (reported.clone(), keys.clone(), machines.clone());
        move |report| {
            if let Some((ipv6, key)) = reports::wireguard::key_of(&report) {
                keys.put(ipv6, key);
            } else if let Some(machine) = reports::machines::arrived(&report) {
                machines.put(machine.handle(), machine);
            } else if let Some(subject) = reports::Subject::of(&report) {
                reported.put(subject, report);
            }
        }
    })
    .context("starting the dataplane")?;
    let reporter = tokio::spawn(reports::write(
        ReportSettings::new(&config, kubernetes),
        Arc::clone(&backend),
        reported,
    ));
    let key_writer = tokio::spawn(reports::wireguard::write(client, config.felix_hostname.clone(), keys));
    let owner_writer =
        tokio::spawn(reports::machines::write(ipam::Ipam::new(Arc::clone(&backend)), machines));

    let (ended, verdict) = tokio::sync::oneshot::channel();
    let (policy_sync, proxies) = match config.policy_sync_path_prefix.as_str() {
        "" => (None, None),
        _ if !config.is_leader() => (None, None),
        prefix => {
            let (sender, task) = policysync::start(prefix.into());
            (Some(sender), Some(task))
        }
    };
    let dumps = tokio::spawn(dumps::on_signals(
        config.debug_memory_profile_path.clone(),
        config.debug_cpu_profile_path.clone(),
    ));
    // Held until the end: dropping it ends the collector.
    let (flows, _collector) = match flows::Settings::of(&config) {
        None => (None, None),
        Some(settings) => {
            let started = flows::start(settings, &health, &metrics).context("starting to log flows")?;
            (Some(started.0), Some(started.1))
        }
    };
    let typha_health = health.clone();
    let calculation = Calculation {
        graph: GraphConfig {
            // Without Kubernetes there are no services.
            serves_services: config.bpf_enabled && kubernetes,
            ..graph_config(&config, &encapsulation, running.suppress_overlaps())
        },
        resolver,
        encapsulation,
        dataplane: running.sender(),
        policy_sync,
        flows,
        pulse: graph_pulse,
        health,
        metrics,
    };
    let options = follow::FelixOptions { kubernetes, use_pod_cidr, leader: config.is_leader() };
    // The configuration alone is small, and a Felix that is not the leader needs no more.
    let (follower, feed) = match typha {
        Some(plan) if config.is_leader() => {
            let (follower, feed) = typha::start(plan, &typha_health);
            (Following::Typha(follower), feed)
        }
        _ => {
            let (follower, feed) = follow::follow(&backend, follow::feeds::felix(options));
            (Following::Datastore(follower), feed.into())
        }
    };
    let _thread = calculation.start(feed, move |verdict| {
        let _ = ended.send(verdict);
    })?;
    begun.report(true, "");

    let sender = running.sender();
    let failed = tokio::task::spawn_blocking(move || running.wait());
    let result = tokio::select! {
        verdict = verdict => match verdict {
            Ok(Verdict::Restart(reason)) => {
                tracing::info!(%reason, "a restart is needed");
                Ok(Ended::Restart)
            }
            Ok(Verdict::Failed(reason)) => Err(anyhow::anyhow!(reason)),
            Err(_) => Err(anyhow::anyhow!("the calculation ended without a reason")),
        },
        ended = failed => match ended {
            Ok(Err(error)) if error.is_restart() => {
                tracing::info!(reason = %error, "a restart is needed");
                Ok(Ended::Restart)
            }
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) => Err(anyhow::anyhow!("the dataplane ended without a reason")),
            Err(error) => Err(error.into()),
        },
        () = &mut end => {
            tracing::info!("asked to end; the programmed state remains");
            Ok(Ended::Signal)
        }
    };
    drop(follower);
    // Does not wait for a busy dataplane: the next Felix repairs whatever is half done.
    let _ = sender.try_send(Event::Stop);
    for task in [reporter, key_writer, owner_writer, dumps].into_iter().chain(proxies) {
        task.abort();
    }
    drop(servers);
    result
}

/// The configured time limits for parts of Felix.
pub(crate) fn health_overrides(config: &Config) -> BTreeMap<String, Duration> {
    config.health_timeout_overrides.iter().map(|(name, limit)| (name.clone(), limit.or_zero())).collect()
}

fn graph_config(config: &Config, encapsulation: &Encapsulation, suppress_overlaps: bool) -> GraphConfig {
    GraphConfig {
        host: config.felix_hostname.as_str().into(),
        suppress_overlaps,
        allows_source_spoofing: config.workload_source_spoofing == Some(api::SourceSpoofing::Any),
        istio_ambient: config.istio_ambient_mode == Some(api::EnabledOrDisabled::Enabled),
        serves_services: false,
        network: NetworkSettings {
            route_source: config.route_source,
            encapsulation: startup::encapsulation_settings(config),
            without_routes: !config.needs_routes(encapsulation),
            without_vteps: !(encapsulation.vxlan || encapsulation.vxlan_v6),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::SourceSpoofing;

    #[test]
    fn workloads_spoof_only_where_the_parameter_says_so() {
        for (setting, allowed) in
            [(Some(SourceSpoofing::Disabled), false), (Some(SourceSpoofing::Any), true), (None, false)]
        {
            let config = Config { workload_source_spoofing: setting, ..Config::default() };
            let graph = graph_config(&config, &Encapsulation::default(), false);
            assert_eq!(graph.allows_source_spoofing, allowed, "{setting:?}");
        }
    }
}
