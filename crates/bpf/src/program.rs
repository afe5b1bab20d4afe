//! Programs: loading, with what the verifier says; test runs; facts.

use crate::error::{Error, Result, last_lines};
use crate::map::pin;
use crate::system::{Attributes, Command, field, info, text};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Room for the verifier's summary of a program that it takes.
const SUMMARY: usize = 64 * 1024;
/// Room for its whole log of one that it refuses.
const WHOLE_LOG: usize = 16 * 1024 * 1024;
/// The log has numbers at the end.
const STATISTICS: u32 = 4;
/// The log has what was found on the way.
const FINDINGS: u32 = 1;
/// Room that a program may take in front of a packet or at its end.
const GROWTH: usize = 512;

/// The types of programs that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// At traffic control: of a device, in or out.
    Classifier,
    /// At a device's driver.
    Xdp,
    /// At a control group's system calls that name an address, with the kernel's number of the call.
    Address(u32),
}

impl ProgramKind {
    fn number(self) -> u32 {
        match self {
            Self::Classifier => 3,
            Self::Xdp => 6,
            Self::Address(_) => 18,
        }
    }

    /// The attach type that it is loaded with. Classifiers have none: then one array of programs serves both directions.
    fn expected(self) -> u32 {
        match self {
            Self::Classifier => 0,
            Self::Xdp => 37,
            Self::Address(call) => call,
        }
    }
}

/// Type information for a program: where its functions and lines are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Types {
    pub(crate) functions: Vec<u8>,
    pub(crate) function_size: usize,
    pub(crate) lines: Vec<u8>,
    pub(crate) line_size: usize,
}

/// What a program is loaded from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name: the kernel keeps 15 bytes of it.
    pub name: &'a str,
    /// Its type.
    pub kind: ProgramKind,
    /// Instructions, 8 bytes each.
    pub instructions: &'a [u8],
    /// The licence that it declares.
    pub licence: &'a CStr,
}

/// A loaded program; it ends with its last owner: this value, an attachment, an array, or a pin.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: String,
    processed: u32,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Program {
    /// Loads a program.
    ///
    /// # Errors
    /// When the kernel refuses; with the verifier's last lines, if it was asked.
    pub fn load(source: &Source<'_>) -> Result<Self> {
        Self::load_with_types(source, None)
    }

    pub(crate) fn load_with_types(
        source: &Source<'_>,
        types: Option<(BorrowedFd<'_>, &Types)>,
    ) -> Result<Self> {
        let mut log = vec![0; SUMMARY];
        match attempt(source, types, STATISTICS, &mut log) {
            Ok(fd) => Ok(Self { fd, name: source.name.to_owned(), processed: processed(&last_lines(&log)) }),
            Err(errno) => {
                // Asked again, this time for the reasons. The log may not fit: old kernels then keep its beginning only.
                let mut log = vec![0; WHOLE_LOG];
                let again = attempt(source, types, FINDINGS | STATISTICS, &mut log);
                let errno = again.err().filter(|errno| *errno != Errno::NOSPC).unwrap_or(errno);
                Err(Error::Verifier { name: source.name.to_owned(), source: errno, log: last_lines(&log) })
            }
        }
    }

    /// The program of a number.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_id(id: u32) -> Result<Self> {
        let what = format!("open program number {id}");
        let fd = Attributes::new().u32(0, id).open(Command::ProgramById).map_err(Error::refused(what))?;
        let answer: [u8; 232] =
            info(fd.as_fd()).map_err(Error::refused(format!("ask about program number {id}")))?;
        Ok(Self { fd, name: text(&answer, 64), processed: field(&answer, 216) })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many instructions the verifier looked at; it takes a million.
    #[must_use]
    pub fn processed(&self) -> u32 {
        self.processed
    }

    /// Its number.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn id(&self) -> Result<u32> {
        let what = format!("ask about program {}", self.name);
        let answer: [u8; 232] = info(self.as_fd()).map_err(Error::refused(what))?;
        Ok(field(&answer, 4))
    }

    /// Pins it at a path of a BPF file system.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pin(&self, path: &Path) -> Result<()> {
        pin(self.as_fd(), path, &format!("program {}", self.name))
    }

    /// Runs it on a packet, attached to nothing.
    ///
    /// # Errors
    /// When the kernel refuses: the packet is shorter than an Ethernet header, or the context has what cannot be set.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<Outcome> {
        let mut packet = vec![0; run.packet.len() + GROWTH];
        let mut context = run.context.to_vec();
        let mut attributes = Attributes::new()
            .fd(0, self.as_fd())
            .length(8, run.packet.len())
            .length(12, packet.len())
            .input(16, run.packet)
            .output(24, &mut packet)
            .u32(32, run.repeat);
        if !run.context.is_empty() {
            attributes = attributes
                .length(40, run.context.len())
                .length(44, run.context.len())
                .input(48, run.context)
                .output(56, &mut context);
        }
        attributes
            .call(Command::TestRun)
            .map_err(Error::refused(format!("run program {} on a packet", self.name)))?;
        let (verdict, length, nanoseconds) =
            (attributes.read(4).cast_signed(), attributes.read(12) as usize, attributes.read(36));
        packet.truncate(length);
        Ok(Outcome { verdict, packet, context, nanoseconds })
    }
}

/// What a test run gets.
#[derive(Clone, Copy, Debug)]
pub struct TestRun<'a> {
    /// The packet, with its Ethernet header.
    pub packet: &'a [u8],
    /// The bytes of `struct __sk_buff` or `struct xdp_md`, or nothing.
    pub context: &'a [u8],
    /// How often it runs.
    pub repeat: u32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the program returned.
    pub verdict: i32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// The context afterwards.
    pub context: Vec<u8>,
    /// How long a run took, on average.
    pub nanoseconds: u32,
}

fn attempt(
    source: &Source<'_>,
    types: Option<(BorrowedFd<'_>, &Types)>,
    level: u32,
    log: &mut [u8],
) -> std::result::Result<OwnedFd, Errno> {
    // The verifier may ask to be called again while a signal waits.
    for _ in 0..5 {
        let mut attributes = Attributes::new()
            .u32(0, source.kind.number())
            .length(4, source.instructions.len() / 8)
            .input(8, source.instructions)
            .text(16, source.licence)
            .u32(24, level)
            .length(28, log.len())
            .output(32, log)
            .name(48, source.name)
            .u32(68, source.kind.expected());
        if let Some((fd, types)) = types {
            attributes = attributes
                .fd(72, fd)
                .length(76, types.function_size)
                .input(80, &types.functions)
                .length(88, types.functions.len() / types.function_size.max(1))
                .length(92, types.line_size)
                .input(96, &types.lines)
                .length(104, types.lines.len() / types.line_size.max(1));
        }
        match attributes.open(Command::ProgramLoad) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

/// The number in the verifier's summary: `processed 123 insns (limit 1000000) ...`.
fn processed(log: &str) -> u32 {
    let number = log.split("processed ").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::processed;

    #[test]
    fn the_summary_is_read() {
        let log = "verification time 90 usec\nstack depth 0\nprocessed 812 insns (limit 1000000) max_states_per_insn 0";
        assert_eq!(processed(log), 812);
        assert_eq!(processed(""), 0);
    }
}
