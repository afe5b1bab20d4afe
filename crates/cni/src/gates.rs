//! Readiness gates: addresses that must answer before pods are attached.
//!
//! A status of 200 to 399 opens a gate. A redirection counts as an answer and is not followed. TLS is verified against
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

/// The time limits for gates.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// How long one attempt may take, and the pause before the next.
    interval: Duration,
    /// How long a gate may stay closed.
    limit: Duration,
}

/// Calico's limits.
const PATIENCE: Patience = Patience { interval: Duration::from_secs(5), limit: Duration::from_secs(30) };

/// Waits for all gates, in turn.
///
/// # Errors
/// When an address is not valid, or a gate stays closed.
pub(crate) async fn wait_for(gates: &[String]) -> Result<()> {
    wait_for_all(gates, PATIENCE).await
}

async fn wait_for_all(gates: &[String], patience: Patience) -> Result<()> {
    let mut addresses = Vec::new();
    for gate in gates {
        let address: Uri = gate.parse().map_err(|error| invalid(gate, &format!("{error}")))?;
        if !matches!(address.scheme_str(), Some("http" | "https")) || address.host().is_none() {
            return Err(invalid(gate, "it is not an http or https address"));
        }
        addresses.push(address);
    }
    for address in &addresses {
        wait_for_one(address, patience).await?;
    }
    Ok(())
}

fn invalid(gate: &str, reason: &str) -> CniError {
    CniError::new(
        code::INVALID_CONFIGURATION,
        format!("invalid URL set for ReadinessGates:{gate} Error:{reason}"),
    )
}

async fn wait_for_one(address: &Uri, patience: Patience) -> Result<()> {
    let Patience { interval, limit } = patience;
    let deadline = Instant::now() + limit;
    loop {
        let reason = match timeout(interval, ask(address)).await {
            Ok(Ok(status)) if (200..400).contains(&status) => return Ok(()),
            Ok(Ok(status)) => format!("endpoint is not ready, response code returned:{status}"),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", interval.as_secs_f32()),
        };
        tracing::error!(%address, %reason, "a readiness gate is closed");
        if Instant::now() + interval > deadline {
            return Err(CniError::new(
                code::TRY_AGAIN_LATER,
                format!("readiness gate {address} did not open within {} s: {reason}", limit.as_secs_f32()),
            )
            .with_details(
                "readiness_gates of the CNI configuration names what must answer before pods are attached",
            ));
        }
        sleep(interval).await;
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

#[cfg(test)]
mod tests {
    use super::{Patience, wait_for_all};
    use crate::error::{CniError, code};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Short enough for a test; the first attempt and two more.
    const SHORT: Patience =
        Patience { interval: Duration::from_millis(200), limit: Duration::from_millis(500) };

    /// Starts a gate on loopback that answers each connection with the next of these answers, and repeats the last one.
    async fn gate(answers: &'static [&'static str]) -> std::io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let Some(answer) = answers.get(number).or(answers.last()) else { return };
                let mut question = [0; 1024];
                let _ = stream.read(&mut question).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Ok(port)
    }

    fn wait(answers: &'static [&'static str], scheme: &str) -> Result<(), CniError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let port = gate(answers).await.unwrap();
            wait_for_all(&[format!("{scheme}://127.0.0.1:{port}/ready?all=1")], SHORT).await
        })
    }

    #[test]
    fn answers_that_open_a_gate() {
        wait(&["HTTP/1.1 204 No Content\r\n\r\n"], "http").unwrap();
        // A redirection is an answer; its target is not requested.
        wait(&["HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"], "http").unwrap();
        wait(&["HTTP/1.1 503 Later\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], "http")
            .unwrap();
    }

    #[test]
    fn answers_that_do_not_open_a_gate() {
        let error = wait(&["HTTP/1.1 503 Later\r\n\r\n"], "http").unwrap_err();
        assert_eq!(error.code, code::TRY_AGAIN_LATER);
        assert!(
            error
                .msg
                .contains("did not open within 0.5 s: endpoint is not ready, response code returned:503"),
            "{error}"
        );
        // A gate without TLS is not asked in plain text instead.
        let error = wait(&["HTTP/1.1 200 OK\r\n\r\n"], "https").unwrap_err();
        assert!(error.msg.contains("did not open"), "{error}");
        let error = wait(&[], "http").unwrap_err();
        assert!(error.msg.contains("did not open"), "{error}");
        for wrong in ["ftp", "unix", "127.0.0.1"] {
            assert_eq!(wait(&[], wrong).unwrap_err().code, code::INVALID_CONFIGURATION);
        }
    }
}
