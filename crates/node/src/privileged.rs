//! `node init`: steps before the node starts that need a privileged container: mounting the file systems that BPF
//! needs.
//!
//! The BPF file system is mounted where Felix keeps its maps; the root of the cgroup hierarchy is mounted in the host's
//! own mount namespace, because a pod sees only its own part of it. Entering that namespace changes the whole process, so
//! this runs before any other thread exists, and the process ends afterwards.
//!
//! With `KUBERNETES_SERVICE_IPS_PORTS` and `KUBERNETES_APISERVER_ENDPOINTS`, the API's own service is written into the
//! maps of the eBPF dataplane and sockets are directed to its backends, so that a node without kube-proxy reaches its
//! API before the agent runs.

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

/// A failed step, with Calico's exit code for it.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub(crate) struct InitError {
    /// The step.
    pub what: &'static str,
    /// Why it failed.
    pub reason: String,
    /// The exit code.
    pub exit_code: u8,
}

/// One step of the command.
type Step = fn(&Context) -> Result<(), InitError>;

/// Carries out all steps. With `best_effort`, a failure is logged and does not stop the others.
///
/// # Errors
/// When a step fails, unless `best_effort` is set.
pub(crate) fn run(context: &Context, best_effort: bool) -> Result<(), InitError> {
    // The third step permanently changes this process.
    let steps: [Step; 4] = [mount_bpf, prepare_services, mount_cgroup, attach_sockets];
    for step in steps {
        if let Err(error) = step(context) {
            if !best_effort {
                return Err(error);
            }
            tracing::error!(%error, "a step failed; continuing (best effort)");
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

/// The addresses of the API's service and of its endpoints.
fn api_service(context: &Context) -> Option<(String, String)> {
    let value = |name: &str| {
        let value = context.environment.variable(name)?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some(value)
    };
    Some((value("KUBERNETES_SERVICE_IPS_PORTS")?, value("KUBERNETES_APISERVER_ENDPOINTS")?))
}

fn prepare_services(context: &Context) -> Result<(), InitError> {
    let Some((services, endpoints)) = api_service(context) else { return Ok(()) };
    let failed = |reason: String| InitError { what: "writing the API's service", reason, exit_code: 4 };
    let mut maps = bpf_cli::Pinned::new(&context.path(BPF_FOLDER));
    bpf_cli::bootstrap(&services, &endpoints, &mut maps).map_err(|error| failed(error.to_string()))?;
    tracing::info!(services, endpoints, "wrote the API's service into the maps of the eBPF dataplane");
    Ok(())
}

/// Control groups are mounted by now, in the host's namespaces or in those that share the folder.
fn attach_sockets(context: &Context) -> Result<(), InitError> {
    let Some((services, _)) = api_service(context) else { return Ok(()) };
    let failed =
        |reason: String| InitError { what: "giving sockets the API's backends", reason, exit_code: 4 };
    let group = context.path(CGROUP_FOLDER);
    // An IPv6 address is in brackets.
    bpf_driver::sockets::attach_early(&context.path(BPF_FOLDER), group, services.contains('['))
        .map_err(|error| failed(error.to_string()))?;
    tracing::info!("sockets of this host get the API's backends");
    Ok(())
}

/// Afterwards this process is in the host's namespaces.
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

    #[test]
    fn the_service_of_the_api_needs_two_variables() {
        let folder = tempfile::tempdir().expect("a folder");
        let prepare = |variables: &[(&str, &str)]| {
            let host = std::sync::Arc::new(crate::host::ThisHost { root: folder.path().to_owned() });
            let environment = std::sync::Arc::new(daemon::Variables::new(variables.iter().copied()));
            let context =
                Context::new(environment, host, folder.path().to_owned(), "v3.32.1").expect("settings");
            prepare_services(&context).map_err(|error| (error.exit_code, error.to_string()))
        };
        let (services, endpoints) = ("KUBERNETES_SERVICE_IPS_PORTS", "KUBERNETES_APISERVER_ENDPOINTS");
        assert_eq!(prepare(&[]), Ok(()));
        assert_eq!(prepare(&[(services, "10.96.0.1:443"), (endpoints, "")]), Ok(()));
        let wrong = prepare(&[(services, "10.96.0.1:443"), (endpoints, "172.16.0.1")]).expect_err("no port");
        assert_eq!(wrong.0, 4);
        assert!(wrong.1.contains(endpoints) && wrong.1.contains("172.16.0.1"), "{}", wrong.1);
    }
}
