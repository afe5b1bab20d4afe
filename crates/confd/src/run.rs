//! The component: follows the intent, keeps the files, runs BIRD.

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

/// How long changes are gathered before files are written: a node that comes brings several objects.
const GATHER: Duration = Duration::from_millis(200);
/// How soon files that could not be brought into place are tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// Where runit's services are in a container of Calico's.
const RUNIT: &str = "/etc/service/enabled";

/// It cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The environment cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The sources cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The places of files cannot be used.
    #[error(transparent)]
    Destinations(#[from] DestinationError),
    /// There is nothing to write, and nobody waits for it.
    #[error(transparent)]
    NodeMissing(#[from] NodeMissing),
    /// The files are not in place, and nobody tries again.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The sources ended.
    #[error("the datastore is no longer followed")]
    Ended,
}

/// Runs until the end is asked for, or, with `--run-once`, until the files are in place.
///
/// # Errors
/// When it cannot go on.
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
            Latest::NodeMissing(missing) => tracing::warn!("{missing}: BIRD's files stay as they are"),
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

/// Who hears of changed files.
struct Told {
    version: IpVersion,
    sender: mpsc::Sender<()>,
    /// Whether files are in place that it has not heard of.
    pending: bool,
}

impl Component {
    /// Starts what keeps BIRD running, which waits for the first files.
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

    /// Brings the files of both families into place and tells BIRD. One family's trouble is not the other's.
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
            // Also with the files of an earlier run, which BIRD took.
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
            // One message that waits is enough for any number of changes.
            let _ = self.sender.try_send(());
        }
    }
}
