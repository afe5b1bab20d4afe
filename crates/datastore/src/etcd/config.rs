//! How to reach etcd: endpoints, certificates, user; checked, and converted to what a connection needs.
//!
//! Certificate files are reread for each connection ([`EtcdConfig::endpoint`]), so renewed ones are used without a
//! restart. An unusable file is an error at the start; later, only that connection fails.
//!
//! The rules are Calico's: certificates are either all files or all inline; user and password are only used together;
//! an endpoint without a scheme is `https` if there are certificates and `http` otherwise. `unix://` endpoints are our
//! extension, for `tortie datastore`. Nothing is read from the environment here.

use super::dial::Address;
use super::discovery;
use crate::error::{Error, Result};
use crate::secret::Secret;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// How long the TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an idle connection is probed, as by Calico. Each probe wakes an otherwise idle process.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long the answer to a probe may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The members: `http://`, `https://`, `unix://`, or a bare `host:port`. Several are alternatives.
    pub endpoints: Vec<String>,
    /// The domain whose SRV records name the members; instead of `endpoints`.
    pub discovery_srv: String,
    /// The user; only used together with a password.
    pub username: String,
    /// The password.
    pub password: Secret,
    /// Certificates in files.
    pub files: TlsFiles,
    /// Certificates given as PEM text.
    pub inline: TlsInline,
}

/// Certificates in files. An empty path means "not given".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority of the server's certificate; the system's authorities if not given.
    pub ca_cert: PathBuf,
    /// Our certificate.
    pub cert: PathBuf,
    /// The key of our certificate.
    pub key: PathBuf,
}

/// Certificates given as PEM text. Empty means "not given".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInline {
    /// The authority of the server's certificate; the system's authorities if not given.
    pub ca_cert: String,
    /// Our certificate.
    pub cert: String,
    /// The key of our certificate.
    pub key: Secret,
}

impl TlsFiles {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl TlsInline {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A cluster member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The URL as the user wrote it, for messages.
    pub(super) url: String,
    /// The URL with its scheme.
    full: String,
    /// Where it listens.
    pub(super) address: Address,
    /// What to check when the member accepts connections but never answers.
    pub(super) hint: &'static str,
}

impl EtcdConfig {
    /// The settings for these endpoints (a comma-separated list, as in `ETCD_ENDPOINTS`) and nothing else.
    #[must_use]
    pub fn for_endpoints(list: &str) -> Self {
        Self { endpoints: split_endpoints(list), ..Self::default() }
    }

    /// User and password, if both are given.
    pub(super) fn user(&self) -> Option<(String, Secret)> {
        (!self.username.is_empty() && !self.password.is_empty())
            .then(|| (self.username.clone(), self.password.clone()))
    }

    /// The members, with all settings and files checked.
    pub(super) async fn members(&self) -> Result<Vec<Member>> {
        let endpoints = match (self.endpoints.is_empty(), self.discovery_srv.is_empty()) {
            (false, false) => {
                return Err(wrong(
                    "multiple discovery or bootstrap options specified, use either \"etcdEndpoints\" or \"etcdDiscoverySrv\"",
                ));
            }
            (true, true) => return Err(wrong("no etcd endpoints specified")),
            (false, true) => self.endpoints.clone(),
            (true, false) => discovery::members(&self.discovery_srv).await.map_err(|error| {
                Error::transient("failed to discover etcd endpoints through SRV discovery", error)
            })?,
        };
        let has_tls = !self.files.is_empty() || !self.inline.is_empty();
        let has_certificate = !self.files.cert.as_os_str().is_empty() || !self.inline.cert.is_empty();
        let mut members = Vec::with_capacity(endpoints.len());
        for url in &endpoints {
            let member = member(url, has_tls, has_certificate)?;
            self.endpoint(&member)?;
            members.push(member);
        }
        Ok(members)
    }

    /// The settings of a new connection to this member, with the current certificates.
    pub(super) fn endpoint(&self, member: &Member) -> Result<Endpoint> {
        let invalid = |error: tonic::transport::Error| {
            Error::permanent(
                format!("cannot use etcd endpoint {}", member.url),
                daemon::causes(&error).to_string(),
            )
        };
        let tls = self.tls()?;
        let mut endpoint = Endpoint::from_shared(member.full.clone()).map_err(invalid)?;
        if let Address::Tcp { host, is_tls: true, .. } = &member.address {
            let tls = tls.unwrap_or_else(|| ClientTlsConfig::new().with_native_roots());
            let tls = tls.timeout(HANDSHAKE_TIMEOUT).domain_name(host.clone());
            endpoint = endpoint.tls_config(tls).map_err(invalid)?;
        }
        Ok(endpoint
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(false))
    }

    fn tls(&self) -> Result<Option<ClientTlsConfig>> {
        if !self.files.is_empty() && !self.inline.is_empty() {
            return Err(wrong("cannot mix inline certificate-key and certificate / key files"));
        }
        let (ca_cert, cert, key) = if self.inline.is_empty() {
            let ca_cert = read("etcdCACertFile", &self.files.ca_cert)?;
            let cert = read("etcdCertFile", &self.files.cert)?;
            (ca_cert, cert, Secret::from(read("etcdKeyFile", &self.files.key)?))
        } else {
            (self.inline.ca_cert.clone(), self.inline.cert.clone(), self.inline.key.clone())
        };
        if cert.is_empty() != key.is_empty() {
            return Err(wrong("certificate and key must both be present"));
        }
        if ca_cert.is_empty() && cert.is_empty() {
            return Ok(None);
        }
        let mut tls = ClientTlsConfig::new();
        tls = if ca_cert.is_empty() {
            tls.with_native_roots()
        } else {
            tls.ca_certificate(Certificate::from_pem(ca_cert))
        };
        if !cert.is_empty() {
            tls = tls.identity(Identity::from_pem(cert, key.expose()));
        }
        Ok(Some(tls))
    }
}

/// The items of a comma-separated list, trimmed.
fn split_endpoints(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn member(url: &str, has_tls: bool, has_certificate: bool) -> Result<Member> {
    let invalid = |reason: &str| Error::permanent(format!("cannot use etcd endpoint {url}"), reason);
    let full = match (url.contains("://") || url.starts_with("unix:"), has_tls) {
        (true, _) => url.to_owned(),
        (false, true) => format!("https://{url}"),
        (false, false) => format!("http://{url}"),
    };
    let (address, hint) = if let Some(path) = full.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        (Address::Unix(path.into()), "")
    } else {
        let uri: http::Uri =
            full.parse().map_err(|error: http::uri::InvalidUri| invalid(&error.to_string()))?;
        let (is_tls, usual_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(invalid("the scheme must be http, https or unix")),
        };
        let host = uri.host().ok_or_else(|| invalid("it has no host"))?;
        // Brackets belong to the URL, not to the address.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let hint = match (is_tls, has_certificate) {
            (true, true) => "does the server know the authority of the client certificate?",
            (true, false) => "does the server require a client certificate?",
            (false, _) => "does the server require https?",
        };
        (Address::Tcp { host, port: uri.port_u16().unwrap_or(usual_port), is_tls }, hint)
    };
    Ok(Member { url: url.to_owned(), full, address, hint })
}

fn wrong(reason: &str) -> Error {
    Error::permanent("could not initialize etcdv3 client", reason)
}

fn read(setting: &str, path: &std::path::Path) -> Result<String> {
    if path.as_os_str().is_empty() {
        return Ok(String::new());
    }
    std::fs::read_to_string(path)
        .map_err(|error| Error::permanent(format!("cannot read {setting} {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(config: EtcdConfig) -> String {
        match config.members().await {
            Ok(members) => panic!("accepted: {members:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn contradictory_settings_are_refused_with_the_reason() {
        let with_endpoint = EtcdConfig::for_endpoints("http://127.0.0.1:2379");
        let cases = [
            (EtcdConfig::default(), "no etcd endpoints specified"),
            (EtcdConfig { discovery_srv: "example.org".into(), ..with_endpoint.clone() }, "use either"),
            (
                EtcdConfig {
                    files: TlsFiles { ca_cert: "/nowhere/ca.pem".into(), ..TlsFiles::default() },
                    inline: TlsInline { cert: "x".into(), ..TlsInline::default() },
                    ..with_endpoint.clone()
                },
                "cannot mix",
            ),
            (
                EtcdConfig {
                    inline: TlsInline { cert: "x".into(), ..TlsInline::default() },
                    ..with_endpoint.clone()
                },
                "must both be present",
            ),
            (
                EtcdConfig {
                    files: TlsFiles { ca_cert: "/nowhere/ca.pem".into(), ..TlsFiles::default() },
                    ..with_endpoint
                },
                "etcdCACertFile /nowhere/ca.pem",
            ),
            (EtcdConfig::for_endpoints("ftp://127.0.0.1:1"), "http, https or unix"),
        ];
        for (config, expected) in cases {
            let shown = format!("{config:?}");
            let message = refusal(config).await;
            assert!(message.contains(expected), "{shown}: {message}");
        }
    }

    #[tokio::test]
    async fn endpoints_are_a_list_of_alternatives() {
        let config = EtcdConfig::for_endpoints("http://127.0.0.1:1, 127.0.0.1:2,unix:///run/store.sock,");
        let urls: Vec<String> =
            config.members().await.unwrap().into_iter().map(|member| member.url).collect();
        assert_eq!(urls, ["http://127.0.0.1:1", "127.0.0.1:2", "unix:///run/store.sock"]);
    }

    #[tokio::test]
    async fn an_endpoint_with_an_ipv6_address_can_have_tls() {
        let config = EtcdConfig::for_endpoints("https://[::1]:2379");
        let members = config.members().await.unwrap();
        let expected = Address::Tcp { host: "::1".to_owned(), port: 2379, is_tls: true };
        assert_eq!(members[0].address, expected);
    }

    #[test]
    fn user_and_password_are_used_only_together() {
        let mut config = EtcdConfig { username: "root".into(), ..EtcdConfig::default() };
        assert_eq!(config.user(), None);
        config.password = Secret::new("x");
        assert_eq!(config.user(), Some(("root".to_owned(), Secret::new("x"))));
    }
}
