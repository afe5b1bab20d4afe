//! Flow logs: who communicated with whom, and which policies decided (`FlowLogsGoldmaneServer`,
//! `FlowLogsLocalReporter`).
//!
//! ```text
//! feed, calculation ─► Tap ─► directory (names of addresses, policies)
//!                                  │ asked
//! rules, programs ─► readers (threads) ─► collector (a thread) ─► sinks ─► Goldmane, each interval
//!           bounded, shedding                                └──► listeners on this node, each second
//! ```
//!
//! Unless flows are logged, nothing here is created, and the kernel is not queried. The dataplane never waits for flow
//! logs: excess reports are dropped and counted. Nothing here decides about packets.

mod collector;
mod directory;
mod endpoints;
mod figures;
mod interval;
mod network_sets;
mod policies;
mod programs;
mod readers;
mod services;
mod sinks;

use api::{EnabledOrDisabled, FlowLogsPolicyEvaluationMode};
use collector::{Collector, lock};
use directory::Directory;
use felix_config::Config;
use felix_config::choices::RedirectToPeer;
use figures::Counts;
use goldmane_api::connect::{Target, TlsPaths};
use messages::ToDataplane;
use model::feed::FeedEntry;
use programs::Untracked;
use readers::{Shared, Sources};
use sinks::Sinks;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use telemetry::{Health, Metrics, Pulse};
use tokio::task::JoinHandle;

/// How many reports of readers may be queued for the collector.
const WAITING: usize = 256;
/// The time limit of the collector for one piece of work, as for Calico's reporter of this name.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The pause before the kernel is queried again.
const PAUSE: Duration = Duration::from_secs(10);
/// The shortest interval of flows.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The kernel setting that counts the packets of connections.
const COUNTING: &str = "net/netfilter/nf_conntrack_acct";

/// The collector's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    host: String,
    interval: Duration,
    target: Option<Target>,
    socket: Option<PathBuf>,
    evaluates: bool,
    is_traced: bool,
    has_programs: bool,
    /// The flows that only programs know.
    untracked: Untracked,
}

impl Settings {
    /// The settings from the configuration; `None` if flows are not logged.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        if !config.logs_flows() || !config.is_leader() {
            return None;
        }
        let address = &config.flow_logs_goldmane_server;
        let files = [&config.typha_ca_file, &config.typha_cert_file, &config.typha_key_file];
        let tls = files.iter().all(|file| !file.is_empty()).then(|| TlsPaths {
            authority: files[0].into(),
            certificate: files[1].into(),
            key: files[2].into(),
        });
        if tls.is_none() && files.iter().any(|file| !file.is_empty()) {
            tracing::warn!(
                "flows are sent without TLS: TyphaCAFile, TyphaCertFile and TyphaKeyFile are not all set"
            );
        }
        Some(Self {
            host: config.felix_hostname.clone(),
            interval: config.flow_logs_flush_interval.or_zero().max(SHORTEST_INTERVAL),
            target: (!address.is_empty()).then(|| Target { address: address.clone(), tls }),
            socket: (config.flow_logs_local_reporter == Some(EnabledOrDisabled::Enabled))
                .then(|| flows::local::SOCKET.into()),
            evaluates: config.flow_logs_policy_evaluation_mode
                == Some(FlowLogsPolicyEvaluationMode::Continuous),
            is_traced: config.flow_logs_collector_debug_trace,
            has_programs: config.bpf_enabled,
            untracked: match config.bpf_redirect_to_peer {
                _ if config.bpf_host_conntrack_bypass => Untracked::PassingThrough,
                Some(RedirectToPeer::Disabled) => Untracked::Nothing,
                _ => Untracked::Direct,
            },
        })
    }
}

/// Receives the feed's entries and the calculation's messages for flow logs.
#[derive(Clone)]
pub(crate) struct Tap(Arc<Mutex<Directory>>);

impl Tap {
    /// Processes entries of the feed.
    pub(crate) fn entries(&self, entries: &[FeedEntry]) {
        let mut directory = lock(&self.0);
        for entry in entries {
            directory.entry(entry);
        }
    }

    /// Processes messages of the calculation.
    pub(crate) fn messages(&self, messages: &[ToDataplane]) {
        let mut directory = lock(&self.0);
        for message in messages {
            directory.message(message);
        }
    }
}

/// A running collector, which ends when this value is dropped.
pub(crate) struct Running {
    has_ended: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Starts to log flows.
///
/// # Errors
/// When a thread cannot be started.
pub(crate) fn start(
    settings: Settings,
    health: &Health,
    metrics: &Metrics,
) -> std::io::Result<(Tap, Running)> {
    tracing::info!(
        goldmane = settings.target.as_ref().map(|target| target.address.as_str()),
        is_local = settings.socket.is_some(),
        interval = ?settings.interval,
        "logging flows"
    );
    let directory = Arc::new(Mutex::new(Directory::new(&settings.host, settings.evaluates)));
    let counts = Arc::new(Counts::default());
    counts.show(metrics);
    let Settings { host, interval, target, socket, is_traced, has_programs, untracked, .. } = settings;
    let (sinks, tasks) = Sinks::start(&host, target, socket, &counts, metrics);
    let mut collector = Collector::new(Arc::clone(&directory), sinks, metrics, interval, is_traced);
    let pulse = Pulse::new();
    pulse.report(true, "");
    health.register("CloudWatchReporter", &pulse, true, true, TIMEOUT);
    let running = Running { has_ended: Arc::default(), tasks };
    let (has_ended, metrics) = (Arc::clone(&running.has_ended), metrics.clone());
    std::thread::Builder::new().name("flows".to_owned()).spawn(move || {
        let (sender, inputs) = sync_channel(WAITING);
        let shared = Shared { collector: sender, counts, metrics, has_ended: Arc::clone(&has_ended) };
        let heard = listen(&shared, has_programs, untracked);
        // Readers have their own clones; the collector ends with the last of them.
        drop(shared);
        let Some(Heard { agree }) = heard else { return };
        if !agree {
            collector.cannot_tell_apart();
        }
        collector.run(&inputs, &has_ended, &pulse);
    })?;
    Ok((Tap(directory), running))
}

/// Properties of the kernel's reports.
struct Heard {
    /// Whether reports and counters agree on the original destination of a connection. Linux does not see translations
    /// by eBPF programs.
    agree: bool,
}

/// Makes the kernel count and report. Retries while another process reads our groups; returns `None` if the end is
/// requested first.
fn listen(shared: &Shared, has_programs: bool, untracked: Untracked) -> Option<Heard> {
    if let Err(error) = netlink::sysctl::ensure(COUNTING, "1") {
        tracing::warn!(%error, "the kernel may not count packets of connections; flows then have no figures");
    }
    loop {
        if shared.has_ended.load(Ordering::Relaxed) {
            return None;
        }
        match Sources::open() {
            Ok(sources) => {
                let agree = sources.are_complete && !has_programs;
                match sources.start(shared).and_then(|()| match has_programs {
                    true => programs::start(shared, untracked),
                    false => Ok(()),
                }) {
                    Ok(()) => return Some(Heard { agree }),
                    Err(error) => tracing::error!(%error, "cannot start the threads that read flows"),
                }
            }
            Err(error) => tracing::error!(%error, "cannot log flows; retrying"),
        }
        let mut waited = Duration::ZERO;
        while waited < PAUSE && !shared.has_ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
            waited += Duration::from_millis(200);
        }
    }
}

#[cfg(test)]
mod tests;
