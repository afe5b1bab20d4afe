//! The BGP backend that runs BIRD.
//!
//! ```text
//! feed ─► bgp::BgpState ─► Intent ─► render: six files ─► bird -p ─► written whole ─► BIRD reads them again
//! ```
//!
//! [`render`] is pure: the files for an intent, in the text of Calico's templates for BIRD 1.6, or in the grammar of
//! BIRD 2. The rest follows the store, keeps the files up to date and runs the processes.
//!
//! Makes no decisions about BGP, which are in `bgp`.

pub mod cli;
mod destinations;
mod keeper;
mod process;
mod programs;
mod render;
mod run;
mod sessions;

pub use run::{RunError, run};

/// Items for tests and benchmarks only.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::render::{Dialect, FileName, Files, Left, render};
}
