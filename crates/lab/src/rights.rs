//! What this user may do: everything, or everything inside a user namespace.
//!
//! A lab needs namespaces, mounts and network devices. Root has the right to make them; other users get it inside a user
//! namespace, where the kernel allows that. A process that joins a user namespace must have one thread only, so all of this
//! happens first in a process. It refuses to go on with half of the rights, and says what is missing.

use crate::state::KeeperState;
use anyhow::{Context as _, Result, anyhow};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::os::fd::{AsFd as _, OwnedFd};

const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;

/// Whether this process may make namespaces and devices as it is.
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

/// Leaves namespaces behind for new ones.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // The successor is unsafe because of tables of descriptors, which stay shared here.
    #[expect(deprecated, reason = "the unsafe successor is about CLONE_FILES, which is never asked for here")]
    rustix::thread::unshare(flags)
}

/// Moves this process, which must have one thread, into new namespaces of users, mounts and network, in which it is root.
///
/// # Errors
/// What the kernel does not allow, and what to do about it.
pub(crate) fn become_root_of_namespace() -> Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET).map_err(refused)?;
    let write =
        |file: &str, text: String| std::fs::write(file, text).with_context(|| format!("writing {file}"));
    // Without this the kernel does not let an ordinary user map a group.
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
        "this user may not make user namespaces (a container's seccomp profile may forbid it)"
    };
    anyhow!("a lab needs root, or user namespaces, and {reason}: run it as root, or allow user namespaces")
}

/// Joins the namespaces that the keeper of a lab without root lives in. This process must have one thread.
///
/// # Errors
/// When it is not this user's lab.
pub(crate) fn join(keeper: &KeeperState) -> Result<()> {
    if !keeper.rootless {
        if !is_privileged() {
            return Err(anyhow!("this lab was made by root: only root can use it"));
        }
        return Ok(());
    }
    let folder = std::env::current_dir().ok();
    let namespace = |name: &str| -> Result<OwnedFd> {
        open(format!("/proc/{}/ns/{name}", keeper.pid), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("this lab belongs to another user: opening its {name} namespace"))
    };
    // Both are opened first: inside the one, the other's file may not be ours to open.
    let (users, mounts) = (namespace("user")?, namespace("mnt")?);
    move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
        .context("joining the lab's user namespace")?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
        .context("joining the lab's mount namespace")?;
    if let Some(folder) = folder {
        // A mount namespace is entered at its root; relative paths of the user mean the folder from before.
        let _ = std::env::set_current_dir(folder);
    }
    Ok(())
}
