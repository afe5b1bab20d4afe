//! Waits for changes in a folder, as the kernel reports them. The events are not interpreted: the caller reads the
//! folder.
//!
//! The kubelet renews mounted secrets by moving links in several steps; [`FolderWatch::changed`] reports all steps of
//! one change once. [`BlockingFolderWatch`] is for code without a runtime.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How long the folder must be quiet before a change counts as over.
const QUIET: Duration = Duration::from_millis(50);

/// Large enough for many events at once; their contents are ignored.
const BUFFER: usize = 4096;

/// A watched folder. Dropping it ends the watch.
#[derive(Debug)]
pub struct FolderWatch {
    events: AsyncFd<OwnedFd>,
}

impl FolderWatch {
    /// Watches a folder. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the folder does not exist, or the kernel has no more watches.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let events = watch(folder)?;
        #[expect(
            deprecated,
            reason = "its successor is an unsafe function; an OwnedFd meets its safety requirements"
        )]
        let events = AsyncFd::new(events)?;
        Ok(Self { events })
    }

    /// Waits until the folder has changed and is quiet again.
    ///
    /// # Errors
    /// When the watch is broken.
    pub async fn changed(&mut self) -> io::Result<()> {
        self.some_event().await?;
        while let Ok(outcome) = tokio::time::timeout(QUIET, self.some_event()).await {
            outcome?;
        }
        Ok(())
    }

    async fn some_event(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [0; BUFFER];
            let outcome = ready
                .try_io(|events| rustix::io::read(events.get_ref(), &mut buffer).map_err(io::Error::from));
            match outcome {
                Ok(Ok(0)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}

/// A watched folder, for a thread that may block.
#[derive(Debug)]
pub struct BlockingFolderWatch {
    events: OwnedFd,
}

impl BlockingFolderWatch {
    /// Watches a folder.
    ///
    /// # Errors
    /// When the folder does not exist, or the kernel has no more watches.
    pub fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { events: watch(folder)? })
    }

    /// Waits for a change, at most this long. Returns whether there was one.
    pub fn wait(&self, limit: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::new(&self.events, PollFlags::IN)];
        let has_changed = poll(&mut descriptors, Some(&timeout)).is_ok_and(|count| count > 0);
        if has_changed {
            // An error shows when the caller next reads the folder.
            let _ = rustix::io::read(&self.events, &mut [0; BUFFER]);
        }
        has_changed
    }
}

fn watch(folder: &Path) -> io::Result<OwnedFd> {
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let changes = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&events, folder, changes)?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_in_several_steps_is_reported_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut watch = FolderWatch::new(folder.path()).expect("a watch");
        std::fs::write(folder.path().join("new"), "x").expect("writing");
        std::fs::rename(folder.path().join("new"), folder.path().join("token")).expect("moving");
        watch.changed().await.expect("a change");
        assert!(tokio::time::timeout(Duration::from_millis(10), watch.changed()).await.is_err());
        std::fs::remove_file(folder.path().join("token")).expect("removing");
        watch.changed().await.expect("another change");
    }

    #[tokio::test]
    async fn a_missing_folder_is_an_error() {
        assert!(FolderWatch::new(Path::new("/nowhere/at/all")).is_err());
        assert!(BlockingFolderWatch::new(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn a_blocking_watch_ends_at_a_change_or_its_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let watch = BlockingFolderWatch::new(folder.path()).expect("a watch");
        assert!(!watch.wait(Duration::from_millis(1)));
        std::fs::write(folder.path().join("new"), "x").expect("writing");
        assert!(watch.wait(Duration::from_secs(60)));
    }
}
