//! A key and its certificate for a pod, in clusters with a signer: `key-cert-provisioner`, an init container of
//! Calico's operator (`certificateManagement`).
//!
//! ```text
//! settings ─► keys ─► request (a CSR) ─► signing: CertificateSigningRequest ─► approved and signed by others ─► files
//! ```
//!
//! - [`cli`]: the command line; environment variables configure everything, [`VARIABLES`].
//! - `keys`: the types of keys that Calico names. `request`: the contents of a request; pure.
//! - `verdict`: the outcome of a request; pure. `signing`: submitting a request, and waiting.
//! - `files`: the files for the pod's other containers.
//!
//! The key never leaves the pod. A certificate for another key is refused, and the files are never an incomplete pair:
//! the certificate appears last.

pub mod cli;
mod files;
mod keys;
mod request;
mod settings;
mod signing;
mod verdict;

pub use crate::settings::{Settings, VARIABLES};

/// Internals for tests; not for other use.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::cli::run;
}
