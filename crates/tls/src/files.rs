//! The files of a server, and the TLS configuration built from them.

use crate::any_certificate::AnyCertificate;
use crate::limits::TlsLimits;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use settings::ClientAuth;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The certificate files of a server and its demands on clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the server's certificate chain.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// PEM file of the authorities that sign clients' certificates; read only if those are verified.
    pub authorities: PathBuf,
    /// What is required of clients' certificates.
    pub client_auth: ClientAuth,
    /// The application protocols offered (ALPN), the preferred one first.
    pub protocols: &'static [&'static str],
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate, key or authorities do not fit together.
    #[error("cannot use the TLS files: {0}")]
    Unfit(String),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Unfit(error.to_string())
    }
}

/// Identifies a version of a file by time, size and inode; `None` for a missing file.
pub(crate) type Stamp = Option<(i64, i64, u64, u64)>;

impl TlsFiles {
    /// Reads the files into a server configuration.
    ///
    /// # Errors
    /// When they cannot be read or used.
    pub fn read(&self) -> Result<ServerConfig, TlsError> {
        self.read_within(&TlsLimits::default())
    }

    /// Reads the files into a server configuration with these versions and suites.
    pub(crate) fn read_within(&self, limits: &TlsLimits) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Pem { path: self.key.clone(), source })?;
        let provider = Arc::new(limits.provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&limits.versions())?;
        let builder = match self.client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::RequestAny | ClientAuth::RequireAny => {
                let is_required = self.client_auth == ClientAuth::RequireAny;
                builder.with_client_cert_verifier(Arc::new(AnyCertificate { provider, is_required }))
            }
            ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(&self.authorities)? {
                    roots.add(certificate)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match self.client_auth {
                    ClientAuth::VerifyIfGiven => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier = verifier.build().map_err(|error| TlsError::Unfit(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(config)
    }

    /// The present version of each file; if one differs, the files must be read again.
    pub(crate) fn stamps(&self) -> [Stamp; 3] {
        let verifies = matches!(self.client_auth, ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify);
        let authorities = verifies.then_some(&self.authorities);
        [Some(&self.certificate), Some(&self.key), authorities].map(|file| {
            let found = std::fs::metadata(file?).ok()?;
            Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
        })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })
}
