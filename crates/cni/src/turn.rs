//! Makes calls and late releases for one container take turns, also between processes.
//!
//! A runtime that lost its patience with an ADD sends a DEL while the ADD is still in progress, and that DEL must come
//! last. A release from the journal must never hit a container that an ADD has attached again in the meantime. So
//! attaching, detaching and late releases hold a lock on a file named after the container. The name is the container's,
//! not the attachment's, because endpoint and addresses belong to the container whatever its interface and network. The
//! file is removed along with the lock; a lock on a file that is gone by then is void and is taken again. The kernel
//! releases the lock of a process that dies.

use crate::error::{CniError, Result, code};
use daemon::Backoff;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long a call waits for the previous call.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSES: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));

/// A container's turn; dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct Turn {
    path: PathBuf,
    _file: File,
}

impl Turn {
    /// Takes the turn if it is free.
    ///
    /// # Errors
    /// When the file cannot be locked.
    pub(crate) fn try_take(folder: &Path, container: &str) -> io::Result<Option<Self>> {
        let path = folder.join(container);
        loop {
            let file = open(folder, &path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if is_at(&file, &path)? {
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// When the file cannot be locked, or the previous call takes too long.
    pub(crate) async fn take(folder: &Path, container: &str) -> io::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let mut backoff = PAUSES;
        loop {
            if let Some(turn) = Self::try_take(folder, container)? {
                return Ok(turn);
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    /// Waits for the turn of a call. A host where no lock can be created still gets its pods; late releases have to
    /// wait then.
    ///
    /// # Errors
    /// When the previous call takes too long.
    pub(crate) async fn for_call(folder: &Path, container: &str) -> Result<Option<Self>> {
        match Self::take(folder, container).await {
            Ok(turn) => Ok(Some(turn)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let message = format!(
                    "another call for container {container} has not ended within {} s",
                    PATIENCE.as_secs()
                );
                Err(CniError::new(code::TRY_AGAIN_LATER, message))
            }
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "calls for one container cannot take turns");
                Ok(None)
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Done while the lock is held, so that the removed file is always ours. A file that remains is used again.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open(folder: &Path, path: &Path) -> io::Result<File> {
    let open = || File::options().create(true).truncate(false).write(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            open()
        }
        outcome => outcome,
    }
}

/// Whether the file is still the one at this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((own.dev(), own.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn turns_are_exclusive_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join("run/turns");
        let first = Turn::try_take(&locks, "c1").unwrap().unwrap();
        assert!(Turn::try_take(&locks, "c1").unwrap().is_none(), "two have the turn");
        assert!(Turn::try_take(&locks, "c2").unwrap().is_some(), "another container has to wait");
        drop(first);
        assert!(Turn::try_take(&locks, "c1").unwrap().is_some());
        assert_eq!(std::fs::read_dir(&locks).unwrap().count(), 0);
        // A path where no file can be created is an error, and a call continues without a turn.
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(Turn::try_take(&folder.path().join("file/turns"), "c1").is_err());
    }

    #[test]
    fn removing_the_file_lets_only_one_waiter_in() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut had = 0;
                    while had < 200 {
                        let Some(_turn) = Turn::try_take(folder.path(), "c1").unwrap() else {
                            std::thread::yield_now();
                            continue;
                        };
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        had += 1;
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }
}
