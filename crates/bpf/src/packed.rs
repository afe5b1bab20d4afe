//! The compiled objects embedded in this program, compressed by the build script. They are decompressed when loaded and
//! not kept: that happens once, when Felix starts with eBPF.

use crate::error::Result;
use crate::object::{Object, unreadable};
use flate2::bufread::DeflateDecoder;
use std::io::Read as _;

/// Larger than any object: bounds the decompression of a broken one.
const LIMIT: u64 = 16 << 20;

/// A compressed object with its file name.
macro_rules! packed {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name)).as_slice())
    };
}
pub(crate) use packed;

/// Decompresses and parses an object.
///
/// # Errors
/// When this program was built from a broken object.
pub(crate) fn object((name, packed): (&str, &[u8])) -> Result<Object> {
    let mut bytes = Vec::new();
    DeflateDecoder::new(packed)
        .take(LIMIT)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, error.to_string()))?;
    Object::parse(name, &bytes)
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn a_broken_object_is_refused_by_name() {
        let error = object(("tc_v4.o", b"\x07 not a packed object")).unwrap_err().to_string();
        assert!(error.contains("tc_v4.o"), "{error}");
    }
}
