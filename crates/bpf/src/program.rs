//! Programs: loading with the verifier's log, test runs, and facts.

use crate::error::{Error, Result, last_lines};
use crate::map::pin;
use crate::system::{Attributes, Command, field, info, text};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The buffer for the verifier's summary of an accepted program.
const SUMMARY: usize = 64 * 1024;
/// The buffer for the verifier's whole log of a refused program.
const WHOLE_LOG: usize = 16 * 1024 * 1024;
/// The log ends with statistics.
const STATISTICS: u32 = 4;
/// The log contains the verifier's findings.
const FINDINGS: u32 = 1;
/// How much a program may grow a packet at its start or end.
const GROWTH: usize = 512;

/// The types of programs used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// At traffic control of a device, ingress or egress.
    Classifier,
    /// At a device's driver.
    Xdp,
    /// At system calls with an address of a control group, with the kernel's number of the call.
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

    /// The attach type for loading. Classifiers have none, so that one array of programs serves both directions.
    fn expected(self) -> u32 {
        match self {
            Self::Classifier => 0,
            Self::Xdp => 37,
            Self::Address(call) => call,
        }
    }
}

/// BTF of a program: the locations of its functions and lines.
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
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: &'a str,
    /// Its type.
    pub kind: ProgramKind,
    /// Instructions, 8 bytes each.
    pub instructions: &'a [u8],
    /// The licence that it declares.
    pub licence: &'a CStr,
}

/// A loaded program; it exists until its last owner is gone: this value, an attachment, an array, or a pin.
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
    /// When the kernel refuses, with the end of the verifier's log if there is one.
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
                // Loaded again for the reasons. The log may not fit; old kernels then keep only its beginning.
                let mut log = vec![0; WHOLE_LOG];
                let again = attempt(source, types, FINDINGS | STATISTICS, &mut log);
                let errno = again.err().filter(|errno| *errno != Errno::NOSPC).unwrap_or(errno);
                Err(Error::Verifier { name: source.name.to_owned(), source: errno, log: last_lines(&log) })
            }
        }
    }

    /// Opens the program with an id.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn by_id(id: u32) -> Result<Self> {
        let what = format!("open program number {id}");
        let fd = Attributes::new().u32(0, id).open(Command::ProgramById).map_err(Error::refused(what))?;
        let answer: [u8; 232] =
            info(fd.as_fd()).map_err(Error::refused(format!("query program number {id}")))?;
        Ok(Self { fd, name: text(&answer, 64), processed: field(&answer, 216) })
    }

    /// The program's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many instructions the verifier processed; its limit is a million.
    #[must_use]
    pub fn processed(&self) -> u32 {
        self.processed
    }

    /// The program's id.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn id(&self) -> Result<u32> {
        let what = format!("query program {}", self.name);
        let answer: [u8; 232] = info(self.as_fd()).map_err(Error::refused(what))?;
        Ok(field(&answer, 4))
    }

    /// Pins the program at a path of a BPF file system.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pin(&self, path: &Path) -> Result<()> {
        pin(self.as_fd(), path, &format!("program {}", self.name))
    }

    /// Runs the program on a packet without attaching it.
    ///
    /// # Errors
    /// When the kernel refuses: the packet is shorter than an Ethernet header, or the context sets read-only fields.
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

/// The input of a test run.
#[derive(Clone, Copy, Debug)]
pub struct TestRun<'a> {
    /// The packet, with its Ethernet header.
    pub packet: &'a [u8],
    /// The bytes of `struct __sk_buff` or `struct xdp_md`, or nothing.
    pub context: &'a [u8],
    /// How often the program runs.
    pub repeat: u32,
}

/// The outcome of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The program's return value.
    pub verdict: i32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// The context afterwards.
    pub context: Vec<u8>,
    /// The average duration of a run.
    pub nanoseconds: u32,
}

fn attempt(
    source: &Source<'_>,
    types: Option<(BorrowedFd<'_>, &Types)>,
    level: u32,
    log: &mut [u8],
) -> std::result::Result<OwnedFd, Errno> {
    // The verifier may ask for a retry while a signal is pending.
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
