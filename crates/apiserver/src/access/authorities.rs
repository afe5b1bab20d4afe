//! The authorities that are trusted to identify users: those of proxies' and clients' certificates.
//!
//! Kubernetes keeps them in the config map `extension-apiserver-authentication`; files given by flags take precedence.
//! A proxy is trusted only with a certificate of the request-header authority for one of the allowed names.

use super::identity::{HeaderNames, from_certificate, from_headers};
use kube_access::reviews::User;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The namespace of the config map.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The name of the config map.
pub(crate) const NAME: &str = "extension-apiserver-authentication";

/// The trusted authorities.
#[derive(Clone, Default)]
pub struct Authorities {
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    allowed_names: Vec<String>,
    headers: HeaderNames,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities")
            .field("proxies", &self.proxies.is_some())
            .field("allowed_names", &self.allowed_names)
            .field("clients", &self.clients.is_some())
            .finish_non_exhaustive()
    }
}

impl Authorities {
    /// Reads the authorities from the data of the config map.
    ///
    /// # Errors
    /// When an entry cannot be used; the error names it.
    pub fn from_config_map(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let text = |name: &str| data.get(name).map(String::as_str).unwrap_or_default();
        let list = |name: &str| -> Result<Vec<String>, String> {
            match text(name) {
                "" => Ok(Vec::new()),
                json => serde_json::from_str(json).map_err(|error| format!("{name}: {error}")),
            }
        };
        let or_default =
            |found: Vec<String>, default: Vec<String>| if found.is_empty() { default } else { found };
        let default = HeaderNames::default();
        Ok(Self {
            proxies: verifier(text("requestheader-client-ca-file"))
                .map_err(|error| format!("requestheader-client-ca-file: {error}"))?,
            allowed_names: list("requestheader-allowed-names")?,
            headers: HeaderNames {
                user: or_default(list("requestheader-username-headers")?, default.user),
                uid: or_default(list("requestheader-uid-headers")?, default.uid),
                group: or_default(list("requestheader-group-headers")?, default.group),
                extra: or_default(list("requestheader-extra-headers-prefix")?, default.extra),
            },
            clients: verifier(text("client-ca-file")).map_err(|error| format!("client-ca-file: {error}"))?,
        })
    }

    /// Whether the authority of proxies' certificates is known, so that a proxy can be recognised.
    #[must_use]
    pub fn knows_proxies(&self) -> bool {
        self.proxies.is_some()
    }

    /// The user that the certificate chain, or a trusted proxy's headers, name; `None` if neither does.
    #[must_use]
    pub fn user(&self, chain: &[CertificateDer<'_>], headers: &[(String, String)]) -> Option<User> {
        let (first, rest) = chain.split_first()?;
        let signed_by = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier
                .as_ref()
                .is_some_and(|verifier| verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok())
        };
        if signed_by(&self.proxies) {
            let name = from_certificate(first).map(|user| user.name).unwrap_or_default();
            if (self.allowed_names.is_empty() || self.allowed_names.contains(&name))
                && let Some(user) = from_headers(&self.headers, headers)
            {
                return Some(with_authenticated(user));
            }
        }
        if signed_by(&self.clients) {
            return from_certificate(first).map(with_authenticated);
        }
        None
    }
}

/// Adds the group of all authenticated users.
#[must_use]
pub(crate) fn with_authenticated(mut user: User) -> User {
    const GROUP: &str = "system:authenticated";
    if user.name != "system:anonymous" && !user.groups.iter().any(|group| group == GROUP) {
        user.groups.push(GROUP.into());
    }
    user
}

fn verifier(pem: &str) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if pem.trim().is_empty() {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map(|verifier| Some(verifier as Arc<dyn ClientCertVerifier>)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Authority, Folder};

    fn chain(file: &std::path::Path) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn only_the_right_authority_is_trusted() {
        let folders: Vec<Folder> = (0..2).map(|_| Folder::new("authorities").unwrap()).collect();
        let [proxies, clients] = [0, 1].map(|place| Authority::new(folders[place].path()).unwrap());
        let read = |authority: &Authority| std::fs::read_to_string(&authority.certificate).unwrap();
        let authorities = Authorities::from_config_map(&BTreeMap::from([
            ("requestheader-client-ca-file".to_owned(), read(&proxies)),
            ("requestheader-allowed-names".to_owned(), "[\"front-proxy\"]".to_owned()),
            ("client-ca-file".to_owned(), read(&clients)),
        ]))
        .unwrap();
        let proxy = chain(&proxies.sign("a", "front-proxy", &[]).unwrap().certificate);
        let stranger = chain(&proxies.sign("b", "somebody", &[]).unwrap().certificate);
        let bob = chain(&clients.sign("c", "bob", &["team"]).unwrap().certificate);
        let headers = vec![("X-Remote-User".to_owned(), "alice".to_owned())];
        let name = |chain: &[CertificateDer<'_>]| authorities.user(chain, &headers).map(|user| user.name);
        assert_eq!(name(&proxy).as_deref(), Some("alice"));
        assert_eq!(name(&stranger), None);
        // A client's own certificate does not make its headers trustworthy.
        assert_eq!(name(&bob).as_deref(), Some("bob"));
        assert_eq!(name(&[]), None);
        assert_eq!(authorities.user(&proxy, &[]), None);
        let groups = authorities.user(&bob, &[]).unwrap().groups;
        assert_eq!(groups, ["team", "system:authenticated"]);
    }
}
