//! The CNI protocol as values: what a runtime asks, what a plugin answers, and how it fails.
//!
//! - [`Call`]: one call, read from variables and standard input and checked as the protocol's own library does.
//! - [`result`]: results of ADD, read in any version and written in the one that the configuration asks for.
//! - [`CniError`]: a failure with a code that stays.
//! - [`Outcome`]: what a plugin leaves behind; [`process`]: the program around a plugin.
//!
//! It refuses any knowledge of what a plugin does, and IO but for the streams of a plugin's process.

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
