//! eBPF: the kernel's maps, programs and attachments as owned values.
//!
//! - [`Object`]: a compiled object of the folder `bpf/`: sets its constants, creates or reuses its maps, and loads its
//!   programs.
//! - [`Map`], and the typed wrappers [`Table`], [`PerCpu`], [`Queue`] and [`ProgramArray`]: a wrapper is only created
//!   if kind and sizes match the map.
//! - [`Program`]: loading, with the end of the verifier's log on refusal; test runs on packets; the verifier's
//!   statistics.
//! - [`Link`]: attachments that end with the value, unless they are pinned; [`clsact`]: attachments for kernels without
//!   tcx.
//! - [`layout`]: keys and values of the maps that Calico's programs and tools read and write, byte by byte.
//! - [`interface`]: the programs for interfaces, and their constants; [`xdp`]: the programs at drivers; [`connect`]:
//!   the programs for sockets.
//! - [`probe`]: the features of this kernel, found by trying them.
//!
//! Objects are parsed and relocated by `aya-obj`, which handles ELF, BTF and its fixups for older kernels in 5,000
//! lines; it has no unsafe interface and its only build dependency is the crate `object`. The commands of bpf(2) are
//! implemented here: `aya` itself lacks batch operations, and reads maps only through types that it defines. Unsafe
//! code is confined to one function in `system`.
//!
//! Does not decide what should be in the kernel, and does not trust a kernel's version.

pub mod clsact;
pub mod connect;
mod error;
pub mod interface;
pub mod layout;
mod link;
mod map;
mod object;
mod packed;
pub mod probe;
mod program;
mod system;
mod table;
pub mod xdp;

pub use error::{Error, Result};
pub use link::{CgroupHook, Link, XdpMode};
pub use map::{Definition, Kind, Map};
pub use object::{Loaded, Object};
pub use program::{Outcome, Program, ProgramKind, Source, TestRun};
pub use table::{Layout, PerCpu, ProgramArray, Queue, Table};
