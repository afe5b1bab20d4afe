//! The types of keys that Calico names, and how they sign.
//!
//! RSA keys use the crate `rsa`, because no other crate here can create them; elliptic-curve keys use `ring`, which has
//! no curve of 521 bits, and one hash for each curve.

use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm, SigningKey};
use rsa::pkcs1::{EncodeRsaPrivateKey as _, EncodeRsaPublicKey as _, LineEnding};
use rsa::rand_core::UnwrapErr;
use rsa::sha2::{Digest as _, Sha256, Sha384, Sha512};
use rsa::{Pkcs1v15Sign, RsaPrivateKey};
use std::str::FromStr;

/// A type of key, with its signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// RSA with this number of bits.
    Rsa(usize, Hash),
    /// The curve P-256.
    P256,
    /// The curve P-384.
    P384,
}

/// The hash of an RSA signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl FromStr for KeyKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "RSAWithSize2048" => Ok(Self::Rsa(2048, Hash::Sha256)),
            "RSAWithSize4096" => Ok(Self::Rsa(4096, Hash::Sha256)),
            "RSAWithSize8192" => Ok(Self::Rsa(8192, Hash::Sha256)),
            "ECDSAWithCurve256" => Ok(Self::P256),
            "ECDSAWithCurve384" => Ok(Self::P384),
            "ECDSAWithCurve521" => Err("this curve is not supported: use ECDSAWithCurve384".to_owned()),
            _ => Err("must be one of RSAWithSize2048, RSAWithSize4096, RSAWithSize8192, ECDSAWithCurve256, ECDSAWithCurve384".to_owned()),
        }
    }
}

impl KeyKind {
    /// This kind with the given signature algorithm, if it fits. The signature only proves that we have the key: an
    /// algorithm that does not fit is ignored with a warning.
    pub(crate) fn signing(self, algorithm: &str) -> Self {
        match (self, algorithm) {
            (Self::Rsa(bits, _), "SHA256WithRSA") => Self::Rsa(bits, Hash::Sha256),
            (Self::Rsa(bits, _), "SHA384WithRSA") => Self::Rsa(bits, Hash::Sha384),
            (Self::Rsa(bits, _), "SHA512WithRSA") => Self::Rsa(bits, Hash::Sha512),
            (Self::P256, "ECDSAWithSHA256") | (Self::P384, "ECDSAWithSHA384") | (_, "") => self,
            (kind, other) => {
                tracing::warn!(
                    "SIGNATURE_ALGORITHM={other} does not fit a key of kind {kind:?}: the request is signed with the default algorithm"
                );
                kind
            }
        }
    }
}

/// Why a key could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error(transparent)]
    Rsa(#[from] rsa::Error),
    #[error(transparent)]
    Encoding(#[from] rsa::pkcs1::Error),
    #[error(transparent)]
    Elliptic(#[from] rcgen::Error),
}

/// A private key. It cannot be printed.
pub(crate) enum Key {
    Rsa { key: Box<RsaPrivateKey>, public: Vec<u8>, pem: String, hash: Hash },
    Elliptic(Box<KeyPair>),
}

impl Key {
    /// Generates a key. For RSA that takes seconds to minutes, depending on the length.
    pub(crate) fn new(kind: KeyKind) -> Result<Self, KeyError> {
        match kind {
            KeyKind::Rsa(bits, hash) => {
                // Without random numbers nothing can be done: the process ends.
                let key = RsaPrivateKey::new(&mut UnwrapErr(getrandom::SysRng), bits)?;
                let public = key.to_public_key().to_pkcs1_der()?.into_vec();
                let pem = key.to_pkcs1_pem(LineEnding::LF)?.to_string();
                Ok(Self::Rsa { key: Box::new(key), public, pem, hash })
            }
            KeyKind::P256 => {
                Ok(Self::Elliptic(Box::new(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?)))
            }
            KeyKind::P384 => {
                Ok(Self::Elliptic(Box::new(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?)))
            }
        }
    }

    /// The key as it is written to its file.
    pub(crate) fn pem(&self) -> String {
        match self {
            Self::Rsa { pem, .. } => pem.clone(),
            Self::Elliptic(pair) => pair.serialize_pem(),
        }
    }

    /// Whether a certificate is for this key: it contains the public key, whose encoding is unique.
    pub(crate) fn is_certified_by(&self, certificate: &[u8]) -> bool {
        let public = self.subject_public_key_info();
        certificate.windows(public.len()).any(|window| window == public)
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        match self {
            Self::Rsa { public, .. } => public,
            Self::Elliptic(pair) => pair.der_bytes(),
        }
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self {
            Self::Rsa { hash: Hash::Sha256, .. } => &rcgen::PKCS_RSA_SHA256,
            Self::Rsa { hash: Hash::Sha384, .. } => &rcgen::PKCS_RSA_SHA384,
            Self::Rsa { hash: Hash::Sha512, .. } => &rcgen::PKCS_RSA_SHA512,
            Self::Elliptic(pair) => pair.algorithm(),
        }
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let (key, hash) = match self {
            Self::Rsa { key, hash, .. } => (key, hash),
            Self::Elliptic(pair) => return pair.sign(message),
        };
        let (padding, digest) = match hash {
            Hash::Sha256 => (Pkcs1v15Sign::new::<Sha256>(), Sha256::digest(message).to_vec()),
            Hash::Sha384 => (Pkcs1v15Sign::new::<Sha384>(), Sha384::digest(message).to_vec()),
            Hash::Sha512 => (Pkcs1v15Sign::new::<Sha512>(), Sha512::digest(message).to_vec()),
        };
        let signed = key.sign_with_rng(&mut UnwrapErr(getrandom::SysRng), padding, &digest);
        signed.map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_algorithms_fit_or_are_ignored() {
        let rsa = KeyKind::Rsa(2048, Hash::Sha256);
        assert_eq!(rsa.signing(""), rsa);
        assert_eq!(rsa.signing("SHA512WithRSA"), KeyKind::Rsa(2048, Hash::Sha512));
        assert_eq!(rsa.signing("ECDSAWithSHA256"), rsa);
        // Calico's operator sets nothing if a user chose only the key; Calico's provisioner then fails.
        assert_eq!(KeyKind::P256.signing(""), KeyKind::P256);
        assert_eq!(KeyKind::P384.signing("SHA256WithRSA"), KeyKind::P384);
    }

    #[test]
    fn keys_are_written_like_calicos_and_recognise_their_certificates() {
        let rsa = Key::new(KeyKind::Rsa(2048, Hash::Sha256)).unwrap();
        assert!(rsa.pem().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        let elliptic = Key::new(KeyKind::P384).unwrap();
        assert!(elliptic.pem().starts_with("-----BEGIN PRIVATE KEY-----\n"));
        for (key, other) in [(&rsa, &elliptic), (&elliptic, &rsa)] {
            let certificate = [b"before", key.subject_public_key_info().as_slice(), b"after"].concat();
            assert!(key.is_certified_by(&certificate) && !other.is_certified_by(&certificate));
        }
    }
}
