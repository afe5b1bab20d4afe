//! BIRD as the BGP backend.
//!
//! ```text
//! feed ─► bgp::BgpState ─► Intent ─► render: six files ─► bird -p ─► written whole ─► BIRD reads them again
//! ```
//!
//! [`render`] is pure: the files of an intent, in the text that Calico's templates give for BIRD 1.6, or in the grammar of
//! BIRD 2. The rest follows the store, keeps the files and runs the processes.
//!
//! What it refuses: decisions about BGP. Those are in `bgp`.

pub mod cli;
mod destinations;
mod keeper;
mod process;
mod programs;
mod render;
mod run;
mod sessions;

pub use run::{RunError, run};

/// What tests and benchmarks reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::render::{Dialect, FileName, Files, Left, render};
}
