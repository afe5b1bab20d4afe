//! Posts lines of JSON, over TLS if the address says so. Files are read for every request, so replaced ones take
//! effect.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server that lines are posted to.
#[derive(Clone, Debug)]
pub struct PostTarget {
    /// The server's address, `http` or `https`.
    pub url: Uri,
    /// The certificate authority of the server; empty for the machine's own.
    pub authority: PathBuf,
    /// Our client certificate; empty for none.
    pub certificate: PathBuf,
    /// The key of our certificate.
    pub key: PathBuf,
    /// The name that the server's certificate must have.
    pub server_name: String,
}

/// Posts lines and waits for the server's 200.
///
/// # Errors
/// When the server cannot be reached, or answers with another status.
pub(crate) async fn post(target: &PostTarget, lines: Bytes) -> Result<()> {
    tokio::time::timeout(PATIENCE, request(target, lines)).await.context("the server does not answer")?
}

async fn request(target: &PostTarget, lines: Bytes) -> Result<()> {
    let host = target.url.host().context("PUSH_URL has no host")?;
    let is_tls = target.url.scheme_str() == Some("https");
    let port = target.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port))
        .await
        .with_context(|| format!("cannot connect to {host}:{port}"))?;
    if !is_tls {
        return send(target, stream, lines).await;
    }
    let name = ServerName::try_from(target.server_name.clone()).context("SERVER_NAME is not a name")?;
    let connector = TlsConnector::from(Arc::new(tls(target)?));
    let stream = connector.connect(name, stream).await.context("the TLS handshake failed")?;
    send(target, stream, lines).await
}

async fn send<S>(target: &PostTarget, stream: S, lines: Bytes) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let authority = target.url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let path = target.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::post(path).header(HOST, host).header(CONTENT_TYPE, "application/x-ndjson");
    if !user.is_empty() {
        request = request.header(AUTHORIZATION, format!("Basic {}", encoded(user)));
    }
    let response = sender.send_request(request.body(Full::new(lines))?).await;
    connection.abort();
    match response?.status() {
        StatusCode::OK => Ok(()),
        other => bail!("the server answers {other}"),
    }
}

fn encoded(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn tls(target: &PostTarget) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    if target.authority.as_os_str().is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        let file = &target.authority;
        for certificate in CertificateDer::pem_file_iter(file).with_context(|| reading(file))? {
            roots.add(certificate.with_context(|| reading(file))?)?;
        }
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    if target.certificate.as_os_str().is_empty() || target.key.as_os_str().is_empty() {
        return Ok(builder.with_no_client_auth());
    }
    let chain = CertificateDer::pem_file_iter(&target.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| reading(&target.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&target.key).with_context(|| reading(&target.key))?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

fn reading(path: &std::path::Path) -> String {
    format!("reading {}", path.display())
}
