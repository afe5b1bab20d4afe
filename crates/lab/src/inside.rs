//! Runs a program of the lab in its place: in the right network namespace, with folders of its own at fixed paths, and
//! ending along with its parent.
//!
//! `tortie lab internal inside` prepares the place and becomes the program. Every node has its own `/run`, `/var/lib`,
//! `/var/log` and `/etc/calico`, which are folders of the lab; the machine's own are neither seen nor changed. A node
//! that manages the CNI plugin also has `/host` ([`crate::host_folder`]).

use crate::state::Folder;
use crate::{host_folder, rights};
use anyhow::{Context as _, Result, anyhow, bail};
use daemon::{Environment as _, SystemEnvironment};
use netlink::namespace::Namespace;
use rustix::fs::CWD;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place's own folders: the path where they are seen, and the folder's name.
const OWN: [(&str, &str); 4] =
    [("/run", "run"), ("/var/lib", "var-lib"), ("/var/log", "var-log"), ("/etc/calico", "etc-calico")];

/// Where programs look for settings of a real installation; a machine without it needs no cover.
const OPTIONAL: &str = "/etc/calico";

/// The variable that marks the lab's processes.
pub(crate) const MARK: &str = "TORTIE_LAB_FOLDER";

/// The variable that names another program for nodes, pods' plugins and `calicoctl`: another version of this one.
pub(crate) const PROGRAM_VARIABLE: &str = "TORTIE_LAB_PROGRAM";

/// The program that nodes run: this one, unless the user chooses another.
pub(crate) fn node_program() -> String {
    SystemEnvironment.text(PROGRAM_VARIABLE).unwrap_or_else(|| OWN_PROGRAM.to_owned())
}

/// This program, even if its file has been replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// The name of this program in process lists, which also selects the full tree of commands.
pub(crate) const OWN_NAME: &str = "tortie";

/// A command that starts this program again.
pub(crate) fn own_command() -> Command {
    command(OWN_PROGRAM)
}

/// A command that starts a program. For this program it uses the file's own name if that is still the same file:
/// process lists would show `exe` otherwise.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let program = program.as_ref();
    if program != OWN_PROGRAM {
        return Command::new(program);
    }
    let mut command = Command::new(own_file().unwrap_or_else(|| PathBuf::from(OWN_PROGRAM)));
    command.arg0(OWN_NAME);
    command
}

/// This program's file, if it still exists and is visible here.
fn own_file() -> Option<PathBuf> {
    let path = std::fs::read_link(OWN_PROGRAM).ok()?;
    let (named, own) = (std::fs::metadata(&path).ok()?, std::fs::metadata(OWN_PROGRAM).ok()?);
    ((named.dev(), named.ino()) == (own.dev(), own.ino())).then_some(path)
}

/// The place where a program runs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) netns: PathBuf,
    /// The node (or `router`) whose folders it sees; `None` for the machine's own.
    pub(crate) name: Option<String>,
}

impl Place {
    /// The program and arguments that run `words` in this place. `parent` is the process that will start it and whose
    /// end it must not survive.
    pub(crate) fn words(&self, parent: u32, words: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = [OWN_PROGRAM, "lab", "internal", "inside"].map(str::to_owned).to_vec();
        all.extend(["--folder".to_owned(), self.folder.display().to_string()]);
        all.extend(["--netns".to_owned(), self.netns.display().to_string()]);
        if let Some(name) = &self.name {
            all.extend(["--place".to_owned(), name.clone()]);
        }
        all.extend(["--parent".to_owned(), parent.to_string()]);
        all.push("--".to_owned());
        all.extend(words.iter().map(|word| (*word).to_owned()));
        all
    }

    /// A command that runs `words` in this place with only this environment.
    pub(crate) fn command(&self, environment: &BTreeMap<String, String>, words: &[&str]) -> Command {
        let all = self.words(std::process::id(), words);
        let mut command = command(&all[0]);
        command.args(&all[1..]).env_clear().envs(environment);
        command
    }
}

/// The part of the user's environment that programs of the lab may see.
pub(crate) fn base_environment(folder: &Folder) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> = ["HOME", "TERM", "LANG", "RUST_BACKTRACE"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), SystemEnvironment.variable(name)?.into_string().ok()?)))
        .collect();
    let path = SystemEnvironment.text("PATH").unwrap_or_default();
    // iptables and similar programs are outside the usual path of unprivileged users.
    environment.insert("PATH".to_owned(), format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"));
    environment.insert(MARK.to_owned(), folder.path().display().to_string());
    environment
}

/// Creates the folders of a place.
pub(crate) fn make_place(folder: &Folder, name: &str) -> Result<()> {
    let root = folder.file("places").join(name);
    for (_, own) in OWN {
        std::fs::create_dir_all(root.join(own))
            .with_context(|| format!("making {}", root.join(own).display()))?;
    }
    Ok(())
}

/// The host's path of a file, given its path as seen in the place.
pub(crate) fn file_of_place(folder: &Folder, name: &str, path: &str) -> PathBuf {
    for (seen, own) in OWN.into_iter().chain([(host_folder::SEEN, host_folder::OWN)]) {
        if let Some(rest) = path.strip_prefix(seen) {
            return folder.file("places").join(name).join(own).join(rest.trim_start_matches('/'));
        }
    }
    PathBuf::from(path)
}

/// Prepares the place and becomes the program. Returns only when that fails.
///
/// # Errors
/// When the place cannot be prepared.
pub(crate) fn run(
    folder: &Path,
    netns: &Path,
    place: Option<&str>,
    parent: u32,
    words: &[OsString],
) -> Result<std::convert::Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the request reached the kernel.
    if getppid().is_none_or(|found| found.as_raw_nonzero().get().unsigned_abs() != parent) {
        bail!("the process that requested this program is gone");
    }
    let (program, arguments) = words.split_first().context("no program")?;
    let namespace = Namespace::open(netns)?;
    move_into_link_name_space(namespace.file().as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering {}", netns.display()))?;
    if let Some(place) = place {
        furnish(&Folder::at(folder)?, place)?;
    }
    let error = command(program).args(arguments).exec();
    let name = program.to_string_lossy();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(anyhow!("program '{name}' not found on this machine: install it first"));
    }
    Err(error).with_context(|| format!("starting {name}"))
}

/// Gives this process the folders of its place.
fn furnish(folder: &Folder, place: &str) -> Result<()> {
    rights::unshare(UnshareFlags::NEWNS).context("creating a mount namespace")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("separating mounts")?;
    let root = folder.file("places").join(place);
    // All of them are opened before anything is covered: the lab's folder is below one of them.
    let lab = tree(folder.path())?;
    let mut covers = Vec::new();
    for (seen, own) in OWN {
        if Path::new(seen).is_dir() {
            covers.push((seen, tree(&root.join(own))?));
        } else if seen != OPTIONAL {
            // Without the cover nodes would share it, and creating it would change the machine.
            bail!("this machine has no folder {seen}, and a lab may not create it: create it first");
        }
    }
    for (seen, tree) in &covers {
        put(tree, Path::new(seen))?;
    }
    if OWN.iter().any(|(seen, _)| folder.path().starts_with(seen)) {
        std::fs::create_dir_all(folder.path())?;
        put(&lab, folder.path())?;
    }
    // /sys shows the devices of the namespace where it was mounted; not every container allows another mount.
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", rustix::mount::MountFlags::empty(), None);
    host_folder::show(&root)
}

/// A detached copy of a folder with all its mounts, to be attached elsewhere.
pub(crate) fn tree(path: &Path) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags).with_context(|| format!("keeping {} in sight", path.display()))
}

/// Mounts a folder over another one.
pub(crate) fn put(tree: &OwnedFd, path: &Path) -> Result<()> {
    move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .with_context(|| format!("covering {}", path.display()))
}
