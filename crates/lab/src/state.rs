//! The state of a lab on disk: one folder per lab, with the plan, the running programs, logs and sockets.
//!
//! ```text
//! LABS/NAME/lab.json      the plan and the pods that are there
//! LABS/NAME/keeper.json   the process that holds everything
//! LABS/NAME/keeper.sock   where it takes requests
//! LABS/NAME/logs/         one file per process
//! LABS/NAME/places/NODE/  the node's own /run, /var/lib, /var/log and /etc/calico
//! ```
//!
//! The folder is all that is left of a lab whose keeper was killed, and all that `down` then has to remove. Names that
//! would lead out of the folder of labs are refused.

use crate::called;
use crate::topology::{Pod, Topology, check_lab_name};
use anyhow::{Context as _, Result, anyhow, bail};
use daemon::{Environment as _, SystemEnvironment};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable that names another folder of labs.
pub(crate) const FOLDER_VARIABLE: &str = "TORTIE_LAB_DIR";
/// The maximum length of a folder's path: the kernel limits the paths of sockets in it.
const LONGEST_FOLDER: usize = 80;
/// How long a command waits for another command on the same lab.
const PATIENCE: Duration = Duration::from_secs(120);
/// The space in bytes that the smallest lab needs in its first second.
const SPACE: usize = 1 << 20;
/// The maximum time between creating a lab's folder and having its lock and its keeper.
const MAKING: Duration = Duration::from_secs(20);

/// An existing pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodState {
    /// Its plan.
    #[serde(flatten)]
    pub pod: Pod,
    /// The container's id.
    pub container: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace.
    pub netns: PathBuf,
}

/// The state of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The plan.
    pub topology: Topology,
    /// The network namespaces of the router and the nodes, by name.
    pub namespaces: BTreeMap<String, PathBuf>,
    /// The pods, by namespace and name.
    pub pods: BTreeMap<String, PodState>,
    /// Whether it was started completely.
    pub ready: bool,
}

/// The process that holds a lab's resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeeperState {
    /// Its process id.
    pub pid: u32,
    /// Its start time in kernel ticks, which distinguishes it from a later process with the same id.
    pub started: u64,
    /// Whether it is in a user namespace.
    pub rootless: bool,
}

impl KeeperState {
    /// Whether it is still running.
    #[must_use]
    pub(crate) fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// The start time of a process, in ticks since boot; `None` when it is gone or a zombie.
#[must_use]
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The folder of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
    name: String,
}

/// The folder of this user's labs.
#[must_use]
pub(crate) fn labs_folder() -> PathBuf {
    if let Some(folder) = SystemEnvironment.filled(FOLDER_VARIABLE) {
        return PathBuf::from(folder);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/tortie/labs");
    }
    match SystemEnvironment.variable("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_dir()) {
        Some(folder) => Path::new(&folder).join("tortie/labs"),
        None => std::env::temp_dir().join(format!("tortie-labs-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The names of the existing labs.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn lab_names() -> Result<Vec<String>> {
    let folder = labs_folder();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| check_lab_name(name).is_ok())
        .collect();
    names.sort();
    Ok(names)
}

impl Folder {
    /// The folder of the lab of this name, whether or not it exists.
    ///
    /// # Errors
    /// When the name is not allowed for a lab.
    pub(crate) fn of(name: &str) -> Result<Self> {
        check_lab_name(name)?;
        let path = std::path::absolute(labs_folder().join(name))?;
        if path.as_os_str().len() > LONGEST_FOLDER {
            bail!("{} is too long for sockets: set {FOLDER_VARIABLE} to a shorter path", path.display());
        }
        Ok(Self { path, name: name.to_owned() })
    }

    /// The folder at a path, for processes of the lab itself.
    ///
    /// # Errors
    /// When the path does not end in a valid name of a lab.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        check_lab_name(name)?;
        Ok(Self { path: path.to_owned(), name: name.to_owned() })
    }

    /// The lab's name.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The path of the folder.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder exists.
    #[must_use]
    pub(crate) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Creates the folder, accessible only by its owner.
    ///
    /// # Errors
    /// When it already exists or cannot be created.
    pub(crate) fn make(&self) -> Result<()> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .with_context(|| format!("making {}", parent.display()))?;
        // A folder in a world-writable place may be another user's trap.
        let owner = std::fs::metadata(parent)?.uid();
        let own = rustix::process::geteuid().as_raw();
        if owner != own && owner != 0 {
            bail!("{} belongs to user {owner}, not to you: set {FOLDER_VARIABLE}", parent.display());
        }
        DirBuilder::new().mode(0o700).create(&self.path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                let remedy = called::command(&self.name, "down");
                anyhow!("lab '{}' already exists: `{remedy}` removes it", self.name)
            }
            _ => anyhow!("making {}: {error}", self.path.display()),
        })?;
        for folder in ["logs", "places"] {
            let path = self.path.join(folder);
            std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        }
        Ok(())
    }

    /// Checks that there is enough space for a lab: running out of it later causes confusing failures.
    ///
    /// # Errors
    /// When there is not enough space.
    pub(crate) fn check_space(&self) -> Result<()> {
        self.write("space", &vec![0; SPACE])?;
        let path = self.file("space");
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// The path of a file or folder in it.
    #[must_use]
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The log of a process.
    #[must_use]
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.path.join("logs").join(format!("{}.log", process.replace('/', "-")))
    }

    /// The last lines of a log, for messages.
    #[must_use]
    pub(crate) fn log_tail(&self, process: &str, lines: usize) -> String {
        let bytes = std::fs::read(self.log(process)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Reads the state of the lab.
    ///
    /// # Errors
    /// When there is no such lab, or its file cannot be read.
    pub(crate) fn load(&self) -> Result<State> {
        if !self.exists() {
            return Err(self.missing());
        }
        let text = std::fs::read_to_string(self.file("lab.json")).with_context(|| {
            let remedy = called::command(&self.name, "down");
            format!("lab '{}' did not come up; `{remedy}` removes what is left", self.name)
        })?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", self.file("lab.json").display()))
    }

    /// The error for a lab that does not exist.
    pub(crate) fn missing(&self) -> anyhow::Error {
        match lab_names().unwrap_or_default() {
            there if there.is_empty() => {
                anyhow!("lab '{}' not found: `{}` creates one", self.name, called::command(&self.name, "up"))
            }
            there => anyhow!("lab '{}' not found; existing labs: {}", self.name, there.join(", ")),
        }
    }

    /// Whether a lab was here whose keeper is gone, and which is not being created again at this moment.
    #[must_use]
    pub(crate) fn is_dead(&self) -> bool {
        if !self.exists() || self.keeper().is_some_and(|keeper| keeper.is_alive()) {
            return false;
        }
        // A command that creates a lab holds the lock from the start, except while it creates the folder.
        let is_young = std::fs::metadata(&self.path)
            .and_then(|about| about.modified())
            .is_ok_and(|then| then.elapsed().is_ok_and(|age| age < MAKING));
        let free = match File::options().append(true).open(self.file("lock")) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => !is_young,
        };
        free && (self.keeper().is_some() || !is_young)
    }

    /// Writes the state atomically.
    ///
    /// # Errors
    /// When the state cannot be written.
    pub(crate) fn save(&self, state: &State) -> Result<()> {
        self.write("lab.json", &serde_json::to_vec_pretty(state)?)
    }

    /// The lab's age.
    #[must_use]
    pub(crate) fn age(&self) -> Option<Duration> {
        let about = |path: PathBuf| std::fs::metadata(path).and_then(|about| about.modified()).ok();
        // The keeper writes its file once, when it starts.
        let made = about(self.file("keeper.json")).or_else(|| about(self.path.clone()))?;
        Some(made.elapsed().unwrap_or_default())
    }

    /// The keeper's process, running or not.
    #[must_use]
    pub(crate) fn keeper(&self) -> Option<KeeperState> {
        let text = std::fs::read_to_string(self.file("keeper.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<()> {
        let file = self.file(name);
        daemon::files::publish(&file, contents, 0o644).with_context(|| format!("writing {}", file.display()))
    }

    /// Writes a file that only its owner may read.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write_secret(&self, name: &str, text: &str) -> Result<()> {
        let path = self.file(name);
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Makes other commands on this lab wait until the returned value is dropped.
    ///
    /// # Errors
    /// When another command does not end in time.
    pub(crate) fn lock(&self) -> Result<File> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.file("lock"))
            .with_context(|| format!("there is no lab '{}' that this user may change", self.name))?;
        let deadline = Instant::now() + PATIENCE;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > deadline {
                bail!("another command is still working on lab '{}'", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::{Folder, KeeperState, start_time};

    #[test]
    fn names_do_not_lead_elsewhere() {
        for name in ["", "..", "a/b", "/etc", "A"] {
            assert!(Folder::of(name).is_err(), "{name}");
        }
        assert!(Folder::of("lab").is_ok());
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = std::process::id();
        let started = start_time(own).expect("this process runs");
        assert!(KeeperState { pid: own, started, rootless: false }.is_alive());
        assert!(!KeeperState { pid: own, started: started + 1, rootless: false }.is_alive());
        assert_eq!(start_time(0), None);
    }
}
