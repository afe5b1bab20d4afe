//! A certificate authority for one test, and the certificates it signs.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::{Path, PathBuf};

/// A certificate authority that lives in a folder.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// The authority's certificate, as a PEM file.
    pub certificate: PathBuf,
}

/// The files of a key and its certificate.
#[derive(Clone, Debug)]
pub struct KeyAndCertificate {
    /// The private key, PEM.
    pub key: PathBuf,
    /// The certificate, PEM.
    pub certificate: PathBuf,
}

impl Authority {
    /// A new authority with its files in `folder`.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, "tortie test authority");
        let key = KeyPair::generate()?;
        let certificate = folder.join("ca.pem");
        std::fs::write(&certificate, parameters.self_signed(&key)?.pem())?;
        Ok(Self { issuer: Issuer::new(parameters, key), folder: folder.to_owned(), certificate })
    }

    /// Signs a certificate for a server on loopback, which clients can use, too.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn sign(
        &self,
        file_name: &str,
        common_name: &str,
        organisations: &[&str],
    ) -> Result<KeyAndCertificate> {
        self.sign_for(file_name, common_name, organisations, &[])
    }

    /// Signs a certificate for a server on loopback and under these names and addresses, which clients can use, too.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn sign_for(
        &self,
        file_name: &str,
        common_name: &str,
        organisations: &[&str],
        places: &[&str],
    ) -> Result<KeyAndCertificate> {
        let places = ["localhost", "127.0.0.1"].iter().chain(places).map(|place| (*place).to_owned());
        let mut parameters = CertificateParams::new(places.collect::<Vec<_>>())?;
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        for organisation in organisations {
            parameters.distinguished_name.push(DnType::OrganizationName, *organisation);
        }
        let key = KeyPair::generate()?;
        let signed = parameters.signed_by(&key, &self.issuer)?;
        let files = KeyAndCertificate {
            key: self.folder.join(format!("{file_name}-key.pem")),
            certificate: self.folder.join(format!("{file_name}.pem")),
        };
        std::fs::write(&files.key, key.serialize_pem())?;
        std::fs::write(&files.certificate, signed.pem())?;
        Ok(files)
    }
}
