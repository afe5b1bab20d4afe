//! The background thread: removes what compactions made unreachable, rewrites the file when much of it is garbage,
//! takes snapshots. It runs one job at a time, so that no job sees another's half-done work; readers and the committer
//! continue meanwhile.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use super::{
    committer::{Command, Reply},
    error::Error,
    read::{read, write},
    rewrite::{Copy, Finish, Start},
    shared::{Shared, new_file_path, snapshot_path},
};

/// Keys processed each time the index's lock is held.
const STEP: usize = 512;
/// The committer is asked to finish a rewrite once no more bytes than this remain to be copied.
const SMALL_TAIL: u64 = 512 << 10;

/// A job for the janitor.
pub(super) enum Job {
    /// Remove what a compaction made unreachable.
    Prune {
        revision: i64,
        reply: Option<Reply<i64>>,
    },
    /// Rewrite the file now.
    Rewrite(Reply<()>),
    /// Write a snapshot into a fresh, unnamed file.
    Snapshot(Reply<File>),
    Stop,
}

pub(super) struct Janitor {
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Receiver<Job>,
    pub(super) committer: Sender<Command>,
}

/// A lock that is released and taken again at once goes to the same thread, even if others wait. Nothing waits for the
/// janitor, so it pauses for as long as waking another thread takes.
fn let_others_in() {
    std::thread::sleep(Duration::from_micros(50));
}

impl Janitor {
    pub(super) fn run(self) {
        while let Ok(job) = self.jobs.recv() {
            match job {
                Job::Prune { revision, reply } => {
                    self.prune(revision);
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(self.shared.durable.load(Ordering::Acquire)));
                    }
                    if self.too_much_garbage()
                        && let Err(error) = self.rewrite()
                    {
                        tracing::warn!(
                            "the store's file could not be rewritten; keeping the old one: {error}"
                        );
                    }
                }
                Job::Rewrite(reply) => {
                    let _ = reply.send(self.rewrite());
                }
                Job::Snapshot(reply) => {
                    let _ = reply.send(self.snapshot());
                }
                Job::Stop => return,
            }
        }
    }

    fn prune(&self, revision: i64) {
        self.shared.pins.wait_until(revision);
        let mut after = None;
        loop {
            after = write(&self.shared.index).prune(revision, after.as_deref(), STEP);
            if after.is_none() {
                break;
            }
            let_others_in();
        }
        write(&self.shared.index).forget_history(revision);
    }

    fn too_much_garbage(&self) -> bool {
        let live = read(&self.shared.index).live_bytes;
        let used = self.shared.file_end.load(Ordering::Acquire);
        let garbage = used.saturating_sub(live);
        garbage > live && garbage > self.shared.options.min_garbage_bytes
    }

    fn rewrite(&self) -> Result<(), Error> {
        let path = new_file_path(&self.shared.dir);
        let result = self.try_rewrite();
        if result.is_err() {
            // Had the switch happened, the file would no longer have this name.
            let _ = std::fs::remove_file(&path);
        }
        let mut moved = result.map_err(|reason| Error::Read(reason.into()))?;
        moved.sort_unstable_by_key(|moved| moved.id);
        let mut after = None;
        loop {
            after = write(&self.shared.index).relocate(&moved, after.as_deref(), STEP);
            if after.is_none() {
                break;
            }
            let_others_in();
        }
        let mut from = Some(0);
        while let Some(revision) = from {
            from = write(&self.shared.index).relocate_history(&moved, revision, STEP * 4);
            let_others_in();
        }
        let old = {
            let mut index = write(&self.shared.index);
            let old = 1 - index.slot;
            index.files[old].take()
        };
        // Without the lock: the file is unlinked, and the file system takes its time to free a large one.
        drop(old);
        Ok(())
    }

    fn try_rewrite(&self) -> Result<Vec<super::index::Moved>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let start = self.start()?;
        let path = new_file_path(&self.shared.dir);
        let mut copy = Copy::start(&self.shared, &path, &start).map_err(|error| text(&error))?;
        copy.copy_records(&self.shared, &start).map_err(|error| text(&error))?;
        let mut copied = start.end;
        loop {
            let end = self.shared.file_end.load(Ordering::Acquire);
            copy.copy_tail(&start.file, start.salt, end).map_err(|error| text(&error))?;
            // Most of it is synced here, so that the committer stalls only for the rest.
            copy.log.sync().map_err(|error| text(&error))?;
            if end - copied <= SMALL_TAIL {
                break;
            }
            copied = end;
        }
        let (reply, answer) = channel();
        let finish = Finish { copy: Box::new(copy), reply };
        let gone = |_| Error::Stopped.to_string();
        self.committer
            .send(Command::RewriteFinish(Box::new(finish)))
            .map_err(|_| Error::Stopped.to_string())?;
        answer.recv().map_err(gone)?
    }

    fn snapshot(&self) -> Result<File, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Read(format!("snapshot: {error}").into());
        let path = snapshot_path(&self.shared.dir);
        let start = self.start().map_err(|error| failed(&error))?;
        let result =
            Copy::start(&self.shared, &path, &start).map_err(|error| failed(&error)).and_then(|mut copy| {
                copy.copy_records(&self.shared, &start).map_err(|error| failed(&error))?;
                copy.log.trim().map_err(|error| failed(&error))?;
                copy.log.file().try_clone().map_err(|error| failed(&error))
            });
        // The open file is enough.
        let _ = std::fs::remove_file(&path);
        result
    }

    fn start(&self) -> Result<Start, String> {
        let (reply, answer) = channel();
        let stopped = || Error::Stopped.to_string();
        self.committer.send(Command::RewriteStart(reply)).map_err(|_| stopped())?;
        answer.recv().map_err(|_| stopped())
    }
}
