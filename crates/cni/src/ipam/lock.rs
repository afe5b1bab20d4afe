//! The host-wide lock by which plugin processes take turns at address management.
//!
//! It only prevents plugins of one host from competing for one block in the datastore; compare-and-swap is what keeps
//! addresses apart. So it is best effort, as in Calico: without the lock, work continues.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The lock while it is held; dropping it releases it.
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

    /// Waits for the lock. If it is free, no thread is needed.
    pub(crate) async fn acquire(path: PathBuf) -> Self {
        let outcome = match open(&path) {
            Ok(file) => match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => wait(file).await,
                outcome => outcome.map(|()| file).map_err(io::Error::from),
            },
            Err(error) => Err(error),
        };
        match outcome {
            Ok(file) => Self { _file: Some(file) },
            Err(error) => {
                tracing::warn!(%error, "no host-wide IPAM lock; continuing without it");
                Self::none()
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let open = || File::options().create(true).truncate(false).write(true).open(path);
    match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(folder)?;
            open()
        }
        (outcome, _) => outcome,
    }
}

async fn wait(file: File) -> io::Result<File> {
    let waiting = tokio::task::spawn_blocking(move || {
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    });
    waiting.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::IpamLock;
    use std::time::Duration;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/ipam.lock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let first = IpamLock::acquire(path.clone()).await;
            let mut second = Box::pin(IpamLock::acquire(path.clone()));
            let early = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
            assert!(early.is_err(), "two have the lock");
            drop(first);
            assert!(second.await._file.is_some());
            // Best effort: a path where no file can be created is no hindrance.
            assert!(IpamLock::acquire(path.join("below-a-file")).await._file.is_none());
        });
    }
}
