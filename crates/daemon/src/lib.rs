//! What it takes to be a process of this program, the same for every component.
//!
//! - [`environment`]: variables and files, injected, so that tests bring their own.
//! - [`log`]: one log, with Calico's names for levels; its outlets can change while it runs.
//! - [`signals`] and [`shutdown`]: who asks for the end, and who is asked. [`dumps`]: what a process writes about itself on a signal.
//! - [`backoff`]: growing pauses between attempts.
//! - [`files`]: files that appear whole; [`sockets`]: sockets in the file system; [`folder`]: folders that change.
//! - [`errors`]: an error with its causes, each once; [`exit`]: the last words of a command.
//! - [`panics`]: a mistake of the program ends its process, visibly, and no other one.
//!
//! It refuses to know what a component does: no Calico data, no Kubernetes, no settings.

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
