//! Content ids like Calico's: a prefix, a colon and a SHA-224 in base64url without padding.
//!
//! Only computes the digest. Truncating an id to the length that a kernel object allows is left to the code that names
//! the object.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha224};

/// The id of `content` in the family `prefix` (`s` for selectors, `n` for named ports): the prefix, a colon,
/// and the digest of `prefix:content`.
pub fn unique_id(prefix: &str, content: &str) -> String {
    let digest = Sha224::new().chain_update(prefix).chain_update(":").chain_update(content).finalize();
    let mut id = String::with_capacity(prefix.len() + 1 + 38);
    id.push_str(prefix);
    id.push(':');
    URL_SAFE_NO_PAD.encode_string(digest, &mut id);
    id
}
