//! Untyped maps: bytes to bytes, with sizes checked before every call.

mod batches;

use crate::error::{Error, Result};
use crate::system::{Attributes, Command, field, info, text};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// More processors than any kernel is built for.
const MOST_PROCESSORS: usize = 8192;

/// The kinds of maps used here, by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Arbitrary keys; with a flag, memory is allocated per element.
    Hash = 1,
    /// Indexes from 0.
    Array = 2,
    /// Programs for tail calls.
    ProgramArray = 3,
    /// A hash with one value per processor.
    PerCpuHash = 5,
    /// An array with one value per processor.
    PerCpuArray = 6,
    /// A hash that evicts what has not been used for long.
    LruHash = 9,
    /// Prefixes; the longest match wins.
    Lpm = 11,
    /// Values taken out in order; no keys.
    Queue = 22,
    /// Events in a ring buffer.
    Ring = 27,
}

impl Kind {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let all = [
            Self::Hash,
            Self::Array,
            Self::ProgramArray,
            Self::PerCpuHash,
            Self::PerCpuArray,
            Self::LruHash,
            Self::Lpm,
            Self::Queue,
            Self::Ring,
        ];
        all.into_iter().find(|kind| *kind as u32 == number)
    }

    fn is_per_cpu(self) -> bool {
        matches!(self, Self::PerCpuHash | Self::PerCpuArray)
    }
}

/// The parameters of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The size of a key in bytes.
    pub key: usize,
    /// The size of a value in bytes, for one processor.
    pub value: usize,
    /// The maximum number of elements.
    pub entries: u32,
    /// A combination of `BPF_F_*`.
    pub flags: u32,
}

impl Definition {
    /// Memory is allocated per element; required for prefixes.
    pub const NO_PREALLOCATION: u32 = 1;
    /// Programs cannot write to the map.
    pub const READ_ONLY_FOR_PROGRAMS: u32 = 1 << 7;

    fn shape(&self) -> String {
        format!("kind {:?}, key {}, value {}, {} entries", self.kind, self.key, self.value, self.entries)
    }

    /// Checks that a map with this definition can be used in place of another.
    pub(crate) fn fits(&self, other: &Self) -> Result<()> {
        let same = (self.kind, self.key, self.value, self.entries)
            == (other.kind, other.key, other.value, other.entries);
        if same {
            return Ok(());
        }
        Err(Error::Unfit { name: self.name.clone(), found: self.shape(), expected: other.shape() })
    }
}

/// A map; it exists until its last owner is gone: this value, a program, or a pin.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    definition: Definition,
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Map {
    /// Creates a map.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create(definition: Definition) -> Result<Self> {
        Self::create_with_types(definition, None)
    }

    /// Creates a map whose key and value have types in this BTF.
    pub(crate) fn create_with_types(
        definition: Definition,
        types: Option<(BorrowedFd<'_>, u32, u32)>,
    ) -> Result<Self> {
        let mut attributes = Attributes::new()
            .u32(0, definition.kind as u32)
            .length(4, definition.key)
            .length(8, definition.value)
            .u32(12, definition.entries)
            .u32(16, definition.flags)
            .name(28, &definition.name);
        if let Some((fd, key, value)) = types {
            attributes = attributes.fd(48, fd).u32(52, key).u32(56, value);
        }
        let fd = attributes.open(Command::MapCreate).map_err(Error::refused(format!(
            "create map {} ({})",
            definition.name,
            definition.shape()
        )))?;
        Ok(Self { fd, definition })
    }

    /// Opens the map pinned at a path.
    ///
    /// # Errors
    /// When it does not exist, or is of an unknown kind.
    pub fn open(path: &Path) -> Result<Self> {
        let file = path_text(path)?;
        let fd = Attributes::new()
            .text(0, &file)
            .open(Command::Get)
            .map_err(Error::refused(format!("open the map at {}", path.display())))?;
        Self::from_fd(fd, &path.display().to_string())
    }

    /// Opens the map with an id.
    ///
    /// # Errors
    /// When it does not exist, or is of an unknown kind.
    pub fn by_id(id: u32) -> Result<Self> {
        let what = format!("open map number {id}");
        let fd = Attributes::new().u32(0, id).open(Command::MapById).map_err(Error::refused(what))?;
        Self::from_fd(fd, &format!("number {id}"))
    }

    fn from_fd(fd: OwnedFd, place: &str) -> Result<Self> {
        let answer: [u8; 40] = info(fd.as_fd()).map_err(Error::refused(format!("query map {place}")))?;
        let unfit = |found: String| Error::Unfit {
            name: place.to_owned(),
            found,
            expected: "a known kind".to_owned(),
        };
        let kind = Kind::from_number(field(&answer, 0))
            .ok_or_else(|| unfit(format!("kind {}", field(&answer, 0))))?;
        let definition = Definition {
            name: text(&answer, 24),
            kind,
            key: field(&answer, 8) as usize,
            value: field(&answer, 12) as usize,
            entries: field(&answer, 16),
            flags: field(&answer, 20),
        };
        Ok(Self { fd, definition })
    }

    /// Returns the same map with its own descriptor.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(self.refused("hold"))?;
        Ok(Self { fd, definition: self.definition.clone() })
    }

    /// The parameters that the map was created with.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The map's id.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn id(&self) -> Result<u32> {
        let answer: [u8; 40] = info(self.as_fd()).map_err(self.refused("ask about"))?;
        Ok(field(&answer, 4))
    }

    /// The size of a value in system calls: one per processor, each rounded up to a multiple of 8.
    pub(crate) fn value_length(&self) -> usize {
        if self.definition.kind.is_per_cpu() {
            self.definition.value.next_multiple_of(8) * processors()
        } else {
            self.definition.value
        }
    }

    fn refused(&self, verb: &str) -> impl FnOnce(Errno) -> Error {
        Error::refused(format!("{verb} map {}", self.definition.name))
    }

    fn fit(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let expected = (self.definition.key, value.map(|_| self.value_length()));
        let found = (key.len(), value.map(<[u8]>::len));
        if expected == found {
            return Ok(());
        }
        Err(Error::Unfit {
            name: self.definition.name.clone(),
            found: format!("key and value of {expected:?} bytes"),
            expected: format!("{found:?}"),
        })
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// When the kernel refuses, or the key has the wrong size.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.fit(key, None)?;
        let mut value = vec![0; self.value_length()];
        let found =
            Attributes::new().fd(0, self.as_fd()).input(8, key).output(16, &mut value).call(Command::Lookup);
        match found {
            Ok(_) => Ok(Some(value)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.refused("read from")(errno)),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When the kernel refuses (the map is full or frozen), or a size is wrong.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.fit(key, Some(value))?;
        let mut attributes = Attributes::new().fd(0, self.as_fd()).input(8, key).input(16, value);
        attributes.call(Command::Update).map(drop).map_err(self.refused("write to"))
    }

    /// Sets an element to a program or map, by descriptor.
    pub(crate) fn set_fd(&self, key: &[u8], target: BorrowedFd<'_>) -> Result<()> {
        use std::os::fd::AsRawFd as _;
        self.fit(key, Some(&[0; 4]))?;
        let value = target.as_raw_fd().to_ne_bytes();
        let mut attributes = Attributes::new().fd(0, self.as_fd()).input(8, key).input(16, &value);
        attributes.call(Command::Update).map(drop).map_err(self.refused("write to"))
    }

    /// Removes and returns the oldest value of a queue, if there is one.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the map is not a queue.
    pub fn pop(&self) -> Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.value_length()];
        match Attributes::new().fd(0, self.as_fd()).output(16, &mut value).call(Command::LookupAndDelete) {
            Ok(_) => Ok(Some(value)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.refused("take from")(errno)),
        }
    }

    /// Removes a key; returns whether it existed.
    ///
    /// # Errors
    /// When the kernel refuses, or the key has the wrong size.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.fit(key, None)?;
        match Attributes::new().fd(0, self.as_fd()).input(8, key).call(Command::Delete) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.refused("delete from")(errno)),
        }
    }

    /// Returns the key after another key, or the first one. If the given key is gone, a hash starts over.
    ///
    /// # Errors
    /// When the kernel refuses, or the key has the wrong size.
    pub fn key_after(&self, key: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let mut next = vec![0; self.definition.key];
        let mut attributes = Attributes::new().fd(0, self.as_fd());
        if let Some(key) = key {
            self.fit(key, None)?;
            attributes = attributes.input(8, key);
        }
        match attributes.output(16, &mut next).call(Command::NextKey) {
            Ok(_) => Ok(Some(next)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.refused("walk through")(errno)),
        }
    }

    /// Returns all keys, one call each. Keys that are added or removed in the meantime may be missed; none is returned
    /// twice.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>> {
        let mut seen = HashSet::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut current: Option<Vec<u8>> = None;
        // A walk starts over when its current key is deleted; the bound prevents an endless walk of a busy map.
        for _ in 0..u64::from(self.definition.entries) * 2 + 1 {
            let Some(next) = self.key_after(current.as_deref())? else { return Ok(keys) };
            if seen.insert(next.clone()) {
                keys.push(next.clone());
            }
            current = Some(next);
        }
        Ok(keys)
    }

    /// Makes the map read-only for system calls.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze(&self) -> Result<()> {
        let mut attributes = Attributes::new().fd(0, self.as_fd());
        attributes.call(Command::Freeze).map(drop).map_err(self.refused("freeze"))
    }

    /// Pins the map at a path of a BPF file system, so that it outlives this process.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pin(&self, path: &Path) -> Result<()> {
        pin(self.as_fd(), path, &format!("map {}", self.definition.name))
    }
}

pub(crate) fn pin(fd: BorrowedFd<'_>, path: &Path, what: &str) -> Result<()> {
    let file = path_text(path)?;
    let mut attributes = Attributes::new().text(0, &file).fd(8, fd);
    let done = attributes.call(Command::Pin).map(drop);
    done.map_err(Error::refused(format!("pin {what} at {}", path.display())))
}

pub(crate) fn path_text(path: &Path) -> Result<CString> {
    let what = || format!("use the path {}", path.display());
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::refused(what())(Errno::INVAL))
}

/// The number of values in a per-processor map: possible processors, not present ones.
pub(crate) fn processors() -> usize {
    static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        // The kernel writes a value for each: too small a number would corrupt memory, too large a one only adds zeros.
        last_processor(&text).map_or(MOST_PROCESSORS, |last| last + 1)
    })
}

/// The last number of a list such as `0-3,8-11`.
fn last_processor(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::last_processor;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(last_processor("0-127\n"), Some(127));
        assert_eq!(last_processor("0\n"), Some(0));
        assert_eq!(last_processor("0-3,8-11"), Some(11));
        assert_eq!(last_processor(""), None);
    }
}
