//! The rights of this user: everything, or everything inside a user namespace.
//!
//! A lab needs namespaces, mounts and network devices. Root may create them; other users may do so inside a user
//! namespace, if the kernel allows it. A process that joins a user namespace must be single-threaded, so all of this
//! happens first in a process. It does not continue with only some of the rights, but reports what is missing.

use crate::state::KeeperState;
use anyhow::{Context as _, Result, anyhow};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::os::fd::{AsFd as _, OwnedFd};

const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;

/// Whether this process may create namespaces and devices as it is.
#[must_use]
pub(crate) fn is_privileged() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or_default();
    [NET_ADMIN, SYS_ADMIN].iter().all(|bit| effective & (1 << bit) != 0)
}

/// Moves this thread into new namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // The successor is unsafe because of file descriptor tables, which stay shared here.
    #[expect(deprecated, reason = "the unsafe successor is about CLONE_FILES, which is never asked for here")]
    rustix::thread::unshare(flags)
}

/// Moves this process, which must be single-threaded, into new user, mount and network namespaces, in which it is root.
///
/// # Errors
/// When the kernel does not allow it; the message contains a remedy.
pub(crate) fn become_root_of_namespace() -> Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET).map_err(refused)?;
    let write =
        |file: &str, text: String| std::fs::write(file, text).with_context(|| format!("writing {file}"));
    // Without this the kernel does not let an unprivileged user map a group.
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {user} 1"))?;
    write("/proc/self/gid_map", format!("0 {group} 1"))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("separating this process's mounts")?;
    Ok(())
}

fn refused(errno: Errno) -> anyhow::Error {
    let setting =
        |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let reason = if setting("/proc/sys/user/max_user_namespaces") == "0" {
        "user.max_user_namespaces is 0"
    } else if setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        "kernel.unprivileged_userns_clone is 0"
    } else if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        "kernel.apparmor_restrict_unprivileged_userns is 1"
    } else if errno == Errno::NOSYS || errno == Errno::INVAL {
        "this kernel has no user namespaces"
    } else {
        "this user may not create user namespaces (a container's seccomp profile may forbid it)"
    };
    anyhow!("a lab needs root, or user namespaces, and {reason}: run it as root, or allow user namespaces")
}

/// Joins the namespaces of the keeper of a lab without root. This process must be single-threaded.
///
/// # Errors
/// When the lab belongs to another user.
pub(crate) fn join(keeper: &KeeperState) -> Result<()> {
    if !keeper.rootless {
        if !is_privileged() {
            return Err(anyhow!("this lab was created by root: only root can use it"));
        }
        return Ok(());
    }
    let folder = std::env::current_dir().ok();
    let namespace = |name: &str| -> Result<OwnedFd> {
        open(format!("/proc/{}/ns/{name}", keeper.pid), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("this lab belongs to another user: opening its {name} namespace"))
    };
    // Both are opened first: inside one namespace, this process may not be allowed to open the other's file.
    let (users, mounts) = (namespace("user")?, namespace("mnt")?);
    move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
        .context("joining the lab's user namespace")?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
        .context("joining the lab's mount namespace")?;
    if let Some(folder) = folder {
        // A mount namespace is entered at its root; the user's relative paths refer to the previous folder.
        let _ = std::env::set_current_dir(folder);
    }
    Ok(())
}
