//! Attachments that the kernel keeps as long as a descriptor or pin refers to them.

use crate::error::{Error, Result};
use crate::map::{path_text, pin};
use crate::program::Program;
use crate::system::{Attributes, Command, field, info};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const XDP: u32 = 37;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// The system calls of a control group's processes that a program can hook, by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CgroupHook {
    /// `connect` with IPv4.
    Connect4 = 10,
    /// `connect` with IPv6.
    Connect6 = 11,
    /// `sendmsg` of UDP with IPv4.
    Send4 = 14,
    /// `sendmsg` of UDP with IPv6.
    Send6 = 15,
    /// `recvmsg` of UDP with IPv4.
    Receive4 = 19,
    /// `recvmsg` of UDP with IPv6.
    Receive6 = 20,
}

/// Where XDP programs run, by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum XdpMode {
    /// Behind the driver, before the network stack: works with any device.
    Generic = 1 << 1,
    /// In the driver, before the kernel allocates anything for a packet.
    Native = 1 << 2,
}

/// An attachment. It ends with this value unless it is pinned.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    what: String,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Link {
    fn create(program: &Program, target: u32, kind: u32, what: &str) -> Result<Self> {
        Self::create_with(program, target, kind, 0, what)
    }

    fn create_with(program: &Program, target: u32, kind: u32, flags: u32, what: &str) -> Result<Self> {
        let mut attributes =
            Attributes::new().fd(0, program.as_fd()).u32(4, target).u32(8, kind).u32(12, flags);
        let what = format!("{what} of program {}", program.name());
        let fd =
            attributes.open(Command::LinkCreate).map_err(Error::refused(format!("create the {what}")))?;
        Ok(Self { fd, what })
    }

    /// Attaches a program to packets that arrive on a device, beside other programs there.
    ///
    /// # Errors
    /// When the kernel refuses; `EINVAL` if it has no tcx.
    pub fn ingress(program: &Program, device: u32) -> Result<Self> {
        Self::create(program, device, TCX_INGRESS, &format!("attachment to ingress of device {device}"))
    }

    /// Attaches a program to packets that leave through a device, beside other programs there.
    ///
    /// # Errors
    /// When the kernel refuses; `EINVAL` if it has no tcx.
    pub fn egress(program: &Program, device: u32) -> Result<Self> {
        Self::create(program, device, TCX_EGRESS, &format!("attachment to egress of device {device}"))
    }

    /// Attaches an XDP program to a device.
    ///
    /// # Errors
    /// When the kernel refuses: another program is attached, or the driver does not support XDP.
    pub fn xdp(program: &Program, device: u32, mode: XdpMode) -> Result<Self> {
        let what = format!("attachment to the driver of device {device} ({mode:?})");
        Self::create_with(program, device, XDP, mode as u32, &what)
    }

    /// Attaches a program to a system call of the processes in a control group and its subgroups.
    ///
    /// # Errors
    /// When the kernel refuses: the folder is not a cgroup2, or the program was loaded for another call.
    pub fn cgroup(program: &Program, group: BorrowedFd<'_>, hook: CgroupHook) -> Result<Self> {
        use std::os::fd::AsRawFd as _;
        let target = group.as_raw_fd().cast_unsigned();
        Self::create(program, target, hook as u32, &format!("attachment {hook:?} to a control group"))
    }

    /// Opens the attachment pinned at a path.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let file = path_text(path)?;
        let what = format!("attachment at {}", path.display());
        let fd = Attributes::new()
            .text(0, &file)
            .open(Command::Get)
            .map_err(Error::refused(format!("open the {what}")))?;
        Ok(Self { fd, what })
    }

    /// Atomically replaces the attached program.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn replace(&self, program: &Program) -> Result<()> {
        let mut attributes = Attributes::new().fd(0, self.as_fd()).fd(4, program.as_fd());
        let what = format!("put program {} into the {}", program.name(), self.what);
        attributes.call(Command::LinkUpdate).map(drop).map_err(Error::refused(what))
    }

    /// Pins the attachment at a path of a BPF file system, so that it outlives this process.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pin(&self, path: &Path) -> Result<()> {
        pin(self.as_fd(), path, &self.what)
    }

    /// The index of the device; 0 if the device is gone. Not meaningful for links to control groups, where it is part
    /// of another number.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn device(&self) -> Result<u32> {
        let answer: [u8; 24] =
            info(self.as_fd()).map_err(Error::refused(format!("query the {}", self.what)))?;
        Ok(field(&answer, 16))
    }

    /// The id of the attached program.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn program_id(&self) -> Result<u32> {
        let answer: [u8; 16] =
            info(self.as_fd()).map_err(Error::refused(format!("query the {}", self.what)))?;
        Ok(field(&answer, 8))
    }
}
