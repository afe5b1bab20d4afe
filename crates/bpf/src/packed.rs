//! The compiled objects that are part of this program, packed by the build script. They are unpacked when they are loaded and
//! not kept: that happens once, when Felix starts with eBPF.

use crate::error::Result;
use crate::object::{Object, unreadable};
use flate2::bufread::DeflateDecoder;
use std::io::Read as _;

/// More than any object has, so that a broken one ends here.
const LIMIT: u64 = 16 << 20;

/// A packed object and the name of its file.
macro_rules! packed {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name)).as_slice())
    };
}
pub(crate) use packed;

/// Unpacks and reads an object.
///
/// # Errors
/// When this program was built from a broken one.
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
    fn what_is_not_packed_is_refused_by_name() {
        let error = object(("tc_v4.o", b"\x07 not a packed object")).unwrap_err().to_string();
        assert!(error.contains("tc_v4.o"), "{error}");
    }
}
