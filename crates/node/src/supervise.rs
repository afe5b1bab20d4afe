//! `tortie node`: starts the node, then runs its parts as processes of this program and keeps them running.
//!
//! - [`plan`]: the parts with their arguments and variables.
//! - [`backoff`]: when a part that ended is restarted.
//! - [`run`]: start-up, tunnel addresses, then the loop that handles ended children, signals and timers.
//!
//! As the first process of a container it also reaps orphaned processes. The process id of a part is in a file for as
//! long as it runs, for `node health`. A part that keeps failing is restarted indefinitely, with growing pauses, while
//! the others keep running.

mod backoff;
mod children;
pub(crate) mod plan;

use crate::context::Context;
use crate::startup::{self, StartupError};
use crate::tunnel::{self, TunnelError};
use backoff::after_run;
pub use children::end_with_supervisor;
use children::{Child, ServiceFiles, Signals, reap};
use daemon::Backoff;
use plan::{Part, parts};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long parts may take to shut down.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The longest time between two checks for ended children. Their end wakes the loop, so this only covers lost
/// notifications; an idle node should sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Why a node cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SuperviseError {
    /// Start-up failed.
    #[error("calico node failed to start: {0}")]
    Startup(#[from] StartupError),
    /// Tunnel addresses could not be assigned.
    #[error("calico node failed to start: {0}")]
    Tunnel(#[from] TunnelError),
    /// The parts cannot be started.
    #[error("{what}: {source}")]
    System {
        /// The step.
        what: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Runs the node. Ends with start-up's error, or when it is told to shut down.
///
/// # Errors
/// When the node cannot be started.
pub(crate) fn run(context: &Context, available: &[&str]) -> Result<(), SuperviseError> {
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| SuperviseError::System { what, source }
    };
    // This comes first: a signal during start-up must not be lost.
    let signals = Signals::receive().map_err(system("receiving signals"))?;
    let node_name = {
        // The runtime and its threads are dropped after start-up: from then on this process only waits.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("preparing to start"))?;
        let starting = async {
            let started = startup::run(context).await?;
            tunnel::run_once(context).await?;
            Ok::<_, SuperviseError>(started.node_name)
        };
        runtime.block_on(async {
            tokio::select! {
                outcome = starting => outcome.map(Some),
                // A node that waits for its datastore must still react to a signal.
                () = signals.end() => Ok(None),
            }
        })?
    };
    let Some(node_name) = node_name else { return Ok(()) };
    let program = std::env::current_exe().map_err(system("finding this program"))?;
    let parts = parts(&context.settings, &*context.environment, &node_name, available);
    for missing in parts.iter().filter(|part| !part.available) {
        tracing::error!(part = missing.name, "this version has no such part: the node runs without it");
    }
    let files = ServiceFiles::new(context).map_err(system("preparing the folder of services"))?;
    let parts = parts.into_iter().filter(|part| part.available);
    Supervisor { program, files, services: parts.map(|part| (part.name, Service::new(part))).collect() }
        .run(&signals);
    Ok(())
}

/// A part and its state.
struct Service {
    part: Part,
    backoff: Backoff,
    state: State,
}

enum State {
    Running { child: Child, since: Instant },
    Waiting { until: Instant },
}

impl Service {
    fn new(part: Part) -> Self {
        Self { part, backoff: Backoff::SERVER, state: State::Waiting { until: Instant::now() } }
    }
}

struct Supervisor {
    program: PathBuf,
    files: ServiceFiles,
    services: BTreeMap<&'static str, Service>,
}

impl Supervisor {
    fn run(&mut self, signals: &Signals) {
        tracing::info!("Calico node started successfully");
        while !signals.end_requested() {
            self.start_due(Instant::now());
            if signals.take_reload() {
                self.forward_reload();
            }
            self.collect(signals, Instant::now());
            signals.wait(self.next_wait(Instant::now()));
        }
        self.end(signals);
    }

    fn start_due(&mut self, now: Instant) {
        for service in self.services.values_mut() {
            let State::Waiting { until } = service.state else { continue };
            if until > now {
                continue;
            }
            let name = service.part.name;
            match Child::start(&self.program, &service.part) {
                Ok(child) => {
                    tracing::info!(part = name, pid = child.id(), "started");
                    self.files.running(name, child.id());
                    service.state = State::Running { child, since: now };
                }
                Err(error) => {
                    let pause = after_run(&mut service.backoff, Duration::ZERO);
                    tracing::error!(part = name, %error, "could not be started; trying again in {} s", pause.as_secs());
                    service.state = State::Waiting { until: now + pause };
                }
            }
        }
    }

    /// Records the end of all children, our own and inherited ones.
    fn collect(&mut self, signals: &Signals, now: Instant) {
        while let Some((pid, how)) = reap() {
            let ended = self
                .services
                .values_mut()
                .find(|service| matches!(&service.state, State::Running { child, .. } if child.id() == pid));
            // Other children are orphans that the kernel assigned to us.
            let Some(service) = ended else { continue };
            let State::Running { since, .. } = service.state else { continue };
            let pause = after_run(&mut service.backoff, now.duration_since(since));
            let name = service.part.name;
            // Ctrl-C reaches the parts as well as us, and their end may be seen first: in that case we shut down, too.
            signals.settle();
            if signals.end_requested() {
                tracing::debug!(part = name, how, "ended");
            } else {
                tracing::error!(part = name, how, "ended; starting it again in {} s", pause.as_secs());
            }
            self.files.stopped(name);
            service.state = State::Waiting { until: now + pause };
        }
    }

    fn next_wait(&self, now: Instant) -> Duration {
        let due = self.services.values().filter_map(|service| match service.state {
            State::Waiting { until } => Some(until.saturating_duration_since(now)),
            State::Running { .. } => None,
        });
        due.min().unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
    }

    fn forward_reload(&self) {
        for child in self.children() {
            child.reload();
        }
    }

    fn children(&self) -> impl Iterator<Item = &Child> {
        self.services.values().filter_map(|service| match &service.state {
            State::Running { child, .. } => Some(child),
            State::Waiting { .. } => None,
        })
    }

    /// Signals all parts to end, waits, and kills the remaining ones.
    fn end(&mut self, signals: &Signals) {
        tracing::info!("ending");
        for child in self.children() {
            child.terminate();
        }
        let deadline = Instant::now() + END_PATIENCE;
        while self.children().next().is_some() {
            self.collect(signals, Instant::now());
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                for child in self.children() {
                    tracing::error!(pid = child.id(), "did not end in time: killed");
                    child.kill();
                }
                break;
            }
            signals.wait(left.min(Duration::from_millis(100)));
        }
        self.collect(signals, Instant::now());
        self.files.clear();
    }
}
