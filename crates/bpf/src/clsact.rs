//! Attachments at traffic control for kernels without tcx: a filter of kind `bpf` in the discipline `clsact`.
//!
//! Unlike a [`Link`](crate::Link) these attachments outlive the process. Does not remove the discipline: others may
//! have filters there.

use crate::error::Result;
use crate::program::Program;
use netlink::wire::{Attribute, Writer, attributes, header_u32, split_header};
use netlink::{Connection, Errno, Request};
use std::os::fd::{AsFd as _, AsRawFd as _};

const ROUTE_PROTOCOL: isize = 0;
const NEW_QUEUE: u16 = 36;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_DESCRIPTOR: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_PROGRAM_ID: u16 = 11;
/// The program's return value is the verdict.
const DIRECT: u32 = 1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = 0xffff_fff1;
/// All protocols, in network order.
const ALL_PROTOCOLS: u16 = 3_u16.to_be();
/// The direction of a device's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets that come in.
    Ingress,
    /// Packets that leave.
    Egress,
}

impl Direction {
    fn place(self) -> u32 {
        match self {
            Self::Ingress => 0xffff_fff2,
            Self::Egress => 0xffff_fff3,
        }
    }
}

/// A filter that runs a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its position among the device's filters; the lowest runs first.
    pub priority: u16,
    /// Its handle within the priority.
    pub handle: u32,
    /// The name given when it was attached.
    pub name: String,
    /// The id of its program.
    pub program: u32,
}

/// The attachments of one network namespace.
#[derive(Debug)]
pub struct Filters {
    connection: Connection,
}

impl Filters {
    /// The handle of our filter within its priority.
    pub const HANDLE: u32 = 1;

    /// Opens the attachments of this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { connection: Connection::open(ROUTE_PROTOCOL)? })
    }

    /// Attaches a program at a priority, atomically replacing the one we had there.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the device has `ingress` instead of `clsact`.
    pub fn attach(
        &mut self,
        device: u32,
        direction: Direction,
        priority: u16,
        program: &Program,
    ) -> Result<()> {
        self.attach_as(device, direction, priority, program.name(), program)
    }

    /// Attaches a program like [`Filters::attach`], under a name of its own.
    ///
    /// # Errors
    /// As [`Filters::attach`].
    pub fn attach_as(
        &mut self,
        device: u32,
        direction: Direction,
        priority: u16,
        name: &str,
        program: &Program,
    ) -> Result<()> {
        let mut writer = Writer::new(&header(device, CLSACT_HANDLE, CLSACT_PARENT, 0));
        writer.text(KIND, "clsact");
        let discipline =
            Request { message_type: NEW_QUEUE, flags: CREATE | EXCLUSIVE, payload: writer.finish() };
        let mut writer = Writer::new(&header(device, Self::HANDLE, direction.place(), filter_info(priority)));
        writer.text(KIND, "bpf").nested_plain(OPTIONS, |options| {
            options
                .u32(BPF_DESCRIPTOR, program.as_fd().as_raw_fd().cast_unsigned())
                .text(BPF_NAME, name)
                .u32(BPF_FLAGS, DIRECT);
        });
        let filter = Request { message_type: NEW_FILTER, flags: CREATE, payload: writer.finish() };
        let mut answers = self.connection.exchange(&[discipline, filter])?.into_iter();
        if let Some(answer) = answers.next()
            && !matches!(answer.refusal, Some((Errno::EXIST, _)))
        {
            answer.into_result(|| format!("create the clsact discipline on device {device}"))?;
        }
        for answer in answers {
            answer.into_result(|| format!("attach program {} to device {device}", program.name()))?;
        }
        Ok(())
    }

    /// Removes our filter of a priority; returns whether it existed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach(&mut self, device: u32, direction: Direction, priority: u16) -> Result<bool> {
        let mut writer = Writer::new(&header(device, Self::HANDLE, direction.place(), filter_info(priority)));
        writer.text(KIND, "bpf");
        let request = Request { message_type: DELETE_FILTER, flags: 0, payload: writer.finish() };
        for answer in self.connection.exchange(&[request])? {
            if matches!(answer.refusal, Some((Errno::NOENT | Errno::INVAL, _))) {
                return Ok(false);
            }
            answer
                .into_result(|| format!("detach the program of priority {priority} from device {device}"))?;
        }
        Ok(true)
    }

    /// Lists the programs on a device, ours and others'.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list(&mut self, device: u32, direction: Direction) -> Result<Vec<Filter>> {
        let payload = header(device, 0, direction.place(), 0).to_vec();
        let request = Request { message_type: GET_FILTER, flags: 0, payload };
        let what = format!("list the programs of device {device}");
        let list = self.connection.dump(&what, &request, |kind, payload| {
            (kind == NEW_FILTER).then(|| read_filter(payload)).flatten()
        });
        match list {
            // The device does not have the discipline.
            Err(error) if error.errno() == Some(Errno::INVAL) => Ok(Vec::new()),
            list => Ok(list?),
        }
    }
}

/// `struct tcmsg`.
fn header(device: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut header = [0; 20];
    for (place, value) in [(4, device), (8, handle), (12, parent), (16, info)] {
        header[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    }
    header
}

fn filter_info(priority: u16) -> u32 {
    u32::from(priority) << 16 | u32::from(ALL_PROTOCOLS)
}

/// Parses a filter of kind `bpf` that has a program; `None` for the kernel's entry without one.
fn read_filter(payload: &[u8]) -> Option<Filter> {
    let (header, rest) = split_header::<20>(payload)?;
    let mut options = None;
    let mut is_bpf = false;
    for attribute in attributes(rest) {
        match attribute.number {
            KIND => is_bpf = attribute.str() == Some("bpf"),
            OPTIONS => options = Some(attribute),
            _ => {}
        }
    }
    let options: Attribute<'_> = options.filter(|_| is_bpf)?;
    let find = |number: u16| options.attributes().find(|attribute| attribute.number == number);
    Some(Filter {
        priority: u16::try_from(header_u32(header, 16) >> 16).unwrap_or_default(),
        handle: header_u32(header, 8),
        name: find(BPF_NAME).and_then(|name| name.text()).unwrap_or_default(),
        program: find(BPF_PROGRAM_ID).and_then(|id| id.u32())?,
    })
}
