//! The native BGP speaker.
//!
//! - [`session`]: the machine of one session. Pure.
//! - [`bfd`]: whether a peer still forwards, in fractions of a second. Pure.
//! - [`engine`]: all sessions and the tables, without sockets. Pure.
//! - [`shell`]: sockets, the kernel's routes, one thread.
//! - [`figures`]: figures for Prometheus.
//! - [`control`]: what BIRD's clients are told. Pure.
//! - [`run`]: the component: intent in, sessions and answers out.
//! - [`simulation`]: speakers in one process, over a network that is told. For tests and benchmarks.

//!
//! Without the feature `component`, only [`session`], [`bfd`], [`engine`] and [`simulation`] are there.

pub mod bfd;
#[cfg(feature = "component")]
pub mod control;
pub mod engine;
#[cfg(feature = "component")]
pub mod figures;
#[cfg(feature = "component")]
mod run;
pub mod session;
#[cfg(feature = "component")]
pub mod shell;
pub mod simulation;

#[cfg(feature = "component")]
pub use run::{RunError, run};
