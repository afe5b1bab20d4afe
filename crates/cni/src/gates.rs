//! Readiness gates: addresses that must answer before pods are attached.
//!
//! An answer of 200 to 399 opens a gate. A redirection counts as an answer and is not followed. TLS is verified against
//! the system's authorities.

use crate::error::{CniError, Result, code};
use http::{Request, Uri, header};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long one attempt may take, and how long until the next.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long a gate may stay closed.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits for all gates, one after the other.
///
/// # Errors
/// An address that is none, or a gate that stays closed.
pub(crate) async fn wait_for(gates: &[String]) -> Result<()> {
    let mut addresses = Vec::new();
    for gate in gates {
        let address: Uri = gate.parse().map_err(|error| invalid(gate, &format!("{error}")))?;
        if !matches!(address.scheme_str(), Some("http" | "https")) || address.host().is_none() {
            return Err(invalid(gate, "it is not an http or https address"));
        }
        addresses.push(address);
    }
    for address in &addresses {
        wait_for_one(address).await?;
    }
    Ok(())
}

fn invalid(gate: &str, reason: &str) -> CniError {
    CniError::new(
        code::INVALID_CONFIGURATION,
        format!("invalid URL set for ReadinessGates:{gate} Error:{reason}"),
    )
}

async fn wait_for_one(address: &Uri) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let reason = match timeout(INTERVAL, ask(address)).await {
            Ok(Ok(status)) if (200..400).contains(&status) => return Ok(()),
            Ok(Ok(status)) => format!("endpoint is not ready, response code returned:{status}"),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", INTERVAL.as_secs()),
        };
        tracing::error!(%address, %reason, "a readiness gate is closed");
        if Instant::now() + INTERVAL > deadline {
            return Err(CniError::new(
                code::TRY_AGAIN_LATER,
                format!("readiness gate {address} did not open within {} s: {reason}", LIMIT.as_secs()),
            )
            .with_details(
                "readiness_gates of the CNI configuration names what must answer before pods are attached",
            ));
        }
        sleep(INTERVAL).await;
    }
}

async fn ask(address: &Uri) -> std::result::Result<u16, String> {
    let host = address.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let secure = address.scheme_str() == Some("https");
    let port = address.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| error.to_string())?;
    if !secure {
        return exchange(stream, address).await;
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    exchange(stream, address).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: &Uri,
) -> std::result::Result<u16, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    let host = address.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path).header(header::HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string());
    driver.abort();
    answer.map(|answer| answer.status().as_u16())
}
