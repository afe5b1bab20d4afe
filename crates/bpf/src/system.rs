//! The system call bpf(2): attributes by offset, and the one place with unsafe code.
//!
//! `union bpf_attr` has a different meaning per command. It is represented as a zeroed block, filled by offset; memory
//! that the kernel reads or writes is borrowed by the block until the call. A kernel accepts a block longer than its
//! own as long as the unknown part is zero, so one length serves all. The callers have to ensure that each length they
//! write is that of the memory they lend: each writes both from the same slice.

use rustix::io::Errno;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Longer than any variant used here.
const LENGTH: usize = 128;

/// Commands, by the kernel's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Command {
    MapCreate = 0,
    Lookup = 1,
    Update = 2,
    Delete = 3,
    NextKey = 4,
    ProgramLoad = 5,
    Pin = 6,
    Get = 7,
    TestRun = 10,
    ProgramById = 13,
    MapById = 14,
    Info = 15,
    BtfLoad = 18,
    LookupAndDelete = 21,
    Freeze = 22,
    LookupBatch = 24,
    UpdateBatch = 26,
    DeleteBatch = 27,
    LinkCreate = 28,
    LinkUpdate = 29,
}

/// The attributes of one call, and the memory that they borrow.
#[repr(C, align(8))]
pub(crate) struct Attributes<'a> {
    bytes: [u8; LENGTH],
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; LENGTH], memory: PhantomData }
    }

    pub(crate) fn u32(mut self, offset: usize, value: u32) -> Self {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(mut self, offset: usize, value: u64) -> Self {
        self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// The length of lent memory.
    pub(crate) fn length(self, offset: usize, length: usize) -> Self {
        // No buffer here comes near 4 GiB; a longer one gets too large a length, never one that is too small.
        self.u32(offset, u32::try_from(length).unwrap_or(u32::MAX))
    }

    pub(crate) fn fd(self, offset: usize, fd: BorrowedFd<'a>) -> Self {
        self.u32(offset, fd.as_raw_fd().cast_unsigned())
    }

    /// A name: at most 15 bytes, only characters that the kernel accepts.
    pub(crate) fn name(mut self, offset: usize, name: &str) -> Self {
        let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        for (place, byte) in name.bytes().take(15).enumerate() {
            self.bytes[offset + place] = if usable(byte) { byte } else { b'_' };
        }
        self
    }

    /// Memory that the kernel reads.
    pub(crate) fn input(self, offset: usize, memory: &'a [u8]) -> Self {
        self.u64(offset, memory.as_ptr() as u64)
    }

    /// Memory that the kernel writes.
    pub(crate) fn output(self, offset: usize, memory: &'a mut [u8]) -> Self {
        self.u64(offset, memory.as_mut_ptr() as u64)
    }

    /// A C string that the kernel reads.
    pub(crate) fn text(self, offset: usize, text: &'a CStr) -> Self {
        self.input(offset, text.to_bytes_with_nul())
    }

    /// A number that the kernel wrote back.
    pub(crate) fn read(&self, offset: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[offset..offset + 4]);
        u32::from_ne_bytes(word)
    }

    /// Executes a command.
    pub(crate) fn call(&mut self, command: Command) -> Result<i64, Errno> {
        #[expect(unsafe_code, reason = "neither rustix nor libc has bpf(2) as a function")]
        // SAFETY: the block is valid for its length, and every pointer in it came from a slice that `self` borrows,
        // exclusively where the kernel writes.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command as i32, self.bytes.as_mut_ptr(), LENGTH) };
        if result < 0 { Err(last_error()) } else { Ok(result) }
    }

    /// Executes a command that returns a descriptor.
    pub(crate) fn open(&mut self, command: Command) -> Result<OwnedFd, Errno> {
        let fd = self.call(command)?;
        let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
        #[expect(unsafe_code, reason = "the kernel gives a number")]
        // SAFETY: the kernel has just created this descriptor for us, and no other code knows its number. It is closed
        // on exec.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Queries the kernel's information about an object, at most `N` bytes of it.
pub(crate) fn info<const N: usize>(fd: BorrowedFd<'_>) -> Result<[u8; N], Errno> {
    let mut info = [0; N];
    Attributes::new().fd(0, fd).length(4, N).output(8, &mut info).call(Command::Info)?;
    Ok(info)
}

/// Reads a number from such information.
pub(crate) fn field(info: &[u8], offset: usize) -> u32 {
    info.get(offset..offset + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Reads a string from such information.
pub(crate) fn text(info: &[u8], offset: usize) -> String {
    let bytes = info.get(offset..offset + 16).unwrap_or_default();
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
