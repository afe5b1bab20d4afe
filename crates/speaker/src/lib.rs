//! The native BGP speaker.
//!
//! - [`session`]: the state machine of one session. Pure.
//! - [`bfd`]: detects within fractions of a second whether a peer still forwards. Pure.
//! - [`engine`]: all sessions and the tables, without sockets. Pure.
//! - [`shell`]: sockets, the kernel's routes, one thread.
//! - [`figures`]: figures for Prometheus.
//! - [`control`]: the answers to BIRD's clients. Pure.
//! - [`run`]: the component: intent in, sessions and answers out.
//! - `simulation`: speakers in one process, over a network that is a list. With the feature `testing` only.
//!
//! Without the feature `component`, only the pure parts are built: [`session`], [`bfd`], [`engine`].

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

/// Items for tests and benchmarks only.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::engine::{Engine, PeerStatus};
    pub use crate::session::{Direction, StateName};
    #[cfg(feature = "component")]
    pub use crate::shell::{Handle, Speaker};
    #[cfg(any(test, feature = "testing"))]
    pub use crate::simulation::{Node, Simulation, address, adversary::play, block, intent, mesh, session};
}
