//! The features of this kernel, found by trying them: version numbers mislead (vendors backport features and disable
//! others).

use crate::error::Result;
use crate::link::Link;
use crate::map::{Definition, Kind, Map};
use crate::object::load_types;
use crate::program::{Program, ProgramKind, Source};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Instructions for `r0 = NUMBER; exit`.
#[must_use]
pub fn returning(number: i32) -> Vec<u8> {
    let mut instructions = vec![0xb7, 0, 0, 0];
    instructions.extend(number.to_le_bytes());
    instructions.extend([0x95, 0, 0, 0, 0, 0, 0, 0]);
    instructions
}

/// The features that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Programs at traffic control.
    pub classifiers: bool,
    /// Programs at drivers.
    pub xdp: bool,
    /// Programs at `connect`.
    pub addresses: bool,
    /// LRU hashes.
    pub lru: bool,
    /// Prefix maps.
    pub prefixes: bool,
    /// Ring buffers.
    pub ring: bool,
    /// Reading and deleting elements of a hash in batches.
    pub batches: bool,
    /// Type information (BTF).
    pub types: bool,
    /// Attachments to a device that coexist with other programs and end with their owner.
    pub tcx: bool,
    /// Programs at `connect` can choose the error.
    pub answers: bool,
}

/// Raises the limit of locked memory: kernels before 5.11 count maps against it, and otherwise refuse all but small
/// ones.
///
/// # Errors
/// When this process may not raise the limit.
pub fn raise_memory_limit() -> std::result::Result<(), Errno> {
    let unlimited = Rlimit { current: None, maximum: None };
    let now = getrlimit(Resource::Memlock);
    if now.current.is_none() { Ok(()) } else { setrlimit(Resource::Memlock, unlimited) }
}

/// Tries everything. `device` should be unused: a program that lets every packet pass is attached to it briefly.
#[must_use]
pub fn features(device: u32) -> Features {
    let loads = |kind, verdict| program(kind, verdict).is_ok();
    let makes = |kind, key, value, entries| map(kind, key, value, entries).is_ok();
    Features {
        classifiers: loads(ProgramKind::Classifier, -1),
        xdp: loads(ProgramKind::Xdp, 2),
        addresses: loads(ProgramKind::Address(10), 1),
        lru: makes(Kind::LruHash, 4, 4, 16),
        prefixes: makes(Kind::Lpm, 8, 4, 16),
        ring: makes(Kind::Ring, 0, 0, 4096),
        batches: has_batches(),
        types: load_types(&number_type()).is_ok(),
        tcx: program(ProgramKind::Classifier, -1).and_then(|program| Link::ingress(&program, device)).is_ok(),
        answers: has_answers(),
    }
}

/// Instructions for `r1 = -111; call bpf_set_retval; r0 = 0; exit`.
fn has_answers() -> bool {
    let mut instructions = vec![0xb7, 1, 0, 0];
    instructions.extend((-111_i32).to_le_bytes());
    instructions.extend([0x85, 0, 0, 0, 187, 0, 0, 0]);
    instructions.extend(returning(0));
    let kind = ProgramKind::Address(10);
    Program::load(&Source { name: "probe", kind, instructions: &instructions, licence: c"GPL" }).is_ok()
}

/// BTF with nothing in it but the type `int`: a header of 24 bytes, a type of 16, names.
fn number_type() -> Vec<u8> {
    let words: [u32; 10] = [0x0001_eb9f, 24, 0, 16, 16, 5, 1, 0x0100_0000, 4, 0x0100_0020];
    words.into_iter().flat_map(u32::to_ne_bytes).chain(*b"\0int\0").collect()
}

fn program(kind: ProgramKind, verdict: i32) -> Result<Program> {
    Program::load(&Source { name: "probe", kind, instructions: &returning(verdict), licence: c"GPL" })
}

fn map(kind: Kind, key: usize, value: usize, entries: u32) -> Result<Map> {
    let flags = if kind == Kind::Lpm { Definition::NO_PREALLOCATION } else { 0 };
    Map::create(Definition { name: "probe".to_owned(), kind, key, value, entries, flags })
}

fn has_batches() -> bool {
    let Ok(map) = map(Kind::Hash, 4, 4, 16) else { return false };
    map.set(&[1; 4], &[1; 4]).is_ok() && map.visit_batches(|_, _| {}).is_ok()
}
