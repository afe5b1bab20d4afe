//! Start-up: the directory, and the index rebuilt from the log. Nothing is repaired by guessing: what the log refuses is an error
//! that says where.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    time::Instant,
};

use bytes::Bytes;

use super::{
    error::OpenError,
    index::{Entry, Index, Place},
    lease::Leases,
    log::{LogFile, Opened, Record},
    shared::{file_path, new_file_path, snapshot_path},
};

/// The store as the file describes it.
pub(super) struct Loaded {
    pub(super) log: LogFile,
    pub(super) index: Index,
    pub(super) leases: Leases,
    pub(super) revision: i64,
    pub(super) alarm: bool,
}

/// Makes the directory, for its owner alone. One that is there stays as it is: it may be there for others, too.
pub(super) fn prepare_dir(dir: &Path) -> Result<(), OpenError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(OpenError::io("create", dir))?;
    let mode = dir.metadata().map_err(OpenError::io("examine", dir))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            "{} has mode {mode:04o}: others can get at it; 0700 is recommended for the directory of a store",
            dir.display()
        );
    }
    Ok(())
}

/// Loads the store in `dir`, creating it if there is none. The caller holds the lock.
pub(super) fn load(dir: &Path) -> Result<Loaded, OpenError> {
    let path = file_path(dir);
    // A crash may have left copies that were never finished.
    for leftover in [new_file_path(dir), snapshot_path(dir)] {
        match std::fs::remove_file(&leftover) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::io("remove", &leftover)(error));
            }
            _ => {}
        }
    }
    if !path.try_exists().map_err(OpenError::io("examine", &path))? {
        create(dir)?;
    }
    load_file(&path)
}

/// Reads a store's file from start to end.
pub(super) fn load_file(path: &Path) -> Result<Loaded, OpenError> {
    let mut replay = Replay {
        index: Index::default(),
        leases: Leases::default(),
        revision: 1,
        compacted: 0,
        alarm: false,
        now: Instant::now(),
    };
    let Opened { log, dropped } = LogFile::open(path, |offset, payload| replay.payload(offset, payload))?;
    if dropped > 0 {
        tracing::warn!(
            path = %path.display(),
            "dropped {dropped} bytes of a commit that was cut short and never acknowledged"
        );
    }
    let Replay { mut index, mut leases, revision, compacted, alarm, .. } = replay;
    index.sort_history();
    index.compacted = compacted;
    if compacted > 0 {
        index.prune(compacted, None, usize::MAX);
        index.forget_history(compacted);
    }
    index.files[0] = Some(log.file().clone());
    leases.restart(Instant::now());
    Ok(Loaded { log, index, leases, revision, alarm })
}

/// Makes renames and creations in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// An empty store appears under its name only when it is whole.
fn create(dir: &Path) -> Result<(), OpenError> {
    let (path, new) = (file_path(dir), new_file_path(dir));
    let mut log = LogFile::create(&new, random_id(), random_id())?;
    log.sync().map_err(OpenError::io("sync", &new))?;
    log.rename(&path).map_err(OpenError::io("create", &path))?;
    sync_dir(dir).map_err(OpenError::io("sync", dir))
}

fn random_id() -> u64 {
    super::log::random() | 1
}

struct Replay {
    index: Index,
    leases: Leases,
    revision: i64,
    compacted: i64,
    alarm: bool,
    now: Instant,
}

impl Replay {
    /// Takes in one commit whose records start at `offset` of the file.
    fn payload(&mut self, offset: u64, payload: &Bytes) -> Result<(), String> {
        let mut at = 0;
        while at < payload.len() {
            let (record, length) = Record::decode(&payload.slice(at..)).map_err(|error| error.to_string())?;
            let place = Place::new(0, offset + at as u64);
            let stored = u32::try_from(length).map_err(|_| "a record is too long".to_owned())?;
            self.record(&record, place, stored)?;
            at += length;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record, place: Place, length: u32) -> Result<(), String> {
        match record {
            Record::Put { sub, kv } => {
                let entry = Entry::new(kv.mod_revision, *sub, false, length, place);
                self.entry(&kv.key, entry, kv.create_revision, kv.version)?;
                self.leases.attach(&kv.key, kv.lease);
            }
            Record::Delete { revision, sub, key } => {
                self.entry(key, Entry::new(*revision, *sub, true, length, place), 0, 0)?;
                self.leases.attach(key, 0);
            }
            Record::State { revision, compacted } => {
                self.revision = self.revision.max(*revision);
                self.compacted = self.compacted.max(*compacted);
            }
            Record::Compact { revision } => self.compacted = self.compacted.max(*revision),
            Record::LeaseGrant { id, ttl } => self.leases.grant(*id, *ttl, self.now),
            Record::LeaseRevoke { id } => {
                self.leases.remove(*id);
            }
            Record::Alarm { active } => self.alarm = *active,
        }
        Ok(())
    }

    fn entry(&mut self, key: &[u8], entry: Entry, create: i64, version: i64) -> Result<(), String> {
        let newest = self.index.get(key).and_then(|known| known.entries.last().copied());
        if newest.is_some_and(|newest| newest.id() >= entry.id()) {
            return Err(format!("revision {} of a key follows a later one", entry.revision));
        }
        self.index.push(key, entry, create, version);
        self.revision = self.revision.max(entry.revision);
        Ok(())
    }
}
