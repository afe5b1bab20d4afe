//! The location of pins: a BPF file system, mounted if necessary, and in it a folder for each network namespace other
//! than the machine's.
//!
//! Does not mix the pins of different network namespaces: all of them see the machine's file system.

use crate::error::Error;
use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The usual location.
const USUAL: &str = "/sys/fs/bpf";
/// The location if the usual one cannot be changed.
const OTHER: &str = "/var/run/calico/bpffs";
/// The kernel's magic number for this type of file system.
const MAGIC: u64 = 0xcafe_4a11;

/// The folder of this network's pins. `given` overrides the usual location.
///
/// # Errors
/// When there is no BPF file system and none can be mounted.
pub fn root(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(given) = given {
        return mounted(given);
    }
    let files = mounted(Path::new(USUAL)).or_else(|refused| {
        tracing::info!(%refused, "looking for another place for a BPF file system");
        mounted(Path::new(OTHER))
    })?;
    own_folder(&files)
}

/// The folder of this network's pins, if it exists, for removing them.
#[must_use]
pub fn existing_root() -> Option<PathBuf> {
    let files = [USUAL, OTHER].into_iter().map(PathBuf::from).find(|path| is_mounted(path))?;
    match is_machines_network() {
        true => Some(files),
        false => Some(files.join(network_name()?)).filter(|folder| folder.exists()),
    }
}

/// The pin of a map of this network.
///
/// # Errors
/// When this network has no pins yet.
pub fn map(name: &str) -> Result<PathBuf, Error> {
    let root = existing_root().ok_or(Error::Missing("folder of this network's pins"))?;
    Ok(root.join("tc/globals").join(name))
}

fn own_folder(files: &Path) -> Result<PathBuf, Error> {
    if is_machines_network() {
        return Ok(files.to_owned());
    }
    let folder = files.join(network_name().unwrap_or_else(|| "netns".to_owned()));
    make_folder(&folder)?;
    Ok(folder)
}

/// Creates a folder and its parents.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|reason| Error::File {
        what: format!("cannot create the folder {}", folder.display()),
        reason,
    })
}

/// Removes a pin; a missing one is ignored.
pub(crate) fn unpin(pin: &Path) -> Result<(), Error> {
    match fs::remove_file(pin) {
        Err(reason) if reason.kind() != ErrorKind::NotFound => {
            Err(Error::File { what: format!("cannot remove {}", pin.display()), reason })
        }
        _ => Ok(()),
    }
}

/// The names of the files in a folder; empty if the folder does not exist.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn mounted(path: &Path) -> Result<PathBuf, Error> {
    if !is_mounted(path) {
        make_folder(path)?;
        mount("bpf", path, "bpf", MountFlags::empty(), None).map_err(|errno| Error::File {
            what: format!("cannot mount a BPF file system at {}", path.display()),
            reason: errno.into(),
        })?;
        tracing::info!(path = %path.display(), "mounted a BPF file system");
    }
    Ok(path.to_owned())
}

fn is_mounted(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| kind & 0xffff_ffff == MAGIC))
}

/// Whether this thread is in the network namespace of process 1: the machine's, or that of the pod that shares it.
pub(crate) fn is_machines_network() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    namespace("1").is_some_and(|first| namespace("thread-self") == Some(first))
}

/// `netns-4026532008`
fn network_name() -> Option<String> {
    let link = fs::read_link("/proc/thread-self/ns/net").ok()?;
    let number: String = link.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("netns-{number}"))
}
