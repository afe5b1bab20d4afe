//! Certificates of a lab: an authority for each purpose, in the lab's folder, and removed with it.

use crate::state::Folder;
use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::PathBuf;

/// A certificate authority of the lab.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Creates an authority; its certificate is stored in the file of this name.
    ///
    /// # Errors
    /// When it cannot be created or written.
    pub(crate) fn new(folder: &Folder, name: &str) -> Result<Self> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, "tortie lab");
        let key = KeyPair::generate()?;
        folder.write(&format!("{name}.pem"), parameters.self_signed(&key)?.pem().as_bytes())?;
        Ok(Self { issuer: Issuer::new(parameters, key) })
    }

    /// Signs a certificate of this name for these hosts.
    ///
    /// # Errors
    /// When it cannot be created or written.
    pub(crate) fn sign(&self, folder: &Folder, name: &str, hosts: &[String]) -> Result<Signed> {
        let mut parameters = CertificateParams::new(hosts.to_vec())?;
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let signed = parameters.signed_by(&key, &self.issuer)?;
        let (certificate, secret) = (format!("{name}.pem"), format!("{name}-key.pem"));
        folder.write(&certificate, signed.pem().as_bytes())?;
        folder.write_secret(&secret, &key.serialize_pem())?;
        Ok(Signed { certificate: folder.file(&certificate), key: folder.file(&secret) })
    }
}
