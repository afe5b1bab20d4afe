//! Reclaiming space: the records that are still needed are copied into a new file while writes continue in the old one;
//! then the committer copies later commits, syncs, and renames the new file over the old one. Until that rename the old
//! file is the store, so a crash or a full disk at any moment costs nothing. Snapshots are the same copy without the
//! switch.

use std::{fs::File, io, path::Path, sync::Arc, sync::mpsc::Sender};

use bytes::Bytes;

use super::{
    error::OpenError,
    index::{Entry, KeyRange, Moved},
    log::{Append, FRAME_HEADER, LogFile, Record},
    read::{CHUNK, Selection, read},
    shared::{Shared, file_path},
};

/// Bytes of records per frame of the copy.
const FRAME_BYTES: usize = 256 << 10;

/// The state between two commits, as recorded by the committer.
pub(super) struct Start {
    pub(super) slot: usize,
    pub(super) file: Arc<File>,
    pub(super) salt: u64,
    /// All records so far are before this.
    pub(super) end: u64,
    pub(super) revision: i64,
    pub(super) compacted: i64,
    pub(super) leases: Vec<(i64, i64)>,
    pub(super) alarm: bool,
}

/// Asks the committer to finish.
pub(super) struct Finish {
    pub(super) copy: Box<Copy>,
    pub(super) reply: Sender<Result<Vec<Moved>, String>>,
}

/// The new file under construction.
pub(super) struct Copy {
    pub(super) log: LogFile,
    /// In the order of the new file.
    pub(super) moved: Vec<Moved>,
    frame: Vec<u8>,
    /// How far the old file's frames have been copied.
    tail: u64,
}

impl Copy {
    /// Starts a copy at `path` with the state that the records themselves do not hold.
    pub(super) fn start(shared: &Shared, path: &Path, start: &Start) -> Result<Self, OpenError> {
        let log = LogFile::create(path, shared.cluster_id, shared.member_id)?;
        let mut copy = Self { log, moved: Vec::new(), frame: vec![0; FRAME_HEADER], tail: start.end };
        let state = Record::State { revision: start.revision, compacted: start.compacted };
        state.encode(&mut copy.frame);
        for &(id, ttl) in &start.leases {
            Record::LeaseGrant { id, ttl }.encode(&mut copy.frame);
        }
        if start.alarm {
            Record::Alarm { active: true }.encode(&mut copy.frame);
        }
        Ok(copy)
    }

    /// Copies every record that is needed and existed at the start, in order of keys, so that the keys of a range are
    /// adjacent in the file.
    pub(super) fn copy_records(&mut self, shared: &Shared, start: &Start) -> io::Result<()> {
        let range = KeyRange::new(&[], b"\0");
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let index = read(&shared.index);
            let mut entries: Vec<Entry> = Vec::new();
            let last =
                index.walk(&range, after.as_deref(), CHUNK, |_, known| {
                    entries.extend(known.entries.iter().filter(|entry| {
                        entry.place.slot() == start.slot && entry.place.offset() < start.end
                    }));
                });
            let next = last.map(Box::from);
            let selection = Selection { files: index.files.clone(), entries };
            drop(index);
            for (record, entry) in
                selection.load(None).map_err(io::Error::other)?.iter().zip(&selection.entries)
            {
                self.moved.push(Moved { id: entry.id(), offset: self.log.end() + self.frame.len() as u64 });
                record.encode(&mut self.frame);
                if self.frame.len() >= FRAME_BYTES {
                    self.flush()?;
                }
            }
            after = next;
            if after.is_none() {
                return self.flush();
            }
        }
    }

    /// Copies the later commits of the old file, up to `end`.
    pub(super) fn copy_tail(&mut self, file: &File, salt: u64, end: u64) -> io::Result<()> {
        let mut frames = LogFile::frames(file, salt, self.tail, end);
        while let Some((payload, next)) = frames.next()? {
            let base = self.log.end() + FRAME_HEADER as u64;
            let mut at = 0;
            while at < payload.len() {
                let (record, length) = Record::decode(&payload.slice(at..)).map_err(io::Error::other)?;
                let id = match &record {
                    Record::Put { sub, kv } => Some((kv.mod_revision, *sub)),
                    Record::Delete { revision, sub, .. } => Some((*revision, *sub)),
                    _ => None,
                };
                if let Some(id) = id {
                    self.moved.push(Moved { id, offset: base + at as u64 });
                }
                at += length;
            }
            self.copy_payload(&payload)?;
            self.tail = next;
        }
        Ok(())
    }

    /// Makes the copy durable and moves it to the store's path; the directory must still be synced.
    pub(super) fn seal(&mut self, dir: &Path) -> io::Result<()> {
        self.log.sync()?;
        self.log.rename(&file_path(dir))
    }

    fn copy_payload(&mut self, payload: &Bytes) -> io::Result<()> {
        self.frame.truncate(FRAME_HEADER);
        self.frame.extend_from_slice(payload);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.len() > FRAME_HEADER {
            self.log.append_unsynced(&mut self.frame).map_err(|failure| match failure {
                Append::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
                Append::Broken(error) => error,
            })?;
            self.frame.truncate(FRAME_HEADER);
        }
        Ok(())
    }
}
