//! The only writer: a thread that takes requests, puts all that are waiting into one commit, syncs it once, and only
//! then makes it visible and answers. It never waits for a reader or a watch.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    batch::{Batch, within_quota},
    check,
    error::Error,
    hub::Committed,
    janitor::Job,
    log::{Append, LogFile, Record},
    read::{lock, read, write},
    rewrite::{self, Finish, Start},
    shared::Shared,
    types::{LeaseGrant, Op, OpResponse},
};

/// A commit accepts no more requests once it has this many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of requests in a commit.
const BATCH_REQUESTS: usize = 4096;
/// Minimum time between two checks of the leases.
const LEASE_PAUSE: Duration = Duration::from_millis(1);

/// How long expired leases stay when there is no space to record their end.
const FULL_PAUSE: Duration = Duration::from_secs(5);

/// The channel for an answer.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A request to the committer.
pub(super) enum Command {
    Op(Op, Reply<OpResponse>),
    Compact {
        revision: i64,
        physical: bool,
        reply: Reply<i64>,
    },
    Grant {
        id: i64,
        ttl: i64,
        reply: Reply<LeaseGrant>,
    },
    Revoke {
        id: i64,
        reply: Reply<i64>,
    },
    Alarm {
        active: bool,
        reply: Reply<()>,
    },
    /// From the janitor: create a consistent starting point for a rewrite.
    RewriteStart(Sender<Start>),
    /// From the janitor: copy the rest and switch.
    RewriteFinish(Box<Finish>),
    Stop,
}

/// Called when the outcome of a commit is known.
type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

pub(super) struct Committer {
    shared: Arc<Shared>,
    log: LogFile,
    slot: usize,
    /// The newest durable revision.
    revision: i64,
    compacted: i64,
    commands: Receiver<Command>,
    janitor: Sender<Job>,
    batch: Batch,
    done: Vec<Done>,
    /// Compactions in this commit, to be carried out once it is durable.
    compactions: Vec<(i64, Option<Reply<i64>>)>,
    /// Set when the last commit did not fit on the disk: when leases are checked again.
    full_until: Option<Instant>,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        log: LogFile,
        revision: i64,
        commands: Receiver<Command>,
        janitor: Sender<Job>,
    ) -> Self {
        let compacted = read(&shared.index).compacted;
        let batch = Batch::new(Arc::clone(&shared), 0, log.end(), revision);
        Self {
            shared,
            log,
            slot: 0,
            revision,
            compacted,
            commands,
            janitor,
            batch,
            done: Vec::new(),
            compactions: Vec::new(),
            full_until: None,
        }
    }

    /// Works until asked to stop, then leaves a cleanly marked file.
    pub(super) fn run(mut self) {
        loop {
            // Without leases nothing happens until a command arrives: no timer, no work. With leases, sleep until the
            // first one ends; a renewal only makes that too early, and a new lease arrives as a command.
            let next = lock(&self.shared.leases).next_expiry();
            // A broken store ends no leases, and a full disk is not retried continuously.
            let next = next
                .filter(|_| self.shared.broken.get().is_none())
                .map(|at| self.full_until.map_or(at, |until| at.max(until)));
            let received = match next {
                None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => {
                    let wait = at.saturating_duration_since(Instant::now()).max(LEASE_PAUSE);
                    self.commands.recv_timeout(wait)
                }
            };
            let control = match received {
                Ok(command) => self.gather(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Command::Stop),
            };
            self.expire();
            self.commit();
            match control {
                Some(Command::RewriteStart(reply)) => self.start_rewrite(&reply),
                Some(Command::RewriteFinish(finish)) => self.finish_rewrite(*finish),
                Some(Command::Stop) => break,
                _ => {}
            }
        }
        if self.shared.broken.get().is_none()
            && let Err(error) = self.log.sync()
        {
            tracing::warn!("cannot mark the store as closed: {error}");
        }
    }

    /// Collects the waiting commands; returns one that must run between two commits.
    fn gather(&mut self, first: Command) -> Option<Command> {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(command) = next {
            match command {
                Command::RewriteStart(_) | Command::RewriteFinish(_) | Command::Stop => return Some(command),
                command => self.handle(command),
            }
            taken += 1;
            if taken == BATCH_REQUESTS || self.batch.frame.len() >= BATCH_BYTES {
                return None;
            }
            next = self.commands.try_recv().ok();
        }
        None
    }

    fn handle(&mut self, command: Command) {
        let broken = self.shared.check_broken();
        match command {
            Command::Op(op, reply) => {
                let result = broken.and_then(|()| self.apply(&op));
                self.answer(reply, result);
            }
            Command::Compact { revision, physical, reply } => {
                match broken.and_then(|()| self.compact(revision)) {
                    Ok(()) if physical => self.compactions.push((revision, Some(reply))),
                    Ok(()) => {
                        self.compactions.push((revision, None));
                        let now = self.batch.revision;
                        self.answer(reply, Ok(now));
                    }
                    Err(error) => self.answer(reply, Err(error)),
                }
            }
            Command::Grant { id, ttl, reply } => {
                let ttl = ttl.max(self.shared.options.min_lease_ttl);
                let result = broken.and_then(|()| {
                    if self.shared.alarm.load(Ordering::Relaxed) {
                        return Err(Error::NoSpace);
                    }
                    self.batch.grant(id, ttl)
                });
                let revision = self.batch.revision;
                self.answer(reply, result.map(|()| LeaseGrant { id, ttl, revision }));
            }
            Command::Revoke { id, reply } => {
                let result = broken.and_then(|()| self.batch.revoke(id));
                let revision = self.batch.revision;
                self.answer(reply, result.map(|()| revision));
            }
            Command::Alarm { active, reply } => {
                let result = broken.map(|()| self.set_alarm(active));
                self.answer(reply, result);
            }
            // `gather` defers these until between two commits.
            Command::RewriteStart(_) | Command::RewriteFinish(_) | Command::Stop => {}
        }
    }

    fn apply(&mut self, op: &Op) -> Result<OpResponse, Error> {
        if check::puts(op) {
            if self.shared.alarm.load(Ordering::Relaxed) {
                return Err(Error::NoSpace);
            }
            let live = read(&self.shared.index).live_bytes;
            if !within_quota(op, live, self.shared.options.quota_bytes) {
                tracing::warn!("the quota of {} bytes is used up", self.shared.options.quota_bytes);
                self.set_alarm(true);
                return Err(Error::NoSpace);
            }
        }
        self.batch.apply(op)
    }

    fn set_alarm(&mut self, active: bool) {
        self.batch.record(&Record::Alarm { active });
        self.shared.alarm.store(active, Ordering::Relaxed);
    }

    fn compact(&mut self, revision: i64) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted { compact_revision: self.compacted });
        }
        if revision > self.batch.revision {
            return Err(Error::FutureRevision);
        }
        self.compacted = revision;
        self.batch.record(&Record::Compact { revision });
        Ok(())
    }

    fn expire(&mut self) {
        if self.shared.broken.get().is_some() || self.full_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let expired = lock(&self.shared.leases).expired(Instant::now());
        for id in expired {
            // It existed a moment ago, and only this thread removes leases.
            let _ = self.batch.revoke(id);
        }
    }

    /// Answers only once the commit that the answer may depend on is durable.
    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, result: Result<T, Error>) {
        self.done.push(Box::new(move |fate| {
            // The client may have stopped waiting.
            let _ = reply.send(fate.and(result));
        }));
    }

    fn commit(&mut self) {
        let fate = if self.batch.is_empty() { Ok(()) } else { self.write() };
        if fate.is_ok() {
            self.publish();
        } else {
            self.batch.roll_back(self.revision);
            self.compacted = read(&self.shared.index).compacted;
            for (_, reply) in self.compactions.drain(..) {
                if let (Some(reply), Err(error)) = (reply, &fate) {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
        for done in self.done.drain(..) {
            done(fate.clone());
        }
        self.batch.reset(self.slot, self.log.end());
    }

    fn write(&mut self) -> Result<(), Error> {
        match self.log.append(&mut self.batch.frame) {
            Ok(()) => {
                if self.full_until.take().is_some() {
                    tracing::info!("there is space again for the store in {}", self.shared.dir.display());
                }
                Ok(())
            }
            Err(Append::NoSpace) => {
                // Logged once: every writer gets the error.
                if self.full_until.replace(Instant::now() + FULL_PAUSE).is_none() {
                    tracing::warn!("no space left for the store in {}", self.shared.dir.display());
                }
                Err(Error::NoSpace)
            }
            Err(Append::Broken(error)) => {
                self.shared.break_with("writing a commit failed", &error);
                Err(Error::Broken(self.shared.broken.get().cloned().unwrap_or_else(|| "unknown".into())))
            }
        }
    }

    /// Makes the commit visible to readers and watches.
    fn publish(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.revision = self.batch.revision;
        self.dispatch();
        self.shared.file_end.store(self.log.end(), Ordering::Release);
        self.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        for (revision, reply) in self.compactions.drain(..) {
            write(&self.shared.index).compacted = revision;
            // The janitor outlives the committer's work; if it is gone, so is the store.
            let _ = self.janitor.send(Job::Prune { revision, reply });
        }
    }

    /// Wakes the watches. The revision becomes readable under their lock, so that a reader who has seen it and then
    /// asks for a watch's progress never gets an earlier one.
    fn dispatch(&mut self) {
        let mut hub = lock(&self.shared.hub);
        self.shared.durable.store(self.revision, Ordering::Release);
        let wake = if !self.batch.entries.is_empty() && hub.has_watches() {
            let committed = Committed {
                slot: self.slot,
                base: self.log.end() - super::log::aligned(self.batch.frame.len()),
                bytes: Bytes::copy_from_slice(&self.batch.frame),
                entries: std::mem::take(&mut self.batch.entries),
            };
            hub.dispatch(&committed, self.revision, self.shared.options.watch_buffer_bytes)
        } else {
            hub.skip_to(self.revision)
        };
        drop(hub);
        wake.wake();
    }

    fn start_rewrite(&self, reply: &Sender<Start>) {
        let start = Start {
            slot: self.slot,
            file: Arc::clone(self.log.file()),
            salt: self.log.salt(),
            end: self.log.end(),
            revision: self.revision,
            compacted: self.compacted,
            leases: lock(&self.shared.leases).iter().collect(),
            alarm: self.shared.alarm.load(Ordering::Relaxed),
        };
        // If the janitor is gone, there is no rewrite.
        let _ = reply.send(start);
    }

    fn finish_rewrite(&mut self, finish: Finish) {
        let Finish { mut copy, reply } = finish;
        let result = self.shared.check_broken().map_err(|error| error.to_string()).and_then(|()| {
            copy.copy_tail(self.log.file(), self.log.salt(), self.log.end())
                .and_then(|()| copy.seal(&self.shared.dir))
                .map_err(|error| error.to_string())
        });
        let result = result.map(|()| {
            let rewrite::Copy { log, moved, .. } = *copy;
            if let Err(error) = super::load::sync_dir(&self.shared.dir) {
                // It is now unknown which of the two files a crash would leave.
                self.shared.break_with("syncing the directory failed", &error);
            }
            self.slot = 1 - self.slot;
            let mut index = write(&self.shared.index);
            index.slot = self.slot;
            index.files[self.slot] = Some(Arc::clone(log.file()));
            drop(index);
            self.log = log;
            self.shared.file_end.store(self.log.end(), Ordering::Release);
            self.batch.reset(self.slot, self.log.end());
            moved
        });
        let _ = reply.send(result);
    }
}
