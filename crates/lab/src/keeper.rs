//! The keeper: one process per lab that holds its network namespaces and is the parent of its programs.
//!
//! Nothing of a lab is pinned anywhere: namespaces are open descriptors of the keeper (`/proc/KEEPER/fd/N` names them),
//! and programs die with it. So the end of the keeper, whatever its cause, is the end of the lab, and the host is never
//! touched. It takes requests on a socket in the lab's folder, one JSON line each, one at a time: all programs are
//! started by its first thread, to which the kernel ties their death.
//!
//! It makes no decisions; [`crate::lab`] determines what runs where.

use crate::inside::{command, own_command};
use crate::state::{Folder, KeeperState, start_time};
use crate::{called, rights};
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The maximum length of a request.
const LONGEST_REQUEST: u64 = 1 << 20;
/// How long a program may take to end when asked to. Its data is discarded, so there is no reason to wait longer.
const END_PATIENCE: Duration = Duration::from_millis(700);

/// A request to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Create a network namespace, or keep an existing one of that name.
    Namespace { name: String },
    /// Drop a network namespace.
    Forget { name: String },
    /// Start a program.
    Start {
        name: String,
        /// Program and arguments.
        words: Vec<String>,
        /// Its whole environment.
        environment: BTreeMap<String, String>,
    },
    /// End a program.
    Stop { name: String },
    /// Survive the command that created the lab.
    Stay,
    /// List the programs.
    List,
    /// End everything.
    End,
}

/// The keeper's answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The error, if the request failed.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// The path of a namespace.
    #[serde(default)]
    pub(crate) path: Option<PathBuf>,
    /// Programs, and how they ended if they did.
    #[serde(default)]
    pub(crate) programs: BTreeMap<String, Program>,
}

/// A program of the keeper.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its process id.
    pub(crate) pid: u32,
    /// How it ended.
    pub(crate) ended: Option<String>,
}

/// The other side: a command's access to a lab's keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: Folder,
}

impl Keeper {
    /// Starts a keeper for a new folder and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started; the message is the keeper's own.
    pub(crate) fn start(folder: &Folder) -> Result<Self> {
        folder.check_space()?;
        let path = folder.log("keeper");
        let log = std::fs::File::create(&path).with_context(|| format!("writing {}", path.display()))?;
        let mut command = own_command();
        command.args(["lab", "internal", "keeper", "--folder"]).arg(folder.path());
        // Programs carry the mark from the first moment, before they become what they are meant to be.
        command.env(crate::inside::MARK, folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().context("starting the lab's keeper")?;
        let keeper = Self { folder: folder.clone() };
        let deadline = Instant::now() + Duration::from_secs(20);
        while keeper.ask(&Request::List).is_err() {
            if child.try_wait()?.is_some() {
                let told = folder.log_tail("keeper", 3);
                let told = told.trim_start_matches("tortie: ").trim();
                if told.is_empty() {
                    bail!("the lab's keeper ended at once, and wrote nothing to {}", path.display());
                }
                bail!("{told}");
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the lab's keeper does not answer; its log is {}", folder.log("keeper").display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(keeper)
    }

    /// The keeper of an existing lab.
    pub(crate) fn of(folder: &Folder) -> Self {
        Self { folder: folder.clone() }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the keeper is gone, or reports an error.
    pub(crate) fn ask(&self, request: &Request) -> Result<Answer> {
        let name = self.folder.name();
        let mut stream = UnixStream::connect(self.folder.file("keeper.sock")).with_context(|| {
            let remedy = called::command(name, "down");
            format!("lab '{name}' is no longer running; `{remedy}` removes it")
        })?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut text = String::new();
        BufReader::new(stream).read_line(&mut text)?;
        let answer: Answer = serde_json::from_str(&text).context("the lab's keeper ended in the middle")?;
        match answer.error {
            Some(error) => Err(anyhow!(error)),
            None => Ok(answer),
        }
    }

    /// Creates a network namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<PathBuf> {
        let answer = self.ask(&Request::Namespace { name: name.to_owned() })?;
        answer.path.context("the keeper did not name its namespace")
    }
}

/// The keeper's own state.
struct Held {
    namespaces: BTreeMap<String, OwnedFd>,
    children: BTreeMap<String, Child>,
    ended: BTreeMap<String, Program>,
    folder: Folder,
}

/// Runs the keeper of a lab until it is asked to end.
///
/// # Errors
/// When it cannot start.
pub(crate) fn run(path: &Path) -> Result<()> {
    let folder = Folder::at(path)?;
    let rootless = !rights::is_privileged();
    if rootless {
        rights::become_root_of_namespace()?;
    }
    // Only now: the kernel clears the setting when rights change. An unfinished lab ends with the command that creates
    // it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let pid = std::process::id();
    let started = start_time(pid).context("reading /proc/self/stat")?;
    folder.write("keeper.json", &serde_json::to_vec(&KeeperState { pid, started, rootless })?)?;
    let listener = UnixListener::bind(folder.file("keeper.sock"))
        .with_context(|| format!("listening on {}", folder.file("keeper.sock").display()))?;
    let mut held =
        Held { namespaces: BTreeMap::new(), children: BTreeMap::new(), ended: BTreeMap::new(), folder };
    loop {
        let (stream, _) = listener.accept()?;
        let (answer, is_last) = match read_request(&stream) {
            Ok(Request::End) => {
                held.end();
                (Answer::default(), true)
            }
            Ok(request) => {
                let answer = held.carry_out(&request);
                (
                    answer.unwrap_or_else(|error| Answer {
                        error: Some(format!("{error:#}")),
                        ..Answer::default()
                    }),
                    false,
                )
            }
            Err(error) => (Answer { error: Some(format!("{error:#}")), ..Answer::default() }, false),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        // The command that asked may be gone.
        let _ = (&stream).write_all(&line);
        if is_last {
            return Ok(());
        }
    }
}

fn read_request(stream: &UnixStream) -> Result<Request> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_REQUEST)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

impl Held {
    fn carry_out(&mut self, request: &Request) -> Result<Answer> {
        self.reap();
        let mut answer = Answer::default();
        match request {
            Request::Namespace { name } => {
                if !self.namespaces.contains_key(name) {
                    self.namespaces.insert(name.clone(), new_network_namespace()?);
                }
                let file = self.namespaces.get(name).context("no namespace")?;
                let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
                answer.path = Some(PathBuf::from(path));
            }
            Request::Forget { name } => drop(self.namespaces.remove(name)),
            Request::Start { name, words, environment } => {
                if self.children.contains_key(name) {
                    bail!("{name} runs already");
                }
                self.ended.remove(name);
                let (program, arguments) = words.split_first().context("no program")?;
                let path = self.folder.log(name);
                let log = std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(&path)
                    .with_context(|| format!("writing {}", path.display()))?;
                let child = command(program)
                    .args(arguments)
                    .env_clear()
                    .envs(environment)
                    .stdin(Stdio::null())
                    .stdout(log.try_clone()?)
                    .stderr(log)
                    .spawn()
                    .with_context(|| format!("starting {name}"))?;
                self.children.insert(name.clone(), child);
            }
            Request::Stop { name } => {
                if let Some(child) = self.children.remove(name) {
                    end_all(vec![child]);
                }
            }
            Request::Stay => {
                set_parent_process_death_signal(None)?;
                // A terminal's interrupts are meant for the command that created the lab, not for the lab.
                let _ = rustix::process::setsid();
            }
            Request::List => {
                for (name, child) in &self.children {
                    answer.programs.insert(name.clone(), Program { pid: child.id(), ended: None });
                }
                answer.programs.extend(self.ended.clone());
            }
            Request::End => {}
        }
        Ok(answer)
    }

    /// Records programs that ended by themselves.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        for (name, child) in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                ended.push((name.clone(), Program { pid: child.id(), ended: Some(status.to_string()) }));
            }
        }
        for (name, program) in ended {
            self.children.remove(&name);
            self.ended.insert(name, program);
        }
    }

    fn end(&mut self) {
        end_all(std::mem::take(&mut self.children).into_values().collect());
    }
}

/// Asks programs to end, waits, and kills the remaining ones.
fn end_all(mut children: Vec<Child>) {
    for child in &children {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let deadline = Instant::now() + END_PATIENCE;
    while Instant::now() < deadline {
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if children.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A new network namespace, created by a thread that ends there.
fn new_network_namespace() -> Result<OwnedFd> {
    let made = std::thread::spawn(|| -> rustix::io::Result<OwnedFd> {
        rights::unshare(UnshareFlags::NEWNET)?;
        open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    });
    match made.join() {
        Ok(outcome) => outcome.context("creating a network namespace"),
        Err(_) => bail!("creating a network namespace: the thread failed"),
    }
}
