//! The identity of rules: a hash of the chain's name and of all its rules up to and including the rule itself.
//!
//! A rule's hash is in its comment in the kernel. Rules that are read back are compared by their hashes and never by
//! their texts, because the kernel's tools print rules in another form than they were written in.

use crate::tree::Rule;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha224};
use std::fmt;

/// The text before the hash in a comment.
pub const COMMENT_PREFIX: &str = "cali:";

/// Added to the name of one of the kernel's chains for the hashes of rules that are appended to it, so that they differ
/// from equal rules that are inserted.
pub const APPENDS_SUFFIX: &str = "*appends*";

const LENGTH: usize = 16;

/// The hash of a rule at its place in its chain: sixteen characters of URL-safe Base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleHash([u8; LENGTH]);

impl RuleHash {
    /// Reads the hash in a comment of the kernel; `None` if the text is not one of our hashes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = <[u8; LENGTH]>::try_from(text.as_bytes()).ok()?;
        let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        bytes.iter().all(known).then_some(Self(bytes))
    }

    /// The hash as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // It only ever contains ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for RuleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RuleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Computes the hashes of all rules of a chain from each rule's text, in the form that the backend hashes.
///
/// Use [`crate::iptables::hashes`] and [`crate::nftables::hashes`], which produce that form.
pub fn chained(chain: &str, rules: &[Rule], mut write: impl FnMut(&Rule, &mut String)) -> Vec<RuleHash> {
    let mut state = Sha224::digest(chain);
    let mut text = String::new();
    rules
        .iter()
        .map(|rule| {
            text.clear();
            write(rule, &mut text);
            state = Sha224::new().chain_update(state).chain_update(&text).finalize();
            let mut encoded = [0; 40];
            // 28 bytes give 38 characters, so the buffer is large enough.
            let _ = URL_SAFE_NO_PAD.encode_slice(state, &mut encoded);
            let mut hash = [0; LENGTH];
            hash.copy_from_slice(&encoded[..LENGTH]);
            RuleHash(hash)
        })
        .collect()
}
