//! `node init`: what only a privileged container can do before the node starts: the file systems that BPF needs.
//!
//! The BPF file system is mounted where Felix keeps its maps; the root of the cgroup hierarchy is mounted in the host's
//! own mount namespace, because a pod sees only its own part of it. Entering that namespace changes the whole process, so
//! this runs before any other thread exists, and the process ends afterwards.
//!
//! Preparing BPF's service table (`KUBERNETES_SERVICE_IPS_PORTS`) belongs to a dataplane that this version does not have;
//! asked for, it is refused with a sentence.

use crate::context::Context;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::DirBuilder;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

const BPF_FOLDER: &str = "/sys/fs/bpf";
const CGROUP_FOLDER: &str = "/run/calico/cgroup";
/// The host's processes, as the manifest mounts them.
const HOST_INIT: &str = "/nodeproc/1";

/// A step that failed, with the exit code that Calico gives it.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct InitError {
    /// What was attempted.
    pub what: &'static str,
    /// Why it failed.
    pub reason: String,
    /// The exit code.
    pub exit_code: u8,
}

/// One step.
type Step = fn(&Context) -> Result<(), InitError>;

/// Carries out all steps. With `best_effort`, failures are told and do not stop the others.
///
/// # Errors
/// The first step that failed, unless only the best effort is wanted.
pub fn run(context: &Context, best_effort: bool) -> Result<(), InitError> {
    // The last one changes this process for good.
    let steps: [Step; 3] = [mount_bpf, prepare_services, mount_cgroup];
    for step in steps {
        if let Err(error) = step(context) {
            if !best_effort {
                return Err(error);
            }
            tracing::error!(%error, "going on all the same");
        }
    }
    Ok(())
}

fn mount_bpf(context: &Context) -> Result<(), InitError> {
    let failed = |reason: String| InitError { what: "mounting the BPF file system", reason, exit_code: 2 };
    let mounts =
        std::fs::read_to_string(context.path("/proc/mounts")).map_err(|error| failed(error.to_string()))?;
    if is_mounted(&mounts, BPF_FOLDER, "bpf") {
        return Ok(());
    }
    mount(BPF_FOLDER, BPF_FOLDER, "bpf", MountFlags::empty(), None)
        .map_err(|error| failed(error.to_string()))?;
    tracing::info!("mounted the BPF file system");
    Ok(())
}

fn prepare_services(context: &Context) -> Result<(), InitError> {
    let is_set = |name: &str| context.environment.variable(name).is_some_and(|value| !value.is_empty());
    if is_set("KUBERNETES_SERVICE_IPS_PORTS") && is_set("KUBERNETES_APISERVER_ENDPOINTS") {
        return Err(InitError {
            what: "preparing BPF's service table",
            reason: "this version has no BPF dataplane: unset KUBERNETES_SERVICE_IPS_PORTS and \
                     KUBERNETES_APISERVER_ENDPOINTS"
                .to_owned(),
            exit_code: 4,
        });
    }
    Ok(())
}

/// The last step: afterwards this process is in the host's namespaces.
fn mount_cgroup(context: &Context) -> Result<(), InitError> {
    let failed =
        |reason: String| InitError { what: "mounting the cgroup2 file system", reason, exit_code: 3 };
    let info = context.path(HOST_INIT).join("mountinfo");
    let mounts =
        std::fs::read_to_string(&info).map_err(|error| failed(format!("{}: {error}", info.display())))?;
    if is_mounted_in(&mounts, CGROUP_FOLDER, "cgroup2") {
        return Ok(());
    }
    let namespaces = context.path(HOST_INIT).join("ns");
    enter(&namespaces.join("cgroup"), LinkNameSpaceType::ControlGroup).map_err(failed)?;
    enter(&namespaces.join("mnt"), LinkNameSpaceType::Mount).map_err(failed)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(CGROUP_FOLDER)
        .map_err(|error| failed(format!("{CGROUP_FOLDER}: {error}")))?;
    mount("none", CGROUP_FOLDER, "cgroup2", MountFlags::empty(), None)
        .map_err(|error| failed(error.to_string()))?;
    tracing::info!("mounted the root of the cgroup hierarchy");
    Ok(())
}

fn enter(namespace: &Path, kind: LinkNameSpaceType) -> Result<(), String> {
    let text = |error: rustix::io::Errno| format!("entering {}: {error}", namespace.display());
    let file = rustix::fs::open(namespace, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(text)?;
    move_into_link_name_space(file.as_fd(), Some(kind)).map_err(text)
}

/// Whether `/proc/mounts` has this file system at this place.
fn is_mounted(mounts: &str, place: &str, kind: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(place) && words.next() == Some(kind)
    })
}

/// Whether a `mountinfo` has this file system at this place.
fn is_mounted_in(mounts: &str, place: &str, kind: &str) -> bool {
    mounts.lines().any(|line| {
        let at = line.split(' ').nth(4);
        let found = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        at == Some(place) && found == Some(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_recognised_by_place_and_kind() {
        let mounts = "sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpf bpf rw,nosuid 0 0\n";
        assert!(is_mounted(mounts, "/sys/fs/bpf", "bpf"));
        assert!(!is_mounted(mounts, "/sys/fs/bpf", "tmpfs"));
        assert!(!is_mounted(mounts, "/sys/fs", "bpf"));
        let info = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
                    40 24 0:31 / /run/calico/cgroup rw - cgroup2 none rw\n";
        assert!(is_mounted_in(info, "/run/calico/cgroup", "cgroup2"));
        assert!(!is_mounted_in(info, "/run/calico", "cgroup2"));
        assert!(!is_mounted_in(info, "/sys/fs/cgroup", "cgroup"));
    }
}
