//! Writes the dataplane's reports where other programs read them: Felix's sign of life and the endpoints' states into
//! the datastore, and a file per endpoint for the CNI plugin that waits for it.
//!
//! The datastore may be unreachable: reports are kept by endpoint, so that only the newest state is written when it
//! returns. Files are written by rename.

use datastore::{Backend, Error};
use felix_config::Config;
use messages::{FromDataplane, HostEndpointName, Text, WorkloadEndpointId};
use model::{EndpointStatus, Key, KvPair, StatusReport, Value, region_string};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod files;
mod latest;
pub(crate) mod machines;
pub(crate) mod wireguard;
pub(crate) use files::EndpointFiles;
pub(crate) use latest::Latest;

/// The subject of a report. In this order: being in sync is reported after everything that is in sync.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Workload(WorkloadEndpointId),
    Host(HostEndpointName),
    InSync,
}

impl Subject {
    /// The subject of reports that are written here; `None` for others.
    pub(crate) fn of(report: &FromDataplane) -> Option<Self> {
        match report {
            FromDataplane::WorkloadEndpointStatus { id, .. } => Some(Self::Workload(id.clone())),
            FromDataplane::HostEndpointStatus(name, _) => Some(Self::Host(name.clone())),
            FromDataplane::InSync => Some(Self::InSync),
            _ => None,
        }
    }
}

/// What is written, and where.
#[derive(Clone, Debug)]
pub(crate) struct ReportSettings {
    pub(crate) host: String,
    pub(crate) region: String,
    /// The interval of Felix's sign of life; `None` for never.
    pub(crate) interval: Option<Duration>,
    /// For how long a sign of life is valid.
    pub(crate) ttl: Duration,
    /// Whether endpoints' states are written to the datastore.
    pub(crate) endpoints: bool,
    /// How long changes of endpoints are collected before they are written.
    pub(crate) delay: Duration,
    /// The directory of the endpoints' files; `None` for no files.
    pub(crate) folder: Option<PathBuf>,
}

impl ReportSettings {
    pub(crate) fn new(config: &Config, kubernetes: bool) -> Self {
        let prefix = &config.endpoint_status_path_prefix;
        Self {
            host: config.felix_hostname.clone(),
            region: region_string(&config.openstack_region),
            // Kubernetes cannot store these reports.
            interval: config.reporting_interval.positive().filter(|_| !kubernetes),
            ttl: config.reporting_ttl.or_zero(),
            endpoints: config.endpoint_reporting_enabled && !kubernetes,
            delay: config.endpoint_reporting_delay.or_zero(),
            folder: (!prefix.is_empty()).then(|| PathBuf::from(prefix).join("endpoint-status")),
        }
    }
}

/// Writes reports for as long as it is polled.
pub(crate) async fn write(
    settings: ReportSettings,
    backend: Arc<dyn Backend>,
    reports: Latest<Subject, FromDataplane>,
) {
    let begin = Instant::now();
    let mut files = settings.folder.clone().map(EndpointFiles::new);
    let mut pending: BTreeMap<Key, Option<&'static str>> = BTreeMap::new();
    let mut first = true;
    let mut life = settings.interval.map(tokio::time::interval);
    if let Some(life) = &mut life {
        life.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    let mut in_sync = false;
    loop {
        let tick = async {
            match &mut life {
                Some(life) if in_sync => {
                    life.tick().await;
                }
                _ => std::future::pending().await,
            }
        };
        let flush = async {
            match pending.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(settings.delay.max(Duration::from_millis(10))).await,
            }
        };
        tokio::select! {
            batch = reports.take() => {
                for report in batch.into_values() {
                    if let Some(files) = &mut files {
                        files.take(&report);
                    }
                    if report == FromDataplane::InSync {
                        in_sync = true;
                    }
                    if settings.endpoints && let Some((key, status)) = endpoint_key(&settings, &report) {
                        pending.insert(key, status);
                    }
                }
            },
            () = flush => {
                let batch = std::mem::take(&mut pending);
                for (key, status) in batch {
                    if let Err(error) = write_endpoint(&*backend, &key, status).await {
                        tracing::warn!(%error, %key, "cannot report an endpoint's state; retrying");
                        pending.entry(key).or_insert(status);
                    }
                }
                if !pending.is_empty() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            },
            () = tick => {
                let uptime = begin.elapsed().as_secs_f64();
                if let Err(error) = write_life(&*backend, &settings, uptime, first).await {
                    tracing::warn!(%error, "cannot report that Felix is alive");
                } else {
                    first = false;
                }
            },
        }
    }
}

fn endpoint_key(settings: &ReportSettings, message: &FromDataplane) -> Option<(Key, Option<&'static str>)> {
    let host = settings.host.clone();
    match message {
        FromDataplane::WorkloadEndpointStatus { id, status, .. } => {
            let WorkloadEndpointId { orchestrator, workload, endpoint } = id;
            let text = |text: &Text| text.to_string();
            let key = Key::WorkloadEndpointStatus {
                region: settings.region.clone(),
                host,
                orchestrator: text(orchestrator),
                workload: text(workload),
                endpoint: text(endpoint),
            };
            Some((key, *status))
        }
        FromDataplane::HostEndpointStatus(name, status) => {
            Some((Key::HostEndpointStatus { host, endpoint: name.to_string() }, *status))
        }
        _ => None,
    }
}

async fn write_endpoint(backend: &dyn Backend, key: &Key, status: Option<&str>) -> Result<(), Error> {
    match status {
        Some(status) => {
            let status = EndpointStatus { status: status.to_owned(), ..EndpointStatus::default() };
            backend.apply(&KvPair::new(key.clone(), Value::EndpointStatus(status))).await.map(drop)
        }
        None => match backend.delete(key, None).await {
            Ok(_) | Err(Error::DoesNotExist { .. }) => Ok(()),
            Err(error) => Err(error),
        },
    }
}

async fn write_life(
    backend: &dyn Backend,
    settings: &ReportSettings,
    uptime: f64,
    first: bool,
) -> Result<(), Error> {
    let report = StatusReport {
        timestamp: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .unwrap_or_else(|_| jiff::Timestamp::now())
            .to_string(),
        uptime_seconds: api::scalars::GoFloat(uptime),
        first_update: first,
        ..StatusReport::default()
    };
    let (region, host) = (settings.region.clone(), settings.host.clone());
    let last = Key::LastStatusReport { region: region.clone(), host: host.clone() };
    let active = Key::ActiveStatusReport { region, host };
    let mut entry = KvPair::new(active, Value::StatusReport(report.clone()));
    entry.ttl = Some(settings.ttl).filter(|ttl| !ttl.is_zero());
    backend.apply(&entry).await?;
    backend.apply(&KvPair::new(last, Value::StatusReport(report))).await?;
    Ok(())
}
