//! Creates and removes volumes on their node.
//!
//! ```text
//! <home>/mount/<name>          the folder, in which Felix opens a socket
//! <target>                     what the pod gets: a tiny file system of its own (8 KiB) ...
//! <target>/nodeagent           ... in which that folder is
//! <home>/creds/<name>.json     whose it is; Felix opens the socket when this appears
//! ```
//!
//! The steps follow from the existing state ([`plan`]), so that calls may be repeated, and may continue where a killed
//! process stopped. Links that a pod may have put into its volume are never followed.

mod credentials;
mod homes;
mod mounts;
mod plan;

pub(crate) use credentials::Credentials;
pub use homes::Homes;
pub(crate) use homes::{HomeFields, VolumeName};

use mounts::Mount;
use plan::{Seen, Step};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// The folder inside the volume.
const INNER: &str = "nodeagent";
/// The options of the volume's own file system. The contents of the inner folder do not count towards its size.
const TMPFS: &std::ffi::CStr = c"size=8k,mode=0755";
/// Disables what no volume needs.
const HARMLESS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Why a volume cannot be created or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The target is not valid for a volume.
    #[error("the target {} {reason}", path.display())]
    Target {
        /// The target.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A file system that this program did not mount is mounted there.
    #[error("{} has a file system of type {kind}, which is not this driver's", path.display())]
    Foreign {
        /// The mount point.
        path: PathBuf,
        /// The type of file system.
        kind: String,
    },
    /// Another pod has a volume of this name.
    #[error("volume {name} already belongs to pod {owner}")]
    Taken {
        /// The volume.
        name: String,
        /// The pod that has it.
        owner: String,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Kernel {
        /// The operation.
        what: &'static str,
        /// The path it was applied to.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The volume of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) name: VolumeName,
    pub(crate) target: PathBuf,
    pub(crate) is_read_only: bool,
    pub(crate) owner: Credentials,
}

/// Creates a volume, or its missing parts.
pub(crate) fn publish(homes: &Homes, volume: &Volume) -> Result<(), Error> {
    let Volume { name, target, is_read_only, owner } = volume;
    check_target(target)?;
    credentials::check(homes, name, owner)?;
    let home = homes.folder(name);
    make_folder(&home)?;
    make_folder(target)?;
    let target = resolved(target)?;
    let seen = look(&target, &home)?;
    let steps = plan::steps(&seen, *is_read_only);
    for step in &steps {
        if let Err(error) = take(*step, &target, &home, *is_read_only) {
            // A pod that is not started will not return to clean up what was begun. A running pod keeps what it has.
            if !seen.leads_home
                && let Err(second) = unpublish(homes, name, &target)
            {
                tracing::warn!(error = %second, volume = %name, "an incomplete volume could not be removed");
            }
            return Err(error);
        }
    }
    credentials::write(homes, name, owner)?;
    tracing::info!(volume = %name, target = %target.display(), pod = %owner, steps = steps.len(), "a pod has a volume");
    Ok(())
}

/// Removes a volume, or its remaining parts.
pub(crate) fn unpublish(homes: &Homes, name: &VolumeName, target: &Path) -> Result<(), Error> {
    check_target(target)?;
    // First, so that Felix serves no new clients.
    credentials::remove_file(homes, name)?;
    let is_there = std::fs::symlink_metadata(target).is_ok();
    if is_there {
        let target = resolved(target)?;
        let seen = look(&target, &homes.folder(name))?;
        let inner = target.join(INNER);
        // The layers are stacked: the contents of lower ones are accessible only when the upper ones are gone.
        for _ in 0..seen.layers.max(1) {
            for _ in 0..seen.inner {
                unmount(&inner)?;
            }
            unmount(&target)?;
        }
        remove("remove", &target, std::fs::remove_dir(&target))?;
    }
    let home = homes.folder(name);
    remove("remove", &home, std::fs::remove_dir_all(&home))?;
    tracing::info!(volume = %name, target = %target.display(), "a volume is gone");
    Ok(())
}

/// Checks that a path leads nowhere unexpected.
fn check_target(target: &Path) -> Result<(), Error> {
    let wrong = |reason| Err(Error::Target { path: target.to_owned(), reason });
    if !target.is_absolute() {
        return wrong("is not an absolute path");
    }
    if target.components().any(|part| matches!(part, Component::ParentDir)) {
        return wrong("has steps to parent folders (..)");
    }
    if target.components().count() < 3 {
        return wrong("is a folder of the system");
    }
    match std::fs::symlink_metadata(target) {
        Ok(found) if found.is_symlink() => wrong("is a symbolic link"),
        Ok(found) if !found.is_dir() => wrong("is not a folder"),
        _ => Ok(()),
    }
}

/// The target with links resolved: folders above it may be links of the node's administrator.
fn resolved(target: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(target).map_err(|source| kernel("look at", target, source))
}

/// Inspects the existing parts of a volume.
fn look(target: &Path, home: &Path) -> Result<Seen, Error> {
    let mounts = mounts::read().map_err(|source| kernel("read", Path::new(mounts::TABLE), source))?;
    let at = |path: &Path| mounts.iter().filter(|mount| mount.point == path).cloned().collect::<Vec<Mount>>();
    let layers = at(target);
    if let Some(foreign) = layers.iter().find(|mount| mount.kind != "tmpfs") {
        return Err(Error::Foreign { path: target.to_owned(), kind: foreign.kind.clone() });
    }
    let inner = target.join(INNER);
    let inner_layers = at(&inner);
    let same = |one: &Path, other: &Path| {
        let (one, other) = (std::fs::symlink_metadata(one).ok()?, std::fs::symlink_metadata(other).ok()?);
        Some(one.dev() == other.dev() && one.ino() == other.ino())
    };
    let is_harmless = |mount: &Mount| ["nosuid", "nodev", "noexec"].iter().all(|option| mount.has(option));
    Ok(Seen {
        layers: layers.len(),
        is_sealed: layers.last().is_some_and(|mount| mount.has("ro")),
        inner: inner_layers.len(),
        leads_home: !inner_layers.is_empty() && same(&inner, home) == Some(true),
        is_inner_harmless: inner_layers.last().is_some_and(is_harmless),
        is_inner_read_only: inner_layers.last().is_some_and(|mount| mount.has("ro")),
    })
}

fn take(step: Step, target: &Path, home: &Path, is_read_only: bool) -> Result<(), Error> {
    let inner = target.join(INNER);
    let with_read_only = |flags| if is_read_only { flags | MountFlags::RDONLY } else { flags };
    match step {
        Step::Leave => unmount(&inner),
        Step::Mount => {
            let place = open(target)?;
            rustix::mount::mount("tmpfs", path_of(&place), "tmpfs", HARMLESS | MountFlags::RELATIME, TMPFS)
                .map_err(|source| kernel("mount a file system at", target, source))
        }
        Step::Bind => {
            make_folder(&inner)?;
            let place = open(&inner)?;
            rustix::mount::mount_bind(home, path_of(&place))
                .map_err(|source| kernel("mount the volume's folder at", &inner, source))
        }
        Step::Restrict => {
            let place = open(&inner)?;
            remount(&inner, &place, with_read_only(HARMLESS))
        }
        Step::Seal => {
            let place = open(target)?;
            remount(target, &place, with_read_only(HARMLESS))
        }
    }
}

fn remount(path: &Path, place: &OwnedFd, flags: MountFlags) -> Result<(), Error> {
    rustix::mount::mount_remount(path_of(place), flags | MountFlags::BIND, c"")
        .map_err(|source| kernel("restrict", path, source))
}

/// Opens a folder without following a link in its place.
fn open(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|source| kernel("open", path, source))
}

/// A path to the descriptor, for system calls that take no descriptors.
fn path_of(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

fn unmount(path: &Path) -> Result<(), Error> {
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
        // Nothing is mounted there any more: another process was faster.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(source) => Err(kernel("unmount", path, source)),
    }
}

/// Creates a folder and its missing parents.
fn make_folder(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|source| kernel("create the folder", path, source))
}

/// Removes a file or folder. It is not an error if it is already gone.
fn remove(what: &'static str, path: &Path, outcome: io::Result<()>) -> Result<(), Error> {
    match outcome {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(kernel(what, path, source)),
        _ => Ok(()),
    }
}

fn kernel(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
    Error::Kernel { what, path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::{Error, check_target};
    use std::path::Path;
    use testkit::Folder;

    #[test]
    fn targets_that_could_lead_elsewhere_are_refused() {
        for (target, reason) in [
            ("var/lib/kubelet/pods/a/mount", "absolute"),
            ("/var/lib/kubelet/../../etc", "parent folders"),
            ("/", "of the system"),
            ("/etc", "of the system"),
            ("", "absolute"),
        ] {
            let error = check_target(Path::new(target)).unwrap_err();
            assert!(error.to_string().contains(reason), "{target}: {error}");
        }
        let folder = Folder::new("target").unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("link")).unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for name in ["link", "file"] {
            assert!(matches!(check_target(&folder.path().join(name)), Err(Error::Target { .. })), "{name}");
        }
        check_target(&folder.path().join("not/there/yet")).unwrap();
    }
}
