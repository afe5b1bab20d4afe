//! `/host`: where a node's container finds folders of its machine: network configurations and plugins.
//!
//! Few machines have a folder of that name, and a lab may not create one. So a program that needs it gets a root
//! directory of its own, in memory: everything that the machine has, plus `/host`. Only places that have such a folder
//! get it; the machine's own view never changes.

use crate::inside::{put, tree};
use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The path where programs see the folder.
pub(crate) const SEEN: &str = "/host";
/// The folder of the place behind it.
pub(crate) const OWN: &str = "host";
/// The folder of a container runtime's networks, as seen by a node's container.
pub(crate) const NETWORKS: &str = "/host/etc/cni/net.d";
/// The folder of a container runtime's plugins.
const PLUGINS: &str = "opt/cni/bin";
/// The folder of the place on which the new root is mounted.
const TOP: &str = "top";

/// Creates the folder of a place. It contains a link for each plugin, where an installer expects them.
///
/// # Errors
/// When it cannot be created.
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

/// An entry of the root directory.
enum Entry {
    Folder(OwnedFd),
    Link(PathBuf),
}

/// Shows the folder of a place, if it has one, to this process, which must have a mount namespace of its own.
///
/// # Errors
/// When the kernel reports an error.
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
    // All of them are opened before anything is mounted: the new root is below one of them.
    for entry in std::fs::read_dir("/").context("reading the root directory")? {
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
        .context("creating a root directory")?;
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
    rustix::process::chroot(&top).context("changing the root directory")?;
    // A folder that is not visible from here cannot remain the current one.
    std::env::set_current_dir(&here)
        .or_else(|_| std::env::set_current_dir("/"))
        .context("changing the folder")
}
