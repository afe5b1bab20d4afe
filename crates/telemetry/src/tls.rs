//! TLS in front of the pages: the server's certificate, and what it asks of a client's.
//!
//! The files are read anew when they changed, so that certificates can be renewed without a new start. While they cannot
//! be read nobody is served: it refuses to answer in the clear what was to be protected.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error as HandshakeError, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;

/// What is asked of a client's certificate. The names are Calico's (and Go's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// There need be none: `NoClientCert`.
    #[default]
    None,
    /// Any: `RequireAnyClientCert`.
    RequireAny,
    /// None, or one that an authority signed: `VerifyClientCertIfGiven`.
    VerifyIfGiven,
    /// One that an authority signed: `RequireAndVerifyClientCert`.
    RequireAndVerify,
}

impl ClientAuth {
    fn verifies(self) -> bool {
        matches!(self, Self::VerifyIfGiven | Self::RequireAndVerify)
    }
}

/// Where certificates are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the server's certificate chain.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// PEM file of the authorities that sign clients' certificates.
    pub authorities: PathBuf,
    /// What is asked of clients.
    pub client_auth: ClientAuth,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate, key or authorities do not fit.
    #[error("cannot use the TLS files: {0}")]
    Unfit(String),
}

impl From<HandshakeError> for TlsError {
    fn from(error: HandshakeError) -> Self {
        Self::Unfit(error.to_string())
    }
}

impl TlsFiles {
    /// The files as a configuration of the server.
    ///
    /// # Errors
    /// When they cannot be read or used.
    pub fn read(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Pem { path: self.key.clone(), source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match self.client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::RequireAny => builder.with_client_cert_verifier(Arc::new(AnyCertificate(provider))),
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
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// When each of the files was written; other values mean that they must be read.
    fn stamps(&self) -> [Option<SystemTime>; 3] {
        let authorities = self.client_auth.verifies().then_some(&self.authorities);
        [Some(&self.certificate), Some(&self.key), authorities].map(|file| {
            file.and_then(|file| std::fs::metadata(file).ok()).and_then(|found| found.modified().ok())
        })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })
}

/// The acceptor of the newest files.
pub(crate) struct Acceptor {
    files: TlsFiles,
    loaded: Option<([Option<SystemTime>; 3], TlsAcceptor)>,
}

impl Acceptor {
    pub(crate) fn new(files: TlsFiles) -> Self {
        Self { files, loaded: None }
    }

    /// The acceptor, read anew if the files changed.
    pub(crate) fn get(&mut self) -> Result<TlsAcceptor, TlsError> {
        let stamps = self.files.stamps();
        match &self.loaded {
            Some((then, acceptor)) if *then == stamps => Ok(acceptor.clone()),
            _ => {
                let acceptor = TlsAcceptor::from(Arc::new(self.files.read()?));
                self.loaded = Some((stamps, acceptor.clone()));
                Ok(acceptor)
            }
        }
    }
}

/// Wants a certificate and that the client has its key; who signed it does not matter.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, HandshakeError> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, HandshakeError> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, HandshakeError> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientAuth, TlsFiles};
    use crate::metrics::Metrics;
    use crate::server::{Pages, serve_tls};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::path::Path;
    use std::sync::Arc;
    use testkit::{Authority, Folder, KeyAndCertificate};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    struct World {
        folder: Folder,
        authority: Authority,
        address: std::net::SocketAddr,
        files: TlsFiles,
    }

    impl World {
        async fn start(client_auth: ClientAuth) -> Self {
            let folder = Folder::new("telemetry").unwrap();
            let authority = Authority::new(folder.path()).unwrap();
            let server = authority.sign("server", "localhost", &[]).unwrap();
            let files = TlsFiles {
                certificate: server.certificate,
                key: server.key,
                authorities: authority.certificate.clone(),
                client_auth,
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let metrics = Metrics::default();
            metrics.set("felix_resync_state", "State.", 3.0);
            let pages = Pages { health: None, metrics: Some(metrics) };
            tokio::spawn(serve_tls(listener, pages, files.clone()));
            Self { folder, authority, address, files }
        }

        /// What a client gets, or why it does not.
        async fn ask(&self, client: Option<&KeyAndCertificate>) -> Result<String, String> {
            let mut roots = RootCertStore::empty();
            for one in CertificateDer::pem_file_iter(&self.authority.certificate).unwrap() {
                roots.add(one.unwrap()).unwrap();
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
            let config = match client {
                None => builder.with_no_client_auth(),
                Some(client) => {
                    let chain = CertificateDer::pem_file_iter(&client.certificate).unwrap();
                    let key = PrivateKeyDer::from_pem_file(&client.key).unwrap();
                    builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
                }
            };
            let name = ServerName::try_from("localhost").unwrap();
            let stream = TcpStream::connect(self.address).await.unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let mut stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
            let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.map_err(|error| error.to_string())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
            Ok(answer)
        }
    }

    #[tokio::test]
    async fn what_is_asked_of_clients() {
        // Without a certificate, with one of the authority, with one of a stranger.
        for (auth, wanted) in [
            (ClientAuth::None, [true, true, true]),
            (ClientAuth::RequireAny, [false, true, true]),
            (ClientAuth::VerifyIfGiven, [true, true, false]),
            (ClientAuth::RequireAndVerify, [false, true, false]),
        ] {
            let world = World::start(auth).await;
            let known = world.authority.sign("client", "scraper", &[]).unwrap();
            let elsewhere = world.folder.path().join("elsewhere");
            std::fs::create_dir(&elsewhere).unwrap();
            let stranger = Authority::new(&elsewhere).unwrap().sign("client", "scraper", &[]).unwrap();
            for (client, wanted) in [None, Some(&known), Some(&stranger)].into_iter().zip(wanted) {
                let answer = world.ask(client).await;
                let served = answer.as_ref().is_ok_and(|text| text.ends_with("felix_resync_state 3\n"));
                assert_eq!(served, wanted, "{auth:?}: {answer:?}");
            }
        }
    }

    #[tokio::test]
    async fn new_files_are_read_and_bad_ones_close_the_door() {
        let world = World::start(ClientAuth::None).await;
        assert!(world.ask(None).await.is_ok());
        let good = std::fs::read(&world.files.certificate).unwrap();
        write(&world.files.certificate, b"nothing", 10);
        assert!(world.ask(None).await.is_err());
        write(&world.files.certificate, &good, 20);
        assert!(world.ask(None).await.is_ok());
    }

    /// Writes a file with a time that certainly differs from the last one.
    fn write(path: &Path, bytes: &[u8], later: u64) {
        std::fs::write(path, bytes).unwrap();
        let time = std::time::SystemTime::now() + std::time::Duration::from_secs(later);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}
