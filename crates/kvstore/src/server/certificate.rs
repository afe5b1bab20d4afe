//! The server's certificate: read at startup, so that mistakes show then, and reread when its files change. Later
//! handshakes use the new certificate. Files that are unusable at that moment (only one of a pair is new) change
//! nothing.

use std::path::PathBuf;

use tls::{ClientAuth, Renewing, TlsError};
use tokio_rustls::TlsAcceptor;

/// The server's certificate, and whether clients need one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the server's certificate chain.
    pub cert_file: PathBuf,
    /// PEM file of its key.
    pub key_file: PathBuf,
    /// PEM file of the authorities that sign clients' certificates; if set, clients without a certificate are refused.
    pub trusted_ca_file: Option<PathBuf>,
}

/// TLS with the certificate currently in the files.
pub(super) struct Tls(Renewing);

impl Tls {
    pub(super) fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let client_auth = match &files.trusted_ca_file {
            Some(_) => ClientAuth::RequireAndVerify,
            None => ClientAuth::None,
        };
        let renewing = Renewing::new(tls::TlsFiles {
            certificate: files.cert_file,
            key: files.key_file,
            authorities: files.trusted_ca_file.unwrap_or_default(),
            client_auth,
            protocols: &["h2", "http/1.1"],
        });
        renewing.current()?;
        Ok(Self(renewing))
    }

    /// The acceptor for the next handshake.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let (acceptor, unusable) = self.0.current_or_last()?;
        if let Some(error) = unusable {
            tracing::warn!(
                "the TLS files have changed and cannot be used; the old ones stay in use: {error}"
            );
        }
        Ok(acceptor)
    }
}
