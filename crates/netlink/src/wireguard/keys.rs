//! Keys. The kernel computes the public half; nothing here computes on curves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::str::FromStr;

/// The length of a key.
pub(super) const LENGTH: usize = 32;

/// The public half of a key, as it is published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; LENGTH]);

/// A text that is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a WireGuard key is {LENGTH} bytes in base64 and not all zero")]
pub struct InvalidKey;

impl PublicKey {
    /// A key from its bytes; `None` when they are all zero, which means no key.
    #[must_use]
    pub fn from_bytes(bytes: [u8; LENGTH]) -> Option<Self> {
        (bytes != [0; LENGTH]).then_some(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let bytes = STANDARD.decode(text).map_err(|_| InvalidKey)?;
        let bytes = <[u8; LENGTH]>::try_from(bytes).map_err(|_| InvalidKey)?;
        Self::from_bytes(bytes).ok_or(InvalidKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The secret half of a key. It cannot be printed, compared or read.
#[derive(Clone)]
pub struct PrivateKey([u8; LENGTH]);

impl PrivateKey {
    /// Generates a key from the kernel's randomness.
    ///
    /// # Errors
    /// When the kernel cannot provide randomness.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        // The form that the curve requires; the kernel would apply it, too.
        bytes[0] &= 0b1111_1000;
        bytes[LENGTH - 1] &= 0b0111_1111;
        bytes[LENGTH - 1] |= 0b0100_0000;
        Ok(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::{PrivateKey, PublicKey};

    #[test]
    fn public_keys_as_text() {
        let text = "jlkVyVJLKpFCBDJNNWGpKYHaSwMGtBDIwXlzbG3YVkg=";
        let key: PublicKey = text.parse().expect("a key");
        assert_eq!((key.to_string(), format!("{key:?}")), (text.to_owned(), text.to_owned()));
        for wrong in [
            "",
            "jlkVyVJLKpFCBDJNNWGpKYHaSwMGtBDIwXlzbG3YVk==",
            "jlkVyVJLKpFCBDJNNWGpKYHaSwMGtBDIwXlzbG3YVkg",
            "!lkVyVJLKpFCBDJNNWGpKYHaSwMGtBDIwXlzbG3YVkg=",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn private_keys_differ_have_the_curves_form_and_are_not_shown() {
        let keys: Vec<PrivateKey> = (0..16).map(|_| PrivateKey::generate().expect("a key")).collect();
        for key in &keys {
            assert_eq!((key.0[0] & 7, key.0[31] & 0xc0), (0, 0x40));
            assert_eq!(format!("{key:?}"), "PrivateKey(..)");
        }
        assert!(keys.windows(2).all(|pair| pair[0].0 != pair[1].0));
    }
}
