//! A key and its certificate for a pod, where the cluster has somebody who signs: an init container of Calico's operator
//! (`certificateManagement`), `key-cert-provisioner`.
//!
//! ```text
//! settings ─► keys ─► request (a CSR) ─► signing: CertificateSigningRequest ─► approved and signed by others ─► files
//! ```
//!
//! - [`cli`]: the command line; everything is set by variables, [`VARIABLES`].
//! - `keys`: keys of the kinds that Calico names. `request`: what is asked for; pure.
//! - `verdict`: what became of a request; pure. `signing`: asking, and waiting.
//! - `files`: what the pod's other containers find.
//!
//! The key never leaves the pod. It refuses a certificate that is for another key, and half a pair of files: the certificate
//! appears last.

pub mod cli;
mod files;
mod keys;
mod request;
mod settings;
mod signing;
mod verdict;

pub use crate::settings::{Settings, VARIABLES};

/// What tests reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::cli::run;
}
