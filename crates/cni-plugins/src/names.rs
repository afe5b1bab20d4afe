//! Names of devices and chains that contain a hash, as in the reference plugins.

use sha2::{Digest as _, Sha512};
use std::fmt::Write as _;

/// Returns `prefix`, followed by as much of the hash of `text` as fits into `length`.
pub(crate) fn hashed(prefix: &str, text: &str, length: usize) -> String {
    let mut name = prefix.to_owned();
    for byte in Sha512::digest(text) {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.truncate(length);
    name
}
