//! `node hostpath-init`: creates the folders of a node that does not run as root, owned by the user it runs as.

use crate::context::Context;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, lchown};
use std::path::{Path, PathBuf};

/// A folder could not be created or given to the user.
#[derive(Debug, thiserror::Error)]
#[error("unable to {what} {}: {source}", path.display())]
pub struct HostpathError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Creates the folders and gives them to the node's user.
///
/// # Errors
/// When a folder cannot be created or given to the user.
pub fn run(context: &Context) -> Result<(), HostpathError> {
    let owner = context.settings.node_user_id;
    for folder in ["/var/lib/calico", "/var/run/calico", "/var/log/calico", "/var/log/calico/cni"] {
        let path = context.path(folder);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(|source| HostpathError {
            what: "create directory",
            path: path.clone(),
            source,
        })?;
        give(&path, owner)?;
    }
    // The plugin runs as root and may have left logs there.
    give_all(&context.path("/var/log/calico/cni"), owner)
}

/// Changes the owner of a link itself, not of its target, which may be anything.
fn give(path: &Path, owner: u32) -> Result<(), HostpathError> {
    lchown(path, Some(owner), Some(0)).map_err(|source| HostpathError {
        what: "chown",
        path: path.to_owned(),
        source,
    })
}

fn give_all(folder: &Path, owner: u32) -> Result<(), HostpathError> {
    let entries = std::fs::read_dir(folder).map_err(|source| HostpathError {
        what: "read",
        path: folder.to_owned(),
        source,
    })?;
    for entry in entries.flatten() {
        let path = entry.path();
        give(&path, owner)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            give_all(&path, owner)?;
        }
    }
    Ok(())
}
