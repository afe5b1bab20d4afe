//! The component: follows the intent, keeps the files up to date, runs BIRD.

use crate::cli::Arguments;
use crate::destinations::{DestinationError, Destinations};
use crate::keeper::{KeepError, Keeper};
use crate::process::{self, Process};
use crate::programs::Programs;
use crate::render::{Dialect, FileName, Left, render};
use crate::sessions;
use bgp::intent::Intent;
use bgp::{IpVersion, NodeMissing};
use bgp_source::{Latest, Options, OptionsError, SourceError};
use daemon::{Environment, Shutdown, causes};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long changes are gathered before files are written: a new node causes changes of several objects.
const GATHER: Duration = Duration::from_millis(200);
/// After what time a failed update of the files is retried.
const AGAIN: Duration = Duration::from_secs(10);
/// The folder of runit's services in one of Calico's containers.
const RUNIT: &str = "/etc/service/enabled";

/// Why the component cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The environment cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The sources cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The destinations of files cannot be used.
    #[error(transparent)]
    Destinations(#[from] DestinationError),
    /// With `--run-once`, there is nothing to write.
    #[error(transparent)]
    NodeMissing(#[from] NodeMissing),
    /// With `--run-once`, the files could not be put in place.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The sources ended.
    #[error("the datastore is no longer followed")]
    Ended,
}

/// Runs until shutdown is requested, or, with `--run-once`, until the files are in place.
///
/// # Errors
/// When it cannot continue.
pub async fn run(
    arguments: &Arguments,
    environment: &(dyn Environment + Send + Sync),
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let options = Options::read(environment, arguments.calicoconfig.as_deref())?;
    let log = options.start_log();
    let destinations = Destinations::read(&arguments.confdir)?;
    let ipv6 = options.ipv6;
    let programs = Programs::find(environment).await;
    match &programs {
        Some(programs) => tracing::info!(?programs, "BIRD found"),
        None => {
            tracing::warn!("BIRD was not found on PATH: files are written unchecked, and nothing is started");
        }
    }
    let keeper = Keeper { destinations, keep_stage: arguments.keep_stage_file };
    let source = bgp_source::start(options, environment).await?;
    let mut component = Component { keeper, programs, reported: Vec::new(), told: Vec::new() };
    let mut processes = JoinSet::new();
    if !arguments.run_once {
        component.told = component.start(arguments, ipv6, &shutdown, &mut processes);
    }
    let mut latest = source.latest();
    loop {
        let current = latest.borrow_and_update().clone();
        let mut again = None;
        match current {
            Latest::Waiting => {}
            Latest::NodeMissing(missing) if arguments.run_once => return Err(missing.into()),
            Latest::NodeMissing(missing) => tracing::warn!("{missing}: BIRD's files remain unchanged"),
            Latest::Intent(intent) => {
                log.follow(intent.log_level);
                let outcome = component.carry_out(&intent).await;
                if arguments.run_once {
                    return Ok(outcome?);
                }
                if let Err(error) = outcome {
                    tracing::error!(error = %causes(&error), "trying again in {} s", AGAIN.as_secs());
                    again = Some(AGAIN);
                }
            }
        }
        let pause = async {
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = latest.changed() => {
                if changed.is_err() {
                    return Err(RunError::Ended);
                }
                if !arguments.run_once && !shutdown.sleep(GATHER).await {
                    break;
                }
            }
            () = pause => {}
            () = shutdown.requested() => break,
        }
    }
    while processes.join_next().await.is_some() {}
    Ok(())
}

struct Component {
    keeper: Keeper,
    programs: Option<Programs>,
    reported: Vec<Left>,
    told: Vec<Told>,
}

/// A process to notify of changed files.
struct Told {
    version: IpVersion,
    sender: mpsc::Sender<()>,
    /// Whether it has yet to be notified of files that are in place.
    pending: bool,
}

impl Component {
    /// Starts the tasks that keep BIRD running, which wait for the first files.
    fn start(
        &self,
        arguments: &Arguments,
        ipv6: bool,
        shutdown: &Shutdown,
        processes: &mut JoinSet<()>,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        for (version, name) in [(IpVersion::V4, "bird"), (IpVersion::V6, "bird6")] {
            if version == IpVersion::V6 && !ipv6 {
                continue;
            }
            let (sender, mut changes) = mpsc::channel(1);
            let socket = arguments.run_dir.join(format!("{name}.ctl"));
            if process::is_of_runit(Path::new(RUNIT), name) {
                let shutdown = shutdown.clone();
                processes.spawn(async move {
                    tokio::select! {
                        () = process::tell(name, version, &socket, &mut changes) => {}
                        () = shutdown.requested() => {}
                    }
                });
            } else if let Some(bird) = self.programs.as_ref().and_then(|programs| programs.of(version)) {
                let process = Process {
                    name,
                    version,
                    bird: bird.clone(),
                    file: self.keeper.destinations.place(FileName::Main(version)).to_owned(),
                    socket,
                    pid_file: arguments.run_dir.join("services").join(name),
                };
                processes.spawn(sessions::follow(version, process.socket.clone(), shutdown.clone()));
                processes.spawn(process.run(changes, shutdown.clone()));
            } else {
                continue;
            }
            // Files of an earlier run are as good as new ones: a BIRD that is not running needs them.
            told.push(Told { version, sender, pending: true });
        }
        told
    }

    /// Updates the files of both families and notifies BIRD. A failure of one family does not affect the other.
    async fn carry_out(&mut self, intent: &Intent) -> Result<(), KeepError> {
        let dialect = self.programs.as_ref().map_or(Dialect::One, |programs| programs.dialect);
        let files = render(intent, dialect);
        for left in files.left.iter().filter(|left| !self.reported.contains(left)) {
            tracing::warn!("{left}");
        }
        self.reported.clone_from(&files.left);
        let mut outcome = Ok(());
        for version in [IpVersion::V4, IpVersion::V6] {
            let bird = self.programs.as_ref().and_then(|programs| programs.of(version));
            let changed = match self.keeper.keep(&files, version, bird).await {
                Ok(changed) => changed,
                Err(error) => {
                    outcome = Err(error);
                    false
                }
            };
            // This includes files of an earlier run, which BIRD accepted.
            if self.keeper.destinations.place(FileName::Main(version)).exists() {
                for told in self.told.iter_mut().filter(|told| told.version == version) {
                    told.pending |= changed;
                    told.tell();
                }
            }
        }
        outcome
    }
}

impl Told {
    fn tell(&mut self) {
        if std::mem::take(&mut self.pending) {
            // One waiting message is enough for any number of changes.
            let _ = self.sender.try_send(());
        }
    }
}
