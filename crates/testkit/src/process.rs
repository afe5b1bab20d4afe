//! A child process: found, started, paused, killed and reliably ended.

use anyhow::{Context, Result, bail};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A child process; dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// Sends a signal to a process that this test, or one of its processes, has started.
///
/// # Errors
/// When the process does not exist.
pub fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(pid.context("not a process id")?, signal)
        .with_context(|| format!("sending {signal:?} to process {process}"))
}

type Job = Box<dyn FnOnce() + Send>;

impl Process {
    /// Starts `program` with `arguments` and writes its output to `log`.
    ///
    /// The parent-death signal is tied to the *thread* that forks, and test threads end early; so one thread that
    /// lives as long as this process does all the forking.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening the log {}", log.display()))?;
        let mut command = Command::new(self::program("setpriv", "install Debian's util-linux")?);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let (sender, receiver) = channel();
        spawner(Box::new(move || {
            // The receiver waits below, so it still exists.
            let _ = sender.send(command.spawn());
        }));
        let child = receiver.recv()?.with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Checks that it has not ended by itself. The error contains the end of its log.
    ///
    /// # Errors
    /// When it is no longer running.
    pub fn check_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the process ended early ({status}); its log ends with:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Resident memory in KiB.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        Ok(line.split_whitespace().nth(1).context("no number in VmRSS")?.parse()?)
    }

    /// Stops it (SIGSTOP).
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues it (SIGCONT).
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Kills it (SIGKILL) and waits.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal)?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

fn spawner(job: Job) {
    static SENDER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let sender = SENDER.get_or_init(|| {
        let (sender, receiver) = channel::<Job>();
        std::thread::spawn(move || receiver.into_iter().for_each(|job| job()));
        Mutex::new(sender)
    });
    // The thread never ends, so sending cannot fail.
    let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(job);
}

/// Finds a program on `PATH` (or where Debian installs programs for root).
///
/// # Errors
/// When it is not found; the message contains instructions.
pub fn program(name: &str, remedy: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("this test needs the program '{name}', which is not on PATH: {remedy}"))
}

/// Finds the example program of this name in the crate under test: a process that tests start and kill.
///
/// # Errors
/// When it has not been built.
pub fn example(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe().context("finding the test program")?;
    let path = test.parent().and_then(Path::parent).map(|folder| folder.join("examples").join(name));
    path.filter(|path| path.is_file()).with_context(|| {
        format!("the example program '{name}' is not built; `cargo test -p CRATE` builds it")
    })
}

/// Runs a command with this input to its end. A command that ends without reading its input is not an error.
///
/// # Errors
/// When the program does not exist, even behind `ip netns exec` or a shell: that is a missing install step, and must
/// not be mistaken for a result.
pub fn finish(mut command: Command, input: &str) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?} (see scripts/programs.txt for its package)"))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })?;
    let words = String::from_utf8_lossy(&output.stderr);
    let is_missing = output.status.code() == Some(127) || words.contains("exec of \"");
    anyhow::ensure!(!is_missing, "{command:?} needs a program that is not installed: {}", words.trim());
    Ok(output)
}

/// A TCP port on loopback that was free a moment ago.
///
/// # Errors
/// When there is no free port.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
