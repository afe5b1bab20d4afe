//! The TLS versions and suites in use, by the names of Calico's variables (`TLS_MIN_VERSION`, `TLS_CIPHER_SUITES`).
//!
//! Suites of TLS 1.3 cannot be chosen, as in Go. Suites without forward secrecy and those with CBC, which Calico can be
//! configured to use, are reported and left out.

use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// The versions and suites that a server accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsLimits {
    only_newest: bool,
    /// The suites of TLS 1.2; `None` for all of them.
    suites: Option<Vec<CipherSuite>>,
}

/// Suites that Calico knows but this program does not support.
const REFUSED: [&str; 5] = [
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
];

/// The parsed limits, and warnings for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// The limits.
    pub limits: TlsLimits,
    /// Parts of the settings that are not followed.
    pub warnings: Vec<String>,
}

impl TlsLimits {
    /// Reads the variables. An unknown version counts as 1.2, as in Calico.
    ///
    /// # Errors
    /// When a suite is unknown.
    pub fn read(min_version: &str, suites: &str) -> Result<ReadLimits, String> {
        let mut warnings = Vec::new();
        let only_newest = match min_version {
            "" | "1.2" => false,
            "1.3" => true,
            other => {
                warnings.push(format!("TLS_MIN_VERSION is 1.2 or 1.3, not {other}: 1.2 is used"));
                false
            }
        };
        let mut chosen = Vec::new();
        for name in suites.split(',').map(str::trim).filter(|_| !suites.is_empty()) {
            let mut known = ring::ALL_CIPHER_SUITES.iter().map(SupportedCipherSuite::suite);
            match known.find(|suite| go_name(*suite) == name) {
                Some(suite) => chosen.push(suite),
                None if REFUSED.contains(&name) => {
                    warnings.push(format!("{name} of TLS_CIPHER_SUITES is not safe and is not used"));
                }
                None => return Err(format!("TLS_CIPHER_SUITES: unsupported cipher: {name}")),
            }
        }
        let suites = (!suites.is_empty()).then_some(chosen);
        Ok(ReadLimits { limits: Self { only_newest, suites }, warnings })
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if let Some(chosen) = &self.suites {
            provider
                .cipher_suites
                .retain(|suite| is_newest(suite.suite()) || chosen.contains(&suite.suite()));
        }
        provider
    }

    pub(crate) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let has_older = !self.only_newest
            && self.suites.as_ref().is_none_or(|suites| suites.iter().any(|suite| !is_newest(*suite)));
        if has_older { vec![&TLS13, &TLS12] } else { vec![&TLS13] }
    }
}

fn is_newest(suite: CipherSuite) -> bool {
    format!("{suite:?}").starts_with("TLS13_")
}

/// Go's name for a suite.
fn go_name(suite: CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    fn spoken(min_version: &str, suites: &str) -> (usize, usize, usize) {
        let read = TlsLimits::read(min_version, suites).unwrap();
        let provider = read.limits.provider();
        (read.limits.versions().len(), provider.cipher_suites.len(), read.warnings.len())
    }

    #[test]
    fn only_the_named_versions_and_suites_are_used() {
        let all = ring::ALL_CIPHER_SUITES.len();
        for (min_version, suites, expected) in [
            ("", "", (2, all, 0)),
            ("1.2", "", (2, all, 0)),
            ("1.3", "", (1, all, 0)),
            ("VersionTLS13", "", (2, all, 1)),
            ("", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256", (2, 4, 0)),
            // Nothing of TLS 1.2 is left, so it is not used.
            ("", "TLS_AES_256_GCM_SHA384", (1, 3, 0)),
            ("", "TLS_RSA_WITH_AES_256_GCM_SHA384", (1, 3, 1)),
        ] {
            assert_eq!(spoken(min_version, suites), expected, "{min_version} {suites}");
        }
        assert!(TlsLimits::read("", "TLS_NULL").unwrap_err().contains("unsupported cipher: TLS_NULL"));
    }

    /// Whether a client with only this version can connect to a server within limits.
    fn understands(min_version: &str, suites: &str, client: &'static SupportedProtocolVersion) -> bool {
        let folder = testkit::Folder::new("tls-limits").unwrap();
        let authority = testkit::Authority::new(folder.path()).unwrap();
        let own = authority.sign("server", "localhost", &[]).unwrap();
        let files = crate::TlsFiles { certificate: own.certificate, key: own.key, ..Default::default() };
        let limits = TlsLimits::read(min_version, suites).unwrap().limits;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&authority.certificate).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_protocol_versions(&[client])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut server = rustls::ServerConnection::new(files.read_within(&limits).unwrap().into()).unwrap();
        let mut client =
            rustls::ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
        for _ in 0..4 {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut &wire[..]).unwrap();
            if server.process_new_packets().is_err() {
                return false;
            }
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut &wire[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        !client.is_handshaking() && !server.is_handshaking()
    }

    #[test]
    fn clients_below_the_limits_are_rejected() {
        // The test's authority has elliptic-curve keys.
        let (fits, unfit) =
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
        for (min_version, suites, older, newer) in [
            ("", "", true, true),
            ("1.3", "", false, true),
            ("1.2", fits, true, true),
            ("1.2", unfit, false, true),
            ("1.3", fits, false, true),
        ] {
            let found = [&TLS12, &TLS13].map(|version| understands(min_version, suites, version));
            assert_eq!(found, [older, newer], "{min_version} {suites}");
        }
    }
}
