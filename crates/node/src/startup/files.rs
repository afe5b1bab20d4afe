//! The folders and files of a node that other programs expect.

use super::StartupError;
use crate::context::Context;
use crate::environment::Backend;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

/// The mode of a created folder: readable for everyone, writeable for root.
const FOLDER_MODE: u32 = 0o755;

/// Creates missing folders, and logs the consequences of their absence.
///
/// # Errors
/// When a folder cannot be created.
pub(crate) fn ensure_folders(context: &Context) -> Result<(), StartupError> {
    let mut folders = vec![("/var/lib/calico", "the node's name will not survive a restart")];
    if context.settings.backend() == Backend::Bird {
        folders.insert(0, ("/var/run/calico", "`calicoctl node status` will not find the BGP daemon"));
    }
    if !context.settings.disable_file_logging {
        folders.push(("/var/log/calico", "`calicoctl node diags` will not find logs"));
    }
    for (folder, consequence) in folders {
        let path = context.path(folder);
        if path.exists() {
            continue;
        }
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(&path)
            .map_err(|source| StartupError::File { path: path.clone(), source })?;
        tracing::warn!(folder, "expected this folder to be mounted; created it: {consequence}");
    }
    Ok(())
}

/// Writes the node's name for the CNI plugin and for the next start. It is always rewritten: readiness probes take the
/// file's time as the time of the node's start.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_node_name(context: &Context, node_name: &str) -> Result<(), StartupError> {
    let path = context.path(&context.settings.nodename_file);
    daemon::files::write(&path, node_name.as_bytes(), 0o644)
        .map_err(|source| StartupError::File { path, source })
}
