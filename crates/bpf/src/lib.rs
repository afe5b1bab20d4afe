//! eBPF: the kernel's maps, programs and attachments as owned values.
//!
//! - [`Object`]: a compiled object of the folder `bpf/`: its constants are set, its maps made or taken over, its programs
//!   loaded.
//! - [`Map`], and the typed [`Table`], [`PerCpu`], [`Queue`] and [`ProgramArray`] over it: a wrapper fits its map in kind and sizes,
//!   or it is not made.
//! - [`Program`]: loading with the verifier's last lines on refusal, test runs with packets, what the verifier counted.
//! - [`Link`]: attachments that end with the value, unless they are pinned; [`clsact`]: those of kernels without tcx.
//! - [`layout`]: keys and values of the maps that Calico's programs and tools read and write, byte by byte.
//! - [`interface`]: the programs of interfaces, and the constants that make them fit; [`xdp`]: those at drivers; [`connect`]:
//!   those of sockets.
//! - [`probe`]: what this kernel can do, found by doing it.
//!
//! Objects are read and relocated by `aya-obj`: ELF, BTF and its repairs for older kernels are its 5,000 lines; it has no
//! unsafe interface and needs nothing to build but the crate `object`. The commands of bpf(2) are written here: `aya` itself has no
//! operations on many elements, and reads maps only by types that it defines. Unsafe code is only in `system`, in one
//! function.
//!
//! It refuses to decide what should be in the kernel, and to trust a kernel's version.

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
