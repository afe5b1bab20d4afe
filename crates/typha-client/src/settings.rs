//! How a component follows Typha.

use crate::tls::{PeerName, TlsFiles};
use std::path::PathBuf;
use std::time::Duration;
use typha_wire::SyncerType;

/// The settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The feed.
    pub kind: SyncerType,
    /// This node.
    pub hostname: String,
    /// The name of the component, for the server's log.
    pub info: String,
    /// Our version, for the server's log.
    pub version: String,
    /// How long the server may be silent.
    pub read_timeout: Duration,
    /// How long a write may take.
    pub write_timeout: Duration,
    /// TLS; `None` for plain connections.
    pub tls: Option<(TlsFiles, PeerName)>,
    /// The file that records whether a Typha is connected, for components without a health page of their own.
    pub state_file: Option<PathBuf>,
}

impl ClientSettings {
    /// Calico's defaults.
    #[must_use]
    pub fn new(kind: SyncerType, hostname: &str, info: &str, version: &str) -> Self {
        Self {
            kind,
            hostname: hostname.to_owned(),
            info: info.to_owned(),
            version: version.to_owned(),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
            tls: None,
            state_file: None,
        }
    }
}

/// The TLS parameters of a component, as Calico names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsParameters {
    /// `TyphaKeyFile`
    pub key_file: String,
    /// `TyphaCertFile`
    pub cert_file: String,
    /// `TyphaCAFile`
    pub ca_file: String,
    /// `TyphaCN`
    pub common_name: String,
    /// `TyphaURISAN`
    pub uri_san: String,
}

impl TlsParameters {
    /// The files and the name; `None` if nothing is set.
    ///
    /// # Errors
    /// A sentence, when only some are set: incomplete TLS would be an unauthenticated connection.
    pub fn resolve(&self) -> Result<Option<(TlsFiles, PeerName)>, String> {
        let files = [&self.key_file, &self.cert_file, &self.ca_file];
        let names = [&self.common_name, &self.uri_san];
        if files.iter().chain(&names).all(|value| value.is_empty()) {
            return Ok(None);
        }
        if files.iter().any(|value| value.is_empty()) || names.iter().all(|value| value.is_empty()) {
            return Err(
                "TLS with Typha needs a key file, a certificate file, a CA file, and a CN or a URI SAN; \
                        only some of them are set"
                    .to_owned(),
            );
        }
        let [key, certificate, authorities] = files.map(PathBuf::from);
        let name = PeerName { common_name: self.common_name.clone(), uri_san: self.uri_san.clone() };
        Ok(Some((TlsFiles { key, certificate, authorities }, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_tls_or_nothing() {
        let set = |key: &str, cert: &str, ca: &str, cn: &str, uri: &str| TlsParameters {
            key_file: key.to_owned(),
            cert_file: cert.to_owned(),
            ca_file: ca.to_owned(),
            common_name: cn.to_owned(),
            uri_san: uri.to_owned(),
        };
        assert_eq!(set("", "", "", "", "").resolve(), Ok(None));
        assert!(set("k", "c", "a", "n", "").resolve().unwrap().is_some());
        assert!(set("k", "c", "a", "", "u").resolve().unwrap().is_some());
        for part in [set("k", "c", "a", "", ""), set("", "c", "a", "n", ""), set("", "", "", "n", "")] {
            assert!(part.resolve().is_err(), "{part:?}");
        }
    }
}
