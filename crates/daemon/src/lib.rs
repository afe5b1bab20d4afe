//! What every component needs to run as a process of this program.
//!
//! - [`environment`]: variables and files, injected so that tests can supply their own.
//! - [`log`]: one log with Calico's level names; its outlets can change while it runs.
//! - [`signals`] and [`shutdown`]: how the end is requested, and how tasks learn of it. [`dumps`]: what a process
//!   writes about itself on a signal.
//! - [`backoff`]: growing pauses between attempts.
//! - [`files`]: files that appear whole; [`sockets`]: sockets in the file system; [`folder`]: watching folders for
//!   changes.
//! - [`errors`]: an error with its causes, each once; [`exit`]: how a command ends.
//! - [`panics`]: a bug visibly ends its own process, and no other.
//!
//! Knows nothing of what a component does: no Calico data, no Kubernetes, no settings.

pub mod backoff;
pub mod dumps;
pub mod environment;
pub mod errors;
pub mod exit;
pub mod files;
pub mod folder;
pub mod log;
pub mod panics;
pub mod shutdown;
pub mod signals;
pub mod sockets;

pub use backoff::Backoff;
pub use environment::{Environment, SystemEnvironment, Variables};
pub use errors::{Causes, causes};
pub use folder::FolderWatch;
pub use shutdown::{Shutdown, ShutdownHandle};
