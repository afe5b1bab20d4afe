//! The CNI protocol as values: a runtime's request, a plugin's answer, and its failures.
//!
//! - [`Call`]: one call, read from the environment and standard input and checked like in the protocol's own library.
//! - [`result`]: results of ADD, read in any version and written in the version of the configuration.
//! - [`CniError`]: a failure with a stable code.
//! - [`Outcome`]: the output of a plugin; [`process`]: the program around a plugin.
//!
//! Knows nothing of what a plugin does, and does no IO except on the streams of a plugin's process.

pub mod args;
pub mod call;
pub mod error;
mod outcome;
pub mod process;
pub mod result;
pub mod version;

pub use call::{Call, Command, Environment};
pub use error::CniError;
pub use outcome::Outcome;
pub use version::CniVersion;
