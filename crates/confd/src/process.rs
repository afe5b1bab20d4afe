//! One BIRD process: started when its file exists, restarted when it ends, notified when its file changes.
//!
//! It is ended by SIGKILL on purpose: on SIGTERM, BIRD would close its sessions, and peers would drop the routes that a
//! graceful restart keeps. Calico's container does the same. It is notified of changes over its socket: a signal would
//! terminate one that has only just started.
//! one that has only just begun.

use crate::programs::Bird;
use bgp::IpVersion;
use bird_control::BirdError;
use daemon::{Backoff, Shutdown};
use netlink::{Kernel as _, RouteFilter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::Child;
use tokio::sync::mpsc;

/// A process that ran for this long did not fail to start.
const SETTLED: Duration = Duration::from_secs(30);
/// How soon a process that did not answer is notified again.
const AGAIN: Duration = Duration::from_millis(250);
/// BIRD's protocol number in the kernel.
const PROTOCOL: u8 = 12;

/// The parameters of a BIRD process.
pub(crate) struct Process {
    /// `bird` or `bird6`: the name of the service.
    pub(crate) name: &'static str,
    pub(crate) version: IpVersion,
    pub(crate) bird: Bird,
    pub(crate) file: PathBuf,
    pub(crate) socket: PathBuf,
    /// The file of the process id, for health checks.
    pub(crate) pid_file: PathBuf,
}

impl Process {
    /// Keeps the process running until shutdown. Each message means that the file changed; the first one that it
    /// exists.
    pub(crate) async fn run(self, mut changes: mpsc::Receiver<()>, shutdown: Shutdown) {
        tokio::select! {
            change = changes.recv() => if change.is_none() { return },
            () = shutdown.requested() => return,
        }
        let mut backoff = Backoff::SERVER;
        while !shutdown.is_requested() {
            let begin = Instant::now();
            match self.bird.start(&self.file, &self.socket, has_routes(self.version)) {
                Err(error) => tracing::error!(bird = self.name, %error, "BIRD cannot be started"),
                Ok(mut child) => {
                    self.started(&child);
                    let ended = self.attend(&mut child, &mut changes, &shutdown).await;
                    let _ = std::fs::remove_file(&self.pid_file);
                    match ended {
                        None => return,
                        Some(how) => tracing::error!(bird = self.name, how, "BIRD ended"),
                    }
                }
            }
            if begin.elapsed() >= SETTLED {
                backoff.reset();
            }
            let pause = backoff.pause();
            tracing::info!(bird = self.name, "starting BIRD again in {} s", pause.as_secs());
            // A change may fix the problem.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(()) = changes.recv() => {}
                () = shutdown.requested() => {}
            }
        }
    }

    fn started(&self, child: &Child) {
        let Some(pid) = child.id() else { return };
        tracing::info!(bird = self.name, pid, "BIRD started");
        if let Some(folder) = self.pid_file.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        if let Err(error) = daemon::files::publish(&self.pid_file, pid.to_string().as_bytes(), 0o644) {
            tracing::warn!(file = %self.pid_file.display(), %error, "health checks will not see this BIRD");
        }
    }

    /// Waits for the process to end and passes changes on. `None` if it was ended because of shutdown.
    async fn attend(
        &self,
        child: &mut Child,
        changes: &mut mpsc::Receiver<()>,
        shutdown: &Shutdown,
    ) -> Option<String> {
        tokio::select! {
            ended = child.wait() => {
                return Some(ended.map_or_else(|error| error.to_string(), |status| status.to_string()));
            }
            () = tell(self.name, self.version, &self.socket, changes) => {}
            () = shutdown.requested() => {}
        }
        let _ = child.kill().await;
        None
    }
}

/// Notifies a BIRD of each change, until there are no more to come.
pub(crate) async fn tell(name: &str, version: IpVersion, socket: &Path, changes: &mut mpsc::Receiver<()>) {
    while changes.recv().await.is_some() {
        // A BIRD that does not answer has not started yet, or is busy: in either case it may have read the old files.
        loop {
            match bird_control::reload(version, &[socket]).await {
                Ok(words) => tracing::info!(bird = name, "BIRD was asked to read its changed files: {words}"),
                Err(error @ BirdError::Refused { .. }) => {
                    tracing::error!(bird = name, %error, "BIRD keeps its previous configuration");
                }
                Err(error) => {
                    tracing::debug!(bird = name, %error, "BIRD could not be asked to read its changed files");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            }
            break;
        }
    }
}

/// Whether the kernel has routes of a previous BIRD, or of the native speaker. If there are none, there is nothing to
/// recover, and a BIRD that recovers gives the kernel no route for four minutes if a single peer is missing.
fn has_routes(version: IpVersion) -> bool {
    let family = match version {
        IpVersion::V4 => netlink::Family::V4,
        IpVersion::V6 => netlink::Family::V6,
    };
    let filter = RouteFilter {
        table: Some(netlink::TABLE_MAIN),
        protocol: Some(PROTOCOL),
        ..RouteFilter::all(family)
    };
    let routes = netlink::Handle::open().and_then(|mut kernel| kernel.routes(&filter));
    // If the kernel cannot be read, recovery is the safer choice.
    routes.map_or(true, |routes| !routes.is_empty())
}

/// Whether runit runs this BIRD, in one of Calico's containers; then we must not start it.
pub(crate) fn is_of_runit(services: &Path, name: &str) -> bool {
    services.join(name).join("run").exists()
}
