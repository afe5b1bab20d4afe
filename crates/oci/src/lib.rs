//! Container images as one archive: an OCI layout with a manifest per image, plus Docker's manifest for tools that know
//! only that. containerd, kind, k3s, podman and registries accept it.
//!
//! The same input gives the same bytes: entries are sorted, without times, with numeric owners. Reads no files and runs
//! nothing: contents are passed in as bytes.

mod archive;
mod layer;

pub use archive::{Architecture, Effort, Image, write};
pub use layer::{Entries, Entry, layer};

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The SHA-256 sum, in hexadecimal digits.
#[must_use]
pub fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
