//! `/host`: where the container of a node finds folders of its machine: network configurations and plugins.
//!
//! Few machines have a folder of that name, and a lab may not make one. So a program that needs it gets a top of the file
//! tree of its own, in memory: everything that the machine has, and `/host` beside it. Only places that have such a folder
//! get it; it refuses to change what the machine itself sees.

use crate::inside::{put, tree};
use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where it is seen.
pub(crate) const SEEN: &str = "/host";
/// The place's folder behind it.
pub(crate) const OWN: &str = "host";
/// Where a container runtime looks for networks, as a node's container sees it.
pub(crate) const NETWORKS: &str = "/host/etc/cni/net.d";
/// Where a container runtime looks for plugins.
const PLUGINS: &str = "opt/cni/bin";
/// The place's folder over which the top of the tree is put.
const TOP: &str = "top";

/// Makes the folder of a place. Of plugins there is a link each: an installer finds them there.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make(place: &Path, program: &Path) -> Result<()> {
    let own = place.join(OWN);
    for folder in [own.join("etc/cni/net.d"), own.join(PLUGINS), place.join(TOP)] {
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for name in ["calico", "calico-ipam"] {
        std::os::unix::fs::symlink(program, own.join(PLUGINS).join(name)).context("linking the plugins")?;
    }
    Ok(())
}

/// What stands at the top of the tree.
enum Entry {
    Folder(OwnedFd),
    Link(PathBuf),
}

/// Shows the folder of a place, if it has one, to this process, which must have a mount namespace of its own.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn show(place: &Path) -> Result<()> {
    let own = place.join(OWN);
    if !own.is_dir() {
        return Ok(());
    }
    let host = tree(&own)?;
    if Path::new(SEEN).is_dir() {
        return put(&host, Path::new(SEEN));
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut entries = Vec::new();
    // All are opened before anything is mounted: the new top is below one of them.
    for entry in std::fs::read_dir("/").context("reading the top of the file tree")? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            entries.push((entry.file_name(), Entry::Link(std::fs::read_link(entry.path())?)));
        } else if kind.is_dir() {
            entries.push((entry.file_name(), Entry::Folder(tree(&entry.path())?)));
        }
    }
    let top = place.join(TOP);
    mount("tmpfs", &top, "tmpfs", MountFlags::empty(), Some(c"mode=0755,size=1m"))
        .context("making a top of the file tree")?;
    for (name, entry) in entries {
        let path = top.join(name);
        match entry {
            Entry::Link(target) => std::os::unix::fs::symlink(target, path)?,
            Entry::Folder(tree) => {
                std::fs::create_dir(&path)?;
                put(&tree, &path)?;
            }
        }
    }
    let seen = top.join(OWN);
    std::fs::create_dir(&seen)?;
    put(&host, &seen)?;
    rustix::process::chroot(&top).context("changing the top of the file tree")?;
    // A folder that cannot be seen from here cannot stay the current one.
    std::env::set_current_dir(&here)
        .or_else(|_| std::env::set_current_dir("/"))
        .context("changing the folder")
}
