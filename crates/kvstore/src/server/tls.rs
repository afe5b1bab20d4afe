//! The server's certificate: read at the start, so that mistakes show then, and read again when its files have changed. A
//! handshake after that gets the new one. Files that cannot be used at that moment (one of a pair is already new) change nothing.

use std::{
    fmt,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// The server's certificate, and whether clients need one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the server's certificate chain.
    pub cert_file: PathBuf,
    /// PEM file of its key.
    pub key_file: PathBuf,
    /// PEM file of the authorities that sign clients' certificates; with it, clients without one are refused.
    pub trusted_ca_file: Option<PathBuf>,
}

/// Why the TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate, key or authorities do not fit.
    #[error("cannot use the TLS files: {0}")]
    Config(String),
}

/// TLS with the certificate that the files hold.
pub(super) struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    /// The files when they were last read, usable or not.
    seen: Vec<Stamp>,
    acceptor: TlsAcceptor,
}

/// What tells one content of a file from another: time, size and inode; nothing for a file that is not there.
type Stamp = Option<(i64, i64, u64, u64)>;

impl Tls {
    pub(super) fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let seen = files.stamps();
        let acceptor = files.acceptor()?;
        Ok(Self { files, current: Mutex::new(Current { seen, acceptor }) })
    }

    /// For the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.files.stamps();
        if now != current.seen {
            current.seen = now;
            match self.files.acceptor() {
                Ok(acceptor) => {
                    tracing::info!("the TLS files have changed; new connections get the new certificate");
                    current.acceptor = acceptor;
                }
                Err(error) => {
                    tracing::warn!(
                        "the TLS files have changed and cannot be used; the old ones stay: {error}"
                    );
                }
            }
        }
        current.acceptor.clone()
    }
}

impl TlsFiles {
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
        };
        [Some(&self.cert_file), Some(&self.key_file), self.trusted_ca_file.as_ref()]
            .into_iter()
            .flatten()
            .map(stamp)
            .collect()
    }

    fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, source }
        };
        let config = |error: &dyn fmt::Display| TlsError::Config(error.to_string());
        let certificates = |path: &Path| {
            CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(pem(path))
        };
        let chain = certificates(&self.cert_file)?;
        let key = PrivateKeyDer::from_pem_file(&self.key_file).map_err(pem(&self.key_file))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| config(&error))?;
        let builder = match &self.trusted_ca_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| config(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| config(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|error| config(&error))?;
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(server)))
    }
}
