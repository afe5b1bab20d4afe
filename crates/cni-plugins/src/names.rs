//! Names of devices and chains that hold a hash, as the reference plugins make them.

use sha2::{Digest as _, Sha512};
use std::fmt::Write as _;

/// `prefix` and as much of the hash of `text` as `length` leaves room for.
pub(crate) fn hashed(prefix: &str, text: &str, length: usize) -> String {
    let mut name = prefix.to_owned();
    for byte in Sha512::digest(text) {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.truncate(length);
    name
}
