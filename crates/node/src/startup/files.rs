//! The folders and files of a node that other programs expect.

use super::StartupError;
use crate::context::Context;
use crate::environment::Backend;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

/// The mode of a folder that is missing: everybody may look, root may write.
const FOLDER_MODE: u32 = 0o755;

/// Makes the folders that are missing, and says what their absence means.
///
/// # Errors
/// When one cannot be made.
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
        tracing::warn!(folder, "expected this folder to be mounted; made it: {consequence}");
    }
    Ok(())
}

/// Writes the node's name for the CNI plugin and for the next start. Always, even when it is there: the file's time tells
/// readiness probes when the node was started.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_node_name(context: &Context, node_name: &str) -> Result<(), StartupError> {
    let path = context.path(&context.settings.nodename_file);
    daemon::files::write(&path, node_name.as_bytes(), 0o644)
        .map_err(|source| StartupError::File { path, source })
}
