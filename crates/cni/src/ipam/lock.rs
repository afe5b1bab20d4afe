//! The host-wide lock by which plugin processes take turns at address management.
//!
//! It only saves the datastore from plugins of one host competing for one block; compare-and-swap is what keeps
//! addresses apart. So it is best effort, as in Calico: without the lock, work goes on.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The lock while it is held; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct IpamLock {
    _file: Option<File>,
}

impl IpamLock {
    /// No lock, for a process that shares writes by other means.
    #[must_use]
    pub(crate) fn none() -> Self {
        Self { _file: None }
    }

    /// Waits for the lock.
    pub(crate) async fn acquire(path: PathBuf) -> Self {
        let outcome = tokio::task::spawn_blocking(move || lock(&path)).await;
        match outcome {
            Ok(Ok(file)) => Self { _file: Some(file) },
            Ok(Err(error)) => {
                tracing::warn!(%error, "no host-wide IPAM lock; going on without it");
                Self::none()
            }
            Err(_) => Self::none(),
        }
    }
}

fn lock(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
