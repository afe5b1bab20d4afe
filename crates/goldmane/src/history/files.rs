//! The files of a history: one per hour, named by its start; bounded in total size.

use super::blocks;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The period of a file in seconds. Late flows in it may be older by as much.
const HOUR: i64 = 3600;
const PREFIX: &str = "flows-";
const SUFFIX: &str = ".gz";
const LOCK: &str = "lock";

/// The files.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// Locked as long as this value lives.
    _lock: File,
    most_bytes: u64,
    /// File sizes by the start of their hour.
    sizes: BTreeMap<i64, u64>,
    until: Option<i64>,
}

impl Files {
    /// Opens a folder and cuts off incomplete blocks. Also returns how many files had one.
    pub(super) fn open(folder: &Path, most_bytes: u64) -> io::Result<(Self, u64)> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lock = File::options().create(true).append(true).mode(0o600).open(folder.join(LOCK))?;
        lock.try_lock().map_err(|error| {
            io::Error::other(format!("another process may have {}: {error}", folder.display()))
        })?;
        let mut sizes = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let hour = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
            if let Some(hour) = hour.and_then(|hour| hour.parse::<i64>().ok()) {
                sizes.insert(hour, entry.metadata()?.len());
            }
        }
        let mut files = Self { folder: folder.to_owned(), _lock: lock, most_bytes, sizes, until: None };
        let mut damaged = 0;
        // The newest file with a block determines how far the history goes.
        while let (None, Some(hour)) = (files.until, files.sizes.keys().next_back().copied()) {
            let path = files.path(hour);
            let bytes = std::fs::read(&path)?;
            let outcome = blocks::read(&bytes, |block| files.until = Some(block.end));
            if let Some(error) = outcome.damage {
                tracing::warn!(%error, path = %path.display(), "cutting off the damaged end of a file of the history");
                damaged += 1;
                File::options().write(true).open(&path)?.set_len(outcome.valid as u64)?;
            }
            match outcome.valid {
                0 => files.remove(hour)?,
                valid => drop(files.sizes.insert(hour, valid as u64)),
            }
        }
        Ok((files, damaged))
    }

    /// The time before which everything is in files.
    pub(super) fn until(&self) -> Option<i64> {
        self.until
    }

    /// The total size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.values().sum()
    }

    /// Appends a block, after removing the oldest files if space is needed.
    pub(super) fn append(&mut self, start: i64, end: i64, block: &[u8]) -> io::Result<()> {
        let hour = start.div_euclid(HOUR) * HOUR;
        let more = block.len() as u64;
        while self.bytes() + more > self.most_bytes {
            match self.sizes.keys().next().copied().filter(|oldest| *oldest != hour) {
                Some(oldest) => self.remove(oldest)?,
                None => {
                    return Err(io::Error::other(
                        "an hour of flows needs more space than the history may use",
                    ));
                }
            }
        }
        let path = self.path(hour);
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).mode(0o600).open(&path)?;
        let length = file.metadata()?.len();
        if let Err(error) = file.write_all(block).and_then(|()| file.sync_data()) {
            // Removes what was written of the block; if that fails too, the next start cuts it off, and readers stop
            // there.
            let _ = file.set_len(length);
            return Err(error);
        }
        if length == 0 {
            File::open(&self.folder)?.sync_all()?;
        }
        self.sizes.insert(hour, length + more);
        self.until = Some(end);
        Ok(())
    }

    /// The files that may contain flows that begin in this range, the oldest first.
    pub(super) fn of_range(&self, since: i64, until: i64) -> Vec<PathBuf> {
        let is_wanted =
            |hour: &&i64| since.saturating_sub(HOUR) < **hour && **hour < until.saturating_add(2 * HOUR);
        self.sizes.keys().filter(is_wanted).map(|hour| self.path(*hour)).collect()
    }

    fn path(&self, hour: i64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{hour}{SUFFIX}"))
    }

    fn remove(&mut self, hour: i64) -> io::Result<()> {
        match std::fs::remove_file(self.path(hour)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.sizes.remove(&hour);
        Ok(())
    }
}
