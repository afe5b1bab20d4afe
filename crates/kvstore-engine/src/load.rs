//! Start-up: the directory, and the index rebuilt from the log. Nothing is repaired by guessing: whatever the log
//! cannot accept is an error with its position.

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

/// The highest accepted revision of a store, and position within one. No real store comes near; counting on from higher
/// ones would overflow.
const HIGHEST: i64 = i64::MAX / 2;
const HIGHEST_SUB: u32 = u32::MAX / 4;

/// The store as the file describes it.
pub(super) struct Loaded {
    pub(super) log: LogFile,
    pub(super) index: Index,
    pub(super) leases: Leases,
    pub(super) revision: i64,
    pub(super) alarm: bool,
}

/// Creates the directory, accessible by its owner alone. An existing one is left unchanged: other users may need it,
/// too.
pub(super) fn prepare_dir(dir: &Path) -> Result<(), OpenError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(OpenError::io("create", dir))?;
    let mode = dir.metadata().map_err(OpenError::io("examine", dir))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            "{} has mode {mode:04o}: other users can access it; 0700 is recommended for the directory of a store",
            dir.display()
        );
    }
    Ok(())
}

/// Loads the store in `dir`, creating it if there is none. The caller holds the lock.
pub(super) fn load(dir: &Path) -> Result<Loaded, OpenError> {
    let path = file_path(dir);
    // A crash may have left unfinished copies.
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
            "dropped {dropped} bytes of an incomplete commit that was never acknowledged"
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

/// Creates an empty store, which gets its name only once it is complete.
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
    /// Adds one commit whose records start at `offset` of the file.
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
        check(record, self.revision)?;
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

/// Checks the numbers of a record, which can be intact and still impossible: a file may come from anywhere. `newest` is
/// the revision before it.
fn check(record: &Record, newest: i64) -> Result<(), String> {
    let (revision, sub, lowest) = match record {
        Record::Put { sub, kv } => (kv.mod_revision, *sub, 1),
        Record::Delete { revision, sub, .. } => (*revision, *sub, 1),
        Record::State { revision, .. } | Record::Compact { revision } => (*revision, 0, 0),
        Record::LeaseGrant { .. } | Record::LeaseRevoke { .. } | Record::Alarm { .. } => return Ok(()),
    };
    let fits = match record {
        Record::Put { kv, .. } => {
            // A revision writes a key at most once.
            (1..=revision).contains(&kv.create_revision)
                && (1..=revision - kv.create_revision + 1).contains(&kv.version)
        }
        Record::State { compacted, .. } => (0..=revision).contains(compacted),
        // With a later one, every readable revision would count as compacted, and readers would retry forever.
        Record::Compact { .. } => revision <= newest,
        _ => true,
    };
    if fits && (lowest..=HIGHEST).contains(&revision) && sub <= HIGHEST_SUB {
        return Ok(());
    }
    Err(format!("a record of revision {revision} has impossible numbers"))
}

#[cfg(test)]
mod tests {
    use super::super::{log::FRAME_HEADER, types::KeyValue};
    use super::*;

    fn load_one(record: &Record) -> Result<Loaded, OpenError> {
        let folder = testkit::Folder::new("load").unwrap();
        let path = folder.path().join("tortie.db");
        let mut log = LogFile::create(&path, 1, 2).unwrap();
        let mut frame = vec![0; FRAME_HEADER];
        record.encode(&mut frame);
        assert!(log.append(&mut frame).is_ok());
        load_file(&path)
    }

    #[test]
    fn impossible_numbers_are_damage() {
        let put = |mod_revision, create_revision, version, sub| Record::Put {
            sub,
            kv: KeyValue { key: "k".into(), mod_revision, create_revision, version, ..KeyValue::default() },
        };
        let delete = |revision, sub| Record::Delete { revision, sub, key: "k".into() };
        let state = |revision, compacted| Record::State { revision, compacted };
        let compact = |revision| Record::Compact { revision };
        for good in [put(2, 2, 1, 0), put(9, 2, 5, 7), delete(3, 1), state(1, 0), state(9, 9), compact(1)] {
            assert!(load_one(&good).is_ok(), "{good:?}");
        }
        for bad in [
            put(i64::MAX, 2, 1, 0),
            put(0, 0, 1, 0),
            put(-5, -5, 1, 0),
            put(2, 3, 1, 0),
            put(2, 2, i64::MAX, 0),
            put(9, 2, 9, 0),
            put(2, 2, 0, 0),
            put(2, 2, 1, 1 << 31),
            delete(i64::MAX, 0),
            delete(2, u32::MAX),
            state(i64::MAX, 0),
            state(3, 4),
            state(3, -1),
            compact(i64::MAX),
            compact(-1),
            compact(5),
        ] {
            assert!(matches!(load_one(&bad), Err(OpenError::Damaged { .. })), "{bad:?}");
        }
    }
}
