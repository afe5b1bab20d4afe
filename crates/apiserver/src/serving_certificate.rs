//! The server's certificate: given files, or one that it creates and renews itself.
//!
//! A certificate it creates is not signed by an authority, so a cluster must either be given it (`caBundle`) or skip
//! verification. It covers the names of Calico's Service, and loopback.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long our own certificate is valid.
const GOOD_FOR: Duration = Duration::from_secs(365 * 24 * 3600);
/// The age at which our own certificate is renewed.
const RENEWED_AT: Duration = Duration::from_secs(300 * 24 * 3600);

/// The names under which clients may reach this server.
const NAMES: [&str; 6] = [
    "localhost",
    "127.0.0.1",
    "calico-api",
    "calico-api.calico-apiserver.svc",
    "calico-api.calico-system.svc",
    "calico-api.calico-apiserver.svc.cluster.local",
];

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// Creates a certificate of our own, unless a good one exists. The requested folder is used if it is writable; in a
/// container the root often is not.
///
/// # Errors
/// When neither folder is writable.
pub(crate) fn ensure(folder: &Path, fallback: &Path) -> io::Result<Files> {
    let mut last = None;
    for folder in [folder, fallback] {
        let files = Files { certificate: folder.join("apiserver.crt"), key: folder.join("apiserver.key") };
        if is_fresh(&files) {
            return Ok(files);
        }
        match std::fs::create_dir_all(folder).and_then(|()| make(&files)) {
            Ok(()) => return Ok(files),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no folder")))
}

fn is_fresh(files: &Files) -> bool {
    let age = |path: &Path| {
        let written = std::fs::metadata(path).and_then(|found| found.modified()).ok()?;
        SystemTime::now().duration_since(written).ok()
    };
    match (age(&files.certificate), age(&files.key)) {
        (Some(age), Some(_)) => age < RENEWED_AT,
        _ => false,
    }
}

fn make(files: &Files) -> io::Result<()> {
    let mut parameters =
        CertificateParams::new(NAMES.map(str::to_owned).to_vec()).map_err(io::Error::other)?;
    parameters.distinguished_name.push(DnType::CommonName, "calico-apiserver");
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    let now = SystemTime::now();
    // Clocks in a cluster differ a little.
    parameters.not_before = (now - Duration::from_secs(3600)).into();
    parameters.not_after = (now + GOOD_FOR).into();
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = parameters.self_signed(&key).map_err(io::Error::other)?;
    // The key first: a mismatched pair is not used, and the previous one stays in use until they match.
    daemon::files::write(&files.key, key.serialize_pem().as_bytes(), 0o600)?;
    daemon::files::write(&files.certificate, certificate.pem().as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn a_certificate_is_created_kept_and_renewed() {
        let folder = Folder::new("serving").unwrap();
        let (wanted, other) = (folder.path().join("wanted"), folder.path().join("other"));
        let files = ensure(&wanted, &other).unwrap();
        let first = std::fs::read(&files.certificate).unwrap();
        assert_eq!(ensure(&wanted, &other).unwrap(), files);
        assert_eq!(std::fs::read(&files.certificate).unwrap(), first);
        let old = SystemTime::now() - RENEWED_AT - Duration::from_secs(60);
        std::fs::File::options().write(true).open(&files.certificate).unwrap().set_modified(old).unwrap();
        ensure(&wanted, &other).unwrap();
        assert_ne!(std::fs::read(&files.certificate).unwrap(), first);
        let tls =
            tls::TlsFiles { certificate: files.certificate, key: files.key, ..tls::TlsFiles::default() };
        assert!(tls.read().is_ok());
        // If a file has the name of the folder, the other folder is used.
        let blocked = folder.path().join("blocked");
        std::fs::write(&blocked, "").unwrap();
        assert!(ensure(&blocked.join("certs"), &other).unwrap().key.starts_with(&other));
    }
}
