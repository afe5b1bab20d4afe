//! The store's public interface. The calling thread answers reads from durable data; writes are sent to the committer
//! and return when they are on disk. All of it may be called from any thread; the `async` functions need no particular
//! runtime.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::Instant,
};

use tokio::sync::oneshot;

use super::{
    check,
    committer::{Command, Committer, Reply},
    error::{Error, OpenError},
    evaluate,
    hash::{self, HashKv},
    hub::{self, Hub},
    janitor::{Janitor, Job},
    lease::MAX_TTL,
    load,
    lockfile::{self, Lock},
    read::{Pins, View, lock, read},
    shared::{Counters, Options, Shared, file_path, new_file_path},
    types::{
        DeleteRangeRequest, DeleteRangeResponse, LeaseGrant, LeaseTtl, Op, OpResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, Status, TxnRequest, TxnResponse, WatchRequest,
    },
    watch::{WatchError, WatchStream},
};

/// An open store. It closes when the last handle is dropped, or with [`Store::close`].
pub struct Store {
    shared: Arc<Shared>,
    commands: Sender<Command>,
    jobs: Sender<Job>,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    committer: JoinHandle<()>,
    janitor: JoinHandle<()>,
    /// Released last, when nothing is written any more.
    _lock: Lock,
}

/// Counts of the store's operations since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Requested puts, including those in transactions.
    pub puts: u64,
    /// Requested deletions, including those in transactions.
    pub deletes: u64,
    /// Transactions.
    pub txns: u64,
    /// Ranges, including those in transactions.
    pub ranges: u64,
    /// Synced commits.
    pub commits: u64,
    /// Events delivered to watches.
    pub events: u64,
}

impl Store {
    /// Opens the store in `dir`, creating directory and store if they do not exist.
    ///
    /// # Errors
    /// When another process has it open, when its file is damaged, or when the operating system returns an error.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Arc<Self>, OpenError> {
        let dir = dir.as_ref();
        load::prepare_dir(dir)?;
        let lock = lockfile::acquire(dir)?;
        let loaded = load::load(dir)?;
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            options,
            cluster_id: loaded.log.cluster_id(),
            member_id: loaded.log.member_id(),
            index: RwLock::new(loaded.index),
            pins: Pins::default(),
            durable: AtomicI64::new(loaded.revision),
            file_end: AtomicU64::new(loaded.log.end()),
            leases: Mutex::new(loaded.leases),
            hub: Mutex::new(Hub::new(loaded.revision)),
            alarm: AtomicBool::new(loaded.alarm),
            broken: OnceLock::new(),
            counters: Counters::default(),
        });
        let (commands, command_queue) = channel();
        let (jobs, job_queue) = channel();
        let committer =
            Committer::new(Arc::clone(&shared), loaded.log, loaded.revision, command_queue, jobs.clone());
        let janitor = Janitor { shared: Arc::clone(&shared), jobs: job_queue, committer: commands.clone() };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
                .map_err(OpenError::io("start a thread for", dir))
        };
        let threads = Threads {
            committer: spawn("kv-commit", Box::new(move || committer.run()))?,
            janitor: spawn("kv-janitor", Box::new(move || janitor.run()))?,
            _lock: lock,
        };
        Ok(Arc::new(Self { shared, commands, jobs, threads: Mutex::new(Some(threads)) }))
    }

    /// Opens the store in `dir` if there is one. Creates nothing.
    ///
    /// # Errors
    /// [`OpenError::NoStore`], and those of [`Store::open`].
    pub fn open_existing(dir: impl AsRef<Path>, options: Options) -> Result<Arc<Self>, OpenError> {
        let dir = dir.as_ref();
        let path = file_path(dir);
        match path.try_exists() {
            Ok(true) => Self::open(dir, options),
            Ok(false) => Err(OpenError::NoStore { dir: dir.to_owned() }),
            // A component of the path is a file.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                Err(OpenError::NoStore { dir: dir.to_owned() })
            }
            Err(error) => Err(OpenError::io("examine", &path)(error)),
        }
    }

    /// Creates a new store in `dir` from a snapshot file.
    ///
    /// # Errors
    /// When the snapshot is incomplete, or `dir` already contains a store.
    pub fn restore(dir: impl AsRef<Path>, snapshot: &Path) -> Result<(), OpenError> {
        let dir = dir.as_ref();
        load::prepare_dir(dir)?;
        let _lock = lockfile::acquire(dir)?;
        let path = file_path(dir);
        if path.try_exists().map_err(OpenError::io("examine", &path))? {
            return Err(OpenError::Exists { path });
        }
        let new = new_file_path(dir);
        super::snapshot::unpack(snapshot, &new)?;
        load::load_file(&new)?;
        std::fs::rename(&new, &path).map_err(OpenError::io("create", &path))?;
        load::sync_dir(dir).map_err(OpenError::io("sync", dir))
    }

    /// Reads keys.
    ///
    /// # Errors
    /// For a revision that is compacted or in the future, or an empty key.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        check::range(request)?;
        self.shared.counters.ranges.fetch_add(1, Ordering::Relaxed);
        self.read_now(|view| view.range(request))
    }

    /// Writes a key; returns when it is durable.
    ///
    /// # Errors
    /// In the same cases as etcd, and when the file cannot be written.
    pub async fn put(&self, request: PutRequest) -> Result<PutResponse, Error> {
        check::put(&request)?;
        match self.op(Op::Put(request)).await? {
            OpResponse::Put(response) => Ok(response),
            _ => Err(Error::Stopped),
        }
    }

    /// Deletes keys; returns when it is durable.
    ///
    /// # Errors
    /// In the same cases as etcd, and when the file cannot be written.
    pub async fn delete_range(&self, request: DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        check::delete(&request)?;
        match self.op(Op::DeleteRange(request)).await? {
            OpResponse::DeleteRange(response) => Ok(response),
            _ => Err(Error::Stopped),
        }
    }

    /// Carries out a transaction; returns when it is durable.
    ///
    /// # Errors
    /// In the same cases as etcd, and when the file cannot be written.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Error> {
        check::txn(&request, self.shared.options.max_txn_ops)?;
        self.shared.counters.txns.fetch_add(1, Ordering::Relaxed);
        let op = Op::Txn(request);
        if !check::writes(&op)
            && let Op::Txn(request) = &op
        {
            return self.read_now(|view| evaluate::read_only(view, request));
        }
        match self.op(op).await? {
            OpResponse::Txn(response) => Ok(response),
            _ => Err(Error::Stopped),
        }
    }

    /// Removes all revisions before `revision` that are not current at it. With `physical`, returns when they are gone
    /// from the index. Returns the store's revision.
    ///
    /// # Errors
    /// When `revision` is compacted already or in the future.
    pub async fn compact(&self, revision: i64, physical: bool) -> Result<i64, Error> {
        self.ask(|reply| Command::Compact { revision, physical, reply }).await
    }

    /// Grants a lease; an `id` of 0 lets the store choose.
    ///
    /// # Errors
    /// When the id is taken or `ttl` is too large.
    pub async fn lease_grant(&self, id: i64, ttl: i64) -> Result<LeaseGrant, Error> {
        if ttl > MAX_TTL {
            return Err(Error::LeaseTtlTooLarge);
        }
        let id = if id == 0 { (super::log::random() >> 1).cast_signed().max(1) } else { id };
        self.ask(|reply| Command::Grant { id, ttl, reply }).await
    }

    /// Ends a lease and deletes its keys; returns the store's revision.
    ///
    /// # Errors
    /// When the lease does not exist.
    pub async fn lease_revoke(&self, id: i64) -> Result<i64, Error> {
        self.ask(|reply| Command::Revoke { id, reply }).await
    }

    /// Restarts a lease's time; returns its seconds.
    ///
    /// # Errors
    /// When the lease does not exist.
    pub fn lease_keep_alive(&self, id: i64) -> Result<i64, Error> {
        lock(&self.shared.leases).renew(id, Instant::now()).ok_or(Error::LeaseNotFound)
    }

    /// The remaining time of a lease; a `ttl` of -1 means that it does not exist.
    #[must_use]
    pub fn lease_time_to_live(&self, id: i64, keys: bool) -> LeaseTtl {
        let leases = lock(&self.shared.leases);
        match (leases.get(id), leases.remaining(id, Instant::now())) {
            (Some(lease), Some(ttl)) => LeaseTtl {
                id,
                ttl,
                granted_ttl: lease.ttl,
                keys: if keys { lease.keys.iter().cloned().collect() } else { Vec::new() },
            },
            _ => LeaseTtl { id, ttl: -1, ..LeaseTtl::default() },
        }
    }

    /// Ids of all leases, in order.
    #[must_use]
    pub fn leases(&self) -> Vec<i64> {
        lock(&self.shared.leases).iter().map(|(id, _)| id).collect()
    }

    /// Opens a stream for any number of watches.
    #[must_use]
    pub fn watch_stream(&self) -> WatchStream {
        WatchStream::new(&self.shared)
    }

    /// Wakes watches for commits until the store closes. Unless this runs, the writing thread does it for each commit;
    /// a server with many watches runs it, and it delivers several commits at once when it cannot keep up.
    pub fn herald(&self) -> impl Future<Output = ()> + Send + use<> {
        hub::herald(Arc::clone(&self.shared))
    }

    /// Opens a stream with one watch.
    ///
    /// # Errors
    /// When the range is empty.
    pub fn watch(&self, request: WatchRequest) -> Result<WatchStream, WatchError> {
        let mut stream = self.watch_stream();
        stream.create(request)?;
        Ok(stream)
    }

    /// The newest durable revision.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// The store's status figures.
    #[must_use]
    pub fn status(&self) -> Status {
        let (live_bytes, keys, compact_revision) = {
            let index = read(&self.shared.index);
            (index.live_bytes, index.len() as u64, index.compacted)
        };
        Status {
            revision: self.revision(),
            compact_revision,
            file_bytes: self.shared.file_end.load(Ordering::Acquire),
            live_bytes,
            keys,
            watchers: lock(&self.shared.hub).watches() as u64,
            leases: lock(&self.shared.leases).len() as u64,
            no_space_alarm: self.shared.alarm.load(Ordering::Relaxed),
            cluster_id: self.shared.cluster_id,
            member_id: self.shared.member_id,
        }
    }

    /// Counts of operations since the store was opened.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let counters = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Activity {
            puts: get(&counters.puts),
            deletes: get(&counters.deletes),
            txns: get(&counters.txns),
            ranges: get(&counters.ranges),
            commits: get(&counters.commits),
            events: get(&counters.events),
        }
    }

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The directory it is in.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.shared.dir.clone()
    }

    /// Checks that the store can still be written.
    ///
    /// # Errors
    /// When it cannot be written, with the reason.
    pub fn healthy(&self) -> Result<(), Error> {
        self.shared.check_broken()
    }

    /// The hash of the history up to `revision` (0 for now), equal to etcd's for the same history.
    ///
    /// # Errors
    /// For a revision that is compacted or in the future.
    pub fn hash(&self, revision: i64) -> Result<HashKv, Error> {
        hash::hash(&self.shared, revision)
    }

    /// Creates a consistent copy of the store, as an open file without a name. Writes continue meanwhile.
    ///
    /// # Errors
    /// When there is not enough space.
    pub async fn snapshot(&self) -> Result<File, Error> {
        self.job(Job::Snapshot).await
    }

    /// Rewrites the file without its garbage. Writes continue meanwhile.
    ///
    /// # Errors
    /// When there is not enough space; the store then keeps using the old file.
    pub async fn defragment(&self) -> Result<(), Error> {
        self.job(Job::Rewrite).await
    }

    /// Raises or clears the quota alarm.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn set_alarm(&self, active: bool) -> Result<(), Error> {
        self.ask(|reply| Command::Alarm { active, reply }).await
    }

    /// Ends all watches, finishes pending work, marks the file as closed and releases the lock. Later writes are
    /// refused.
    pub fn close(&self) {
        let Some(threads) = lock(&self.threads).take() else { return };
        // A separate statement: the lock is not held while streams are woken.
        let wake = lock(&self.shared.hub).close();
        wake.wake();
        // A thread that has already ended needs no command.
        let _ = self.commands.send(Command::Stop);
        let _ = self.jobs.send(Job::Stop);
        for thread in [threads.committer, threads.janitor] {
            if thread.join().is_err() {
                tracing::error!("a thread of the store has panicked");
            }
        }
    }

    /// Reads current durable data. If a compaction passed "now" between choosing the revision and reading, retries.
    fn read_now<T>(&self, read: impl Fn(&View<'_>) -> Result<T, Error>) -> Result<T, Error> {
        loop {
            let view = self.shared.view();
            match read(&view) {
                Err(Error::Compacted { compact_revision }) if compact_revision > view.revision => {}
                other => return other,
            }
        }
    }

    async fn op(&self, op: Op) -> Result<OpResponse, Error> {
        check::size(&op, self.shared.options.max_request_bytes)?;
        self.count(&op);
        self.ask(|reply| Command::Op(op, reply)).await
    }

    fn count(&self, op: &Op) {
        let counters = &self.shared.counters;
        match op {
            Op::Range(_) => counters.ranges.fetch_add(1, Ordering::Relaxed),
            Op::Put(_) => counters.puts.fetch_add(1, Ordering::Relaxed),
            Op::DeleteRange(_) => counters.deletes.fetch_add(1, Ordering::Relaxed),
            Op::Txn(request) => {
                request.success.iter().chain(&request.failure).for_each(|op| self.count(op));
                0
            }
        };
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| Error::Stopped)?;
        answer.await.map_err(|_| Error::Stopped)?
    }

    async fn job<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).map_err(|_| Error::Stopped)?;
        answer.await.map_err(|_| Error::Stopped)?
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}
