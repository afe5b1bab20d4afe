//! The supervisor's system interface: processes, signals, and the files that record running parts.
//!
//! One call reaps all children, both ours and orphans, so nothing else in this process may wait for children: a second
//! waiter would take their exit status.

use super::plan::Part;
use crate::context::Context;
use crate::health::SERVICES;
use daemon::{Environment as _, SystemEnvironment};
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, set_parent_process_death_signal, wait,
};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often start-up checks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// How long a signal may take until the receiving thread sees it.
const SETTLE: Duration = Duration::from_millis(50);

/// The variable with the process id of a part's supervisor.
const SUPERVISOR: &str = "TORTIE_SUPERVISOR";

/// A running part.
pub(super) struct Child {
    pid: Pid,
}

impl Child {
    /// Starts a part as a process of this program, with our output streams.
    pub(super) fn start(program: &Path, part: &Part) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg0(part.called).args(part.arguments).stdin(Stdio::null());
        command.env(SUPERVISOR, std::process::id().to_string());
        for (name, value) in &part.variables {
            command.env(name, value);
        }
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // The handle is dropped on purpose: `reap` collects the exit status of all children.
        pid.map(|pid| Self { pid }).ok_or_else(|| io::Error::other("the system gave no process id"))
    }

    pub(super) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn reload(&self) {
        self.signal(Signal::HUP);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process(self.pid, signal) {
            tracing::debug!(pid = self.id(), %error, "could not be signalled: it has ended");
        }
    }
}

/// Makes this process end when its supervisor does, if it has one: a part that outlived a killed supervisor would
/// conflict with the next supervisor's. Must be called before anything else, on the main thread.
///
/// # Errors
/// When the supervisor is gone already, or the system call fails.
pub fn end_with_supervisor() -> io::Result<()> {
    let Some(supervisor) = SystemEnvironment.text(SUPERVISOR).and_then(|pid| pid.parse::<i32>().ok()) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before the signal was set up.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) == Some(supervisor) {
        return Ok(());
    }
    Err(io::Error::other(format!("the supervisor, process {supervisor}, has ended")))
}

/// Reaps a child. Returns its process id and how it ended; `None` if no child has ended.
pub(super) fn reap() -> Option<(i32, String)> {
    match wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => {
            let how = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) if signal == Signal::ABORT.as_raw() => {
                    "a bug in the program: see its last message".to_owned()
                }
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => return None,
            };
            Some((pid.as_raw_nonzero().get(), how))
        }
        // Having no children is not an error.
        Ok(None) | Err(_) => None,
    }
}

/// Receives signals on a separate thread; waiting for them has a time limit.
pub(super) struct Signals {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    reload: AtomicBool,
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Shared {
    fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }
}

impl Signals {
    /// Starts receiving SIGTERM, SIGINT, SIGHUP and SIGCHLD.
    pub(super) fn receive() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Shared::default());
        // Registered here, so that no signal is lost once this returns.
        let (mut terminate, mut interrupt, mut hangup, mut child) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::child())?,
            )
        };
        let received = shared.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async move {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => received.end.store(true, Ordering::SeqCst),
                        _ = interrupt.recv() => received.end.store(true, Ordering::SeqCst),
                        _ = hangup.recv() => received.reload.store(true, Ordering::SeqCst),
                        _ = child.recv() => {}
                    }
                    received.wake();
                }
            });
        })?;
        Ok(Self { shared })
    }

    pub(super) fn end_requested(&self) -> bool {
        self.shared.end.load(Ordering::SeqCst)
    }

    /// Waits until the shutdown is requested.
    pub(super) async fn end(&self) {
        while !self.end_requested() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a signal that arrived with the end of a part is visible.
    pub(super) fn settle(&self) {
        if !self.end_requested() {
            std::thread::sleep(SETTLE);
        }
    }

    pub(super) fn take_reload(&self) -> bool {
        self.shared.reload.swap(false, Ordering::SeqCst)
    }

    /// Waits for a signal, but at most this long.
    pub(super) fn wait(&self, limit: Duration) {
        let woken = self.shared.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.shared.wake.wait_timeout_while(woken, limit, |woken| !*woken);
        let (mut woken, _) = outcome.unwrap_or_else(PoisonError::into_inner);
        *woken = false;
    }
}

/// One file per running part with its process id.
pub(super) struct ServiceFiles {
    folder: PathBuf,
}

impl ServiceFiles {
    /// Starts with an empty folder: files of an earlier run do not apply to this one.
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let files = Self { folder: context.path(SERVICES) };
        files.clear();
        std::fs::create_dir_all(&files.folder)?;
        Ok(files)
    }

    pub(super) fn running(&self, name: &str, pid: i32) {
        self.write(name, &pid.to_string());
    }

    /// Empties the file and keeps it: the part should be running but is not.
    pub(super) fn stopped(&self, name: &str) {
        self.write(name, "");
    }

    pub(super) fn clear(&self) {
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, folder = %self.folder.display(), "could not clear the folder of services");
            }
            _ => {}
        }
    }

    fn write(&self, name: &str, text: &str) {
        // Only probes read these files; a full disk must not stop the node.
        if let Err(error) = daemon::files::publish(&self.folder.join(name), text.as_bytes(), 0o644) {
            tracing::warn!(part = name, %error, "could not note the state of this part");
        }
    }
}
