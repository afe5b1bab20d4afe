//! The log file: create, open and check, append and sync. It never interprets records; opening passes every valid
//! payload to its caller in order.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use super::{
    align,
    frame::{self, FRAME_HEADER, MAGIC},
    header::{FIRST_FRAME, Header, HeaderState, PAGE},
};
use crate::error::OpenError;

/// Space is zero-filled in steps of this size: syncing into written blocks needs no journal commit of the file system.
const ZERO_STEP: u64 = 1 << 20;
/// Bounds of one reservation of space.
const RESERVE: std::ops::RangeInclusive<u64> = (1 << 20)..=(16 << 20);

/// A log that is open for appending.
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    header: Header,
    /// Where the next frame starts; everything before it is valid.
    end: u64,
    /// Sequence of the next frame.
    sequence: u64,
    /// Zeros are written up to here.
    zeroed: u64,
    /// Space is reserved up to here.
    reserved: u64,
}

/// The result of opening a log.
pub(crate) struct Opened {
    pub(crate) log: LogFile,
    /// Bytes of an unfinished commit that were dropped.
    pub(crate) dropped: u64,
}

/// How an append failed.
#[derive(Debug)]
pub(crate) enum Append {
    /// No space was left and nothing was written: the log is as before.
    NoSpace,
    /// The end of the file is now unknown; the log must not be written any more.
    Broken(io::Error),
}

impl LogFile {
    /// Creates a log, or truncates the file at `path`. Not durable before the first [`LogFile::append`] or
    /// [`LogFile::sync`]; syncing the directory is left to the caller.
    pub(crate) fn create(path: &Path, cluster_id: u64, member_id: u64) -> Result<Self, OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .map_err(OpenError::io("create", path))?;
        let header = Header { salt: random(), cluster_id, member_id, turn: 0, synced: FIRST_FRAME };
        let mut log = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            header,
            end: FIRST_FRAME,
            sequence: 1,
            zeroed: FIRST_FRAME,
            reserved: FIRST_FRAME,
        };
        log.write_header().and_then(|()| log.write_header()).map_err(OpenError::io("write", path))?;
        Ok(log)
    }

    /// Opens an existing log, checks all of it, and calls `payload` with the offset and bytes of each commit.
    pub(crate) fn open(
        path: &Path,
        mut payload: impl FnMut(u64, &Bytes) -> Result<(), String>,
    ) -> Result<Opened, OpenError> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(OpenError::io("open", path))?;
        let size = file.metadata().map_err(OpenError::io("examine", path))?.len();
        let header = read_header(&file, size, path)?;
        let damaged = |offset, reason: String| OpenError::Damaged { path: path.to_owned(), offset, reason };
        let mut end = FIRST_FRAME;
        let mut sequence = 1;
        let mut window = Window { file: &file, size, start: 0, bytes: Bytes::new() };
        while let Some(bytes) =
            window.frame(header.salt, end, Some(sequence)).map_err(OpenError::io("read", path))?
        {
            payload(end + FRAME_HEADER as u64, &bytes).map_err(|reason| damaged(end, reason))?;
            end = align(end + FRAME_HEADER as u64 + bytes.len() as u64);
            sequence += 1;
        }
        if end < header.synced {
            let reason = format!("commit {sequence} is unreadable, but was synced");
            return Err(damaged(end, reason));
        }
        let tail = scan_tail(&file, size, header.salt, end, sequence).map_err(OpenError::io("read", path))?;
        if let Some(found) = tail.frame_at {
            let reason = format!("commit {sequence} is unreadable, but a later one follows at byte {found}");
            return Err(damaged(end, reason));
        }
        let mut log = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            header,
            end,
            sequence,
            zeroed: end,
            reserved: size.max(end),
        };
        let dropped = tail.written_end.saturating_sub(end);
        if dropped > 0 {
            log.zero(end, tail.written_end).map_err(OpenError::io("clean up", path))?;
        }
        log.header.synced = end;
        log.write_header().and_then(|()| log.file.sync_data()).map_err(OpenError::io("sync", path))?;
        Ok(Opened { log, dropped })
    }

    /// Appends one commit and syncs it. `frame` starts with [`FRAME_HEADER`] bytes, which are filled in here; its
    /// records must have been laid out for [`LogFile::end`].
    pub(crate) fn append(&mut self, frame: &mut [u8]) -> Result<(), Append> {
        self.append_unsynced(frame)?;
        self.file.sync_data().map_err(Append::Broken)
    }

    /// [`LogFile::append`] without the sync.
    pub(crate) fn append_unsynced(&mut self, frame: &mut [u8]) -> Result<(), Append> {
        let next = align(self.end + frame.len() as u64);
        self.ensure(next)?;
        frame::seal(frame, self.header.salt, self.end, self.sequence);
        match self.file.write_all_at(frame, self.end) {
            // A file system that allocates on overwrite can still run out of space here. What was written is an
            // unfinished frame, which the next one overwrites.
            Err(error) if no_space(&error) => return Err(Append::NoSpace),
            other => other.map_err(Append::Broken)?,
        }
        self.end = next;
        self.sequence += 1;
        Ok(())
    }

    /// Makes everything appended durable and records that in the header.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.header.synced = self.end;
        self.write_header()?;
        self.file.sync_all()
    }

    /// [`LogFile::sync`], then frees reserved space: for a file that will not grow.
    pub(crate) fn trim(&mut self) -> io::Result<()> {
        self.sync()?;
        self.file.set_len(self.end)?;
        self.reserved = self.end;
        self.zeroed = self.end;
        self.file.sync_all()
    }

    /// Moves the file to `path`; durable when the directory is synced.
    pub(crate) fn rename(&mut self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Where the next frame starts.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The open file, for reading.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn salt(&self) -> u64 {
        self.header.salt
    }

    pub(crate) fn cluster_id(&self) -> u64 {
        self.header.cluster_id
    }

    pub(crate) fn member_id(&self) -> u64 {
        self.header.member_id
    }

    /// The frames from `offset` to `end` of a log that is being appended to; `end` must not exceed the known end.
    pub(crate) fn frames(file: &File, salt: u64, offset: u64, end: u64) -> Frames<'_> {
        Frames { window: Window { file, size: end, start: 0, bytes: Bytes::new() }, salt, at: offset }
    }

    /// Ensures that `..next` is reserved and zero-filled.
    fn ensure(&mut self, next: u64) -> Result<(), Append> {
        if next > self.reserved {
            let step = (next / 4).clamp(*RESERVE.start(), *RESERVE.end());
            let target = next.max(self.reserved + step).next_multiple_of(ZERO_STEP);
            // If a generous reservation does not fit, a tight one may.
            let reserved = self
                .reserve(target)
                .or_else(|_| self.reserve(next.next_multiple_of(PAGE as u64)))
                .map_err(|error| if no_space(&error) { Append::NoSpace } else { Append::Broken(error) })?;
            self.reserved = reserved;
            // Everything before `end` is synced, except in a file under construction, which is never read after a
            // crash.
            self.header.synced = self.end;
            match self.write_header() {
                Err(error) if no_space(&error) => return Err(Append::NoSpace),
                other => other.map_err(Append::Broken)?,
            }
        }
        while self.zeroed < next {
            let to = (self.zeroed + ZERO_STEP).min(self.reserved);
            match self.zero(self.zeroed, to) {
                Err(error) if no_space(&error) => return Err(Append::NoSpace),
                other => other.map_err(Append::Broken)?,
            }
            self.zeroed = to;
        }
        Ok(())
    }

    fn reserve(&self, to: u64) -> io::Result<u64> {
        let flags = FallocateFlags::empty();
        match rustix::fs::fallocate(&self.file, flags, self.reserved, to - self.reserved) {
            Ok(()) => Ok(to),
            // A file system without reservations: writing the zeros below will show whether there is space.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(to),
            Err(errno) => Err(errno.into()),
        }
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = from;
        while at < to {
            let length = usize::try_from((to - at).min(ZEROS.len() as u64)).unwrap_or(ZEROS.len());
            self.file.write_all_at(&ZEROS[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    fn write_header(&mut self) -> io::Result<()> {
        self.header.turn += 1;
        let (at, page) = self.header.encode();
        self.file.write_all_at(&page, at)
    }
}

/// Reads `length` bytes at `offset`.
pub(crate) fn read_exact_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; length];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer.into())
}

fn no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// A random word, for the salt and the identities.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds this from the operating system, once per instance.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn read_header(file: &File, size: u64, path: &Path) -> Result<Header, OpenError> {
    let not = |reason: String| OpenError::NotAStore { path: path.to_owned(), reason };
    if size < FIRST_FRAME {
        return Err(not(format!("it is only {size} bytes long")));
    }
    let pages = read_exact_at(file, 0, 2 * PAGE).map_err(OpenError::io("read", path))?;
    match Header::decode(&pages) {
        HeaderState::Valid(header) => Ok(header),
        HeaderState::Format(format) => Err(not(format!("it has format {format}"))),
        HeaderState::Invalid => Err(not("it has no valid header".to_owned())),
    }
}

/// Reads ahead, so that a log of small commits does not cost two system calls for each.
struct Window<'a> {
    file: &'a File,
    size: u64,
    start: u64,
    bytes: Bytes,
}

impl Window<'_> {
    const AHEAD: u64 = 256 << 10;

    /// `length` bytes at `offset`, or `None` if the file ends before. The length is checked before memory is allocated.
    fn get(&mut self, offset: u64, length: u64) -> io::Result<Option<Bytes>> {
        let Some(end) = offset.checked_add(length).filter(|&end| end <= self.size) else { return Ok(None) };
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let ahead = length.max(Self::AHEAD).min(self.size - offset);
            let ahead = usize::try_from(ahead).map_err(io::Error::other)?;
            self.bytes = read_exact_at(self.file, offset, ahead)?;
            self.start = offset;
        }
        let from = usize::try_from(offset - self.start).map_err(io::Error::other)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        Ok(Some(self.bytes.slice(from..from + length)))
    }

    /// The payload of the frame at `offset`, if there is one.
    fn frame(&mut self, salt: u64, offset: u64, sequence: Option<u64>) -> io::Result<Option<Bytes>> {
        let Some(header) = self.get(offset, FRAME_HEADER as u64)? else { return Ok(None) };
        let Some(header) = frame::parse(&header) else { return Ok(None) };
        if sequence.is_some_and(|sequence| sequence != header.sequence) {
            return Ok(None);
        }
        let payload = self.get(offset + FRAME_HEADER as u64, u64::from(header.length))?;
        Ok(payload.filter(|payload| frame::verify(&header, salt, offset, payload)))
    }
}

/// Frames of a log, for copying. Each read-ahead serves many of them: commits are small.
pub(crate) struct Frames<'a> {
    window: Window<'a>,
    salt: u64,
    at: u64,
}

impl Frames<'_> {
    /// The payload of the next frame and the offset of the one after it, or `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Bytes, u64)>> {
        if self.at >= self.window.size {
            return Ok(None);
        }
        let at = self.at;
        let bytes = self.window.frame(self.salt, at, None)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("the commit at byte {at} is unreadable"))
        })?;
        self.at = align(at + FRAME_HEADER as u64 + bytes.len() as u64);
        Ok(Some((bytes, self.at)))
    }
}

struct Tail {
    /// A valid frame of a later sequence, which means that an earlier one was lost.
    frame_at: Option<u64>,
    /// One past the last byte that is not zero.
    written_end: u64,
}

/// Looks through the space after the last valid frame.
fn scan_tail(file: &File, size: u64, salt: u64, end: u64, sequence: u64) -> io::Result<Tail> {
    const STEP: u64 = 1 << 20;
    let mut tail = Tail { frame_at: None, written_end: end };
    let mut at = end;
    while at < size {
        let length = usize::try_from(STEP.min(size - at)).unwrap_or_default();
        let chunk = read_exact_at(file, at, length)?;
        if let Some(last) = chunk.iter().rposition(|&byte| byte != 0) {
            tail.written_end = at + last as u64 + 1;
            for (index, word) in chunk.chunks_exact(8).enumerate() {
                let offset = at + index as u64 * 8;
                if word[..4] != MAGIC.to_le_bytes() || offset == end {
                    continue;
                }
                let mut window = Window { file, size, start: 0, bytes: Bytes::new() };
                let later = window
                    .get(offset, FRAME_HEADER as u64)?
                    .and_then(|bytes| frame::parse(&bytes))
                    .is_some_and(|header| header.sequence > sequence);
                if later && window.frame(salt, offset, None)?.is_some() {
                    tail.frame_at = Some(offset);
                    return Ok(tail);
                }
            }
        }
        at += STEP;
    }
    Ok(tail)
}
