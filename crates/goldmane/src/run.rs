//! The process: settings, aggregator, server, turns, health, figures.

use crate::aggregator::{Aggregator, AggregatorOptions, Clock};
use crate::emitter::{EmitterOptions, PostTarget, Progress, emit};
use crate::figures;
use crate::history::History;
use crate::serve::serve;
use crate::services::Services;
use crate::settings::Settings;
use anyhow::{Context as _, Result, bail};
use daemon::{Environment, Shutdown};
use flows::RingOptions;
use goldmane_api::push::now;
use kube_access::KubeAccess;
use kube_access::cluster::Cluster;
use std::sync::Arc;
use std::time::Duration;
use telemetry::{Health, Metrics, Pulse};
use telemetry_server::{Address, Pages, serve_at};
use tls::{ClientAuth, ReadLimits, Renewing, TlsFiles, TlsLimits};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long one turn may take before the process is considered hung.
const TURN_PATIENCE: Duration = Duration::from_secs(60);

/// The namespace of the config map with the emitter's progress, the same as Calico's.
const PROGRESS_NAMESPACE: &str = "calico-system";

/// Runs Goldmane until shutdown is requested.
///
/// # Errors
/// When the environment or the TLS files cannot be used, or the port is not available.
pub async fn run(
    environment: &(dyn Environment + Send + Sync),
    set_log_level: impl Fn(daemon::log::LevelFilter),
    shutdown: Shutdown,
) -> Result<()> {
    let settings = Settings::read(environment)?;
    set_log_level(settings.level());
    for name in settings.unsupported() {
        tracing::warn!("{name} is set, and is not supported by this version: ignored");
    }
    let (health, startup, turning) = (Health::default(), Pulse::new(), Pulse::new());
    health.register("startup", &startup, true, true, Duration::ZERO);
    health.register("aggregator", &turning, true, true, TURN_PATIENCE);
    let metrics = Metrics::default();
    let mut tasks = JoinSet::new();
    let listen = |what: &'static str, host: &str, port: u16| Address { what, host: host.to_owned(), port };
    if settings.health_enabled {
        let pages = Pages { health: Some(health), metrics: None };
        let address = listen("health", &settings.health_host, settings.health_port);
        tasks.spawn(serve_at(address, pages, None));
    }
    if settings.prometheus_port != 0 {
        let pages = Pages { health: None, metrics: Some(metrics.clone()) };
        tasks.spawn(serve_at(listen("metrics", "", settings.prometheus_port), pages, None));
    }
    let certificates = certificates(&settings)?;
    let interval = i64::try_from(settings.aggregation_window.as_secs()).unwrap_or(i64::MAX);
    let ring = RingOptions { interval, most_keys: settings.most_keys, ..RingOptions::default() };
    let clock: Clock = Arc::new(now);
    let options = AggregatorOptions {
        ring,
        most_policy_series: settings.policy_metrics,
        ..AggregatorOptions::default()
    };
    let history = history(&settings, interval)?;
    let aggregator = Aggregator::with_history(options, clock, history);
    figures::register(&metrics, &aggregator);
    tasks.spawn(turn(Arc::clone(&aggregator), turning));
    if let Some(options) = emitter(&settings) {
        let progress = progress(environment).await;
        tasks.spawn(emit(Arc::clone(&aggregator), options, progress, shutdown.clone()));
    }
    let listener = bind(settings.port).await?;
    tracing::info!(port = settings.port, tls = certificates.is_some(), "Goldmane listens");
    startup.report(true, "");
    serve(listener, certificates, Services(Arc::clone(&aggregator)), shutdown).await;
    write_history(&aggregator).await;
    Ok(())
}

/// Opens the history in files, if a folder is configured.
fn history(settings: &Settings, interval: i64) -> Result<Option<Arc<History>>> {
    let folder = &settings.history_dir;
    if folder.as_os_str().is_empty() {
        return Ok(None);
    }
    let history = History::open(folder, settings.history_bytes, interval)
        .with_context(|| format!("opening the history in {}", folder.display()))?;
    Ok(Some(Arc::new(history)))
}

/// Writes completed blocks to the history, off the threads that serve connections.
async fn write_history(aggregator: &Arc<Aggregator>) {
    if let Some(history) = aggregator.history().cloned() {
        let aggregator = Arc::clone(aggregator);
        let written = tokio::task::spawn_blocking(move || history.write(&aggregator)).await;
        if let Err(error) = written {
            tracing::error!(%error, "the history was not written");
        }
    }
}

/// Binds all addresses of both families, or of IPv4 if the machine has no IPv6.
async fn bind(port: u16) -> Result<TcpListener> {
    match TcpListener::bind(("::", port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => {
            TcpListener::bind(("0.0.0.0", port)).await.with_context(|| format!("listening on port {port}"))
        }
    }
}

/// Starts buckets on time.
async fn turn(aggregator: Arc<Aggregator>, pulse: Pulse) {
    pulse.report(true, "");
    loop {
        tokio::time::sleep(aggregator.until_turn()).await;
        pulse.busy();
        aggregator.turn();
        write_history(&aggregator).await;
        pulse.idle();
        // Ending buckets frees large amounts of memory.
        telemetry::memory::give_back();
    }
}

/// The emitter's settings, if a server is configured.
fn emitter(settings: &Settings) -> Option<EmitterOptions> {
    let target = PostTarget {
        url: settings.push_url.clone()?,
        authority: settings.ca_cert_path.clone(),
        certificate: settings.client_cert_path.clone(),
        key: settings.client_key_path.clone(),
        server_name: settings.server_name.clone(),
    };
    let switch = &settings.file_config_path;
    Some(EmitterOptions {
        target,
        window: i64::try_from(settings.emitter_aggregation_window.as_secs()).unwrap_or(i64::MAX),
        settling: i64::from(settings.emit_after_seconds),
        switch: (!switch.as_os_str().is_empty()).then(|| switch.clone()),
    })
}

/// The store for the emitter's progress.
async fn progress(environment: &(dyn Environment + Send + Sync)) -> Progress {
    match KubeAccess::from_environment(environment).await {
        Ok(Some(access)) => Progress::in_cluster(Cluster::new(&access), PROGRESS_NAMESPACE.to_owned()),
        Ok(None) => Progress::nowhere(),
        Err(error) => {
            tracing::warn!(%error, "which flows were sent will not be recorded");
            Progress::nowhere()
        }
    }
}

/// Mutual TLS, if a certificate is configured.
fn certificates(settings: &Settings) -> Result<Option<Renewing>> {
    let is_set = |path: &std::path::Path| !path.as_os_str().is_empty();
    match (is_set(&settings.server_cert_path), is_set(&settings.server_key_path)) {
        (false, false) => {
            tracing::warn!("SERVER_CERT_PATH and SERVER_KEY_PATH are not set: the API is in the clear");
            Ok(None)
        }
        (true, true) => {
            let certificates = Renewing::new(TlsFiles {
                certificate: settings.server_cert_path.clone(),
                key: settings.server_key_path.clone(),
                authorities: settings.ca_cert_path.clone(),
                client_auth: ClientAuth::RequireAndVerify,
                protocols: &["h2"],
            });
            let read = TlsLimits::read(&settings.tls_min_version, &settings.tls_cipher_suites);
            let ReadLimits { limits, warnings } = read.map_err(anyhow::Error::msg)?;
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            let certificates = certificates.within(limits);
            // Wrong files are reported now rather than to the first client.
            certificates.current()?;
            Ok(Some(certificates))
        }
        _ => bail!("SERVER_CERT_PATH and SERVER_KEY_PATH must both be set, or neither"),
    }
}
