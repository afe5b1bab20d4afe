//! TLS between Typha and its clients: both sides present a certificate of the same authority, and each may require a
//! common name or a URI in the other's. Host names are not checked, because pods' addresses have none.
//!
//! Files are reread when they change. New files that cannot be used are reported, and the last good ones stay in use.

use crate::certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as HandshakeError,
    RootCertStore, ServerConfig, SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The files of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The private key.
    pub key: PathBuf,
    /// The certificate, with the intermediate certificates.
    pub certificate: PathBuf,
    /// The authorities that may sign the other side's certificate.
    pub authorities: PathBuf,
}

/// The name that the other side's certificate must have. If both are given, one match is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerName {
    /// The common name; empty for any.
    pub common_name: String,
    /// A URI; empty for any.
    pub uri_san: String,
}

impl PeerName {
    fn accepts(&self, certificate: &[u8]) -> bool {
        let names = certificate::names(certificate).unwrap_or_default();
        let by_name = !self.common_name.is_empty() && names.common_name.as_ref() == Some(&self.common_name);
        let by_uri = !self.uri_san.is_empty() && names.uris.contains(&self.uri_san);
        by_name || by_uri || (self.common_name.is_empty() && self.uri_san.is_empty())
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), HandshakeError> {
        if self.accepts(certificate) {
            return Ok(());
        }
        tracing::warn!(
            common_name = %self.common_name, uri_san = %self.uri_san,
            "the peer's certificate does not have the required CN or URI SAN"
        );
        Err(CertificateError::NotValidForName.into())
    }
}

/// Why TLS cannot be used.
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
    /// The files do not match.
    #[error("cannot use the TLS files: {0}")]
    Unfit(String),
}

impl From<HandshakeError> for TlsError {
    fn from(error: HandshakeError) -> Self {
        Self::Unfit(error.to_string())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })
}

impl TlsFiles {
    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Pem { path: self.key.clone(), source })
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authorities)? {
            roots.add(certificate)?;
        }
        if roots.is_empty() {
            return Err(TlsError::Unfit(format!("{} has no certificate", self.authorities.display())));
        }
        Ok(Arc::new(roots))
    }

    fn stamps(&self) -> Stamps {
        [&self.certificate, &self.key, &self.authorities]
            .map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok())
    }

    fn server(&self, peer: &PeerName) -> Result<ServerConfig, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider())
            .build()
            .map_err(|error| TlsError::Unfit(error.to_string()))?;
        let verifier = NamedClient { verifier, peer: peer.clone() };
        Ok(ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(certificates(&self.certificate)?, self.key()?)?)
    }

    fn client(&self, peer: &PeerName) -> Result<ClientConfig, TlsError> {
        let verifier = NamedServer { roots: self.roots()?, provider: provider(), peer: peer.clone() };
        Ok(ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(certificates(&self.certificate)?, self.key()?)?)
    }
}

type Stamps = [Option<SystemTime>; 3];

/// Something built from files, and rebuilt when they change.
struct Loaded<T> {
    files: TlsFiles,
    peer: PeerName,
    make: fn(&TlsFiles, &PeerName) -> Result<T, TlsError>,
    last: Mutex<Option<(Stamps, T)>>,
}

impl<T: Clone> Loaded<T> {
    fn new(files: TlsFiles, peer: PeerName, make: fn(&TlsFiles, &PeerName) -> Result<T, TlsError>) -> Self {
        Self { files, peer, make, last: Mutex::new(None) }
    }

    fn get(&self) -> Result<T, TlsError> {
        let stamps = self.files.stamps();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((then, made)) = last.as_ref()
            && *then == stamps
        {
            return Ok(made.clone());
        }
        match ((self.make)(&self.files, &self.peer), last.as_mut()) {
            (Ok(made), _) => {
                if last.is_some() {
                    tracing::info!("the TLS files have changed and were reread");
                }
                *last = Some((stamps, made.clone()));
                Ok(made)
            }
            (Err(error), Some((then, made))) => {
                tracing::error!(%error, "the TLS files have changed and cannot be used; the last good ones stay in use");
                *then = stamps;
                Ok(made.clone())
            }
            (Err(error), None) => Err(error),
        }
    }
}

/// The server's side.
pub struct ServerTls(Loaded<TlsAcceptor>);

impl ServerTls {
    /// Uses these files, for clients with this name.
    #[must_use]
    pub fn new(files: TlsFiles, peer: PeerName) -> Self {
        Self(Loaded::new(files, peer, |files, peer| Ok(TlsAcceptor::from(Arc::new(files.server(peer)?)))))
    }

    /// The acceptor for the next connection.
    ///
    /// # Errors
    /// When the files have never been usable.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        self.0.get()
    }
}

/// The client's side.
pub struct ClientTls(Loaded<TlsConnector>);

impl ClientTls {
    /// Uses these files, for a server with this name.
    #[must_use]
    pub fn new(files: TlsFiles, peer: PeerName) -> Self {
        Self(Loaded::new(files, peer, |files, peer| Ok(TlsConnector::from(Arc::new(files.client(peer)?)))))
    }

    /// The connector for the next connection.
    ///
    /// # Errors
    /// When the files have never been usable.
    pub fn connector(&self) -> Result<TlsConnector, TlsError> {
        self.0.get()
    }
}

#[derive(Debug)]
struct NamedClient {
    verifier: Arc<dyn ClientCertVerifier>,
    peer: PeerName,
}

impl ClientCertVerifier for NamedClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, HandshakeError> {
        let verified = self.verifier.verify_client_cert(certificate, between, now)?;
        self.peer.check(certificate).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, HandshakeError> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, HandshakeError> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[derive(Debug)]
struct NamedServer {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    peer: PeerName,
}

impl ServerCertVerifier for NamedServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, HandshakeError> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(certificate)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        self.peer.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, HandshakeError> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, HandshakeError> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
