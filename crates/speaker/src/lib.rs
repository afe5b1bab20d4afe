//! The native BGP speaker.
//!
//! - [`session`]: the machine of one session. Pure.
//! - [`bfd`]: whether a peer still forwards, in fractions of a second. Pure.
//! - [`engine`]: all sessions and the tables, without sockets. Pure.
//! - [`shell`]: sockets, the kernel's routes, one thread.
//! - [`figures`]: figures for Prometheus.
//! - [`control`]: the answers to BIRD's clients. Pure.
//! - [`run`]: the component: intent in, sessions and answers out.
//! - `simulation`: speakers in one process, over a network that is a list. With the feature `testing` only.
//!
//! Without the feature `component`, only what is pure is built: [`session`], [`bfd`], [`engine`].

#[cfg(feature = "component")]
mod bfd;
#[cfg(feature = "component")]
mod control;
mod engine;
#[cfg(feature = "component")]
mod figures;
#[cfg(feature = "component")]
mod run;
mod session;
#[cfg(feature = "component")]
mod shell;
#[cfg(any(test, feature = "testing"))]
mod simulation;

#[cfg(feature = "component")]
pub use run::{RunError, run};

/// What tests and benchmarks reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::engine::{Engine, PeerStatus};
    pub use crate::session::{Direction, StateName};
    #[cfg(feature = "component")]
    pub use crate::shell::{Handle, Speaker};
    #[cfg(any(test, feature = "testing"))]
    pub use crate::simulation::{Node, Simulation, address, adversary::play, block, intent, mesh, session};
}
