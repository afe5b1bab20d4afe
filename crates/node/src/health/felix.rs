//! Requests Felix's own health over HTTP.
//!
//! It is a single request on one connection, so the few lines of HTTP are written here; a client library would be most
//! of what a probe loads.

use crate::context::Context;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest answer that is read; only its first line matters.
const LONGEST_ANSWER: u64 = 4096;

/// Queries Felix; `probe` is `liveness` or `readiness`.
pub(super) async fn ask(context: &Context, kind: &str, patience: Duration) -> Result<(), String> {
    let (host, port) = (&context.settings.felix_health_host, context.settings.felix_health_port);
    probe(host, port, kind, patience).await
}

/// Queries any component that serves its health; `probe` is `liveness` or `readiness`.
///
/// # Errors
/// When it is unhealthy or does not answer, with the messages of Go's HTTP client.
pub async fn probe(host: &str, port: u16, probe: &str, patience: Duration) -> Result<(), String> {
    let url = format!("http://{}/{probe}", kube_access::access::join_host_port(host, &port.to_string()));
    match tokio::time::timeout(patience, status(host, port, probe)).await {
        Ok(Ok(code)) if (200..400).contains(&code) => Ok(()),
        Ok(Ok(code)) => Err(format!("{probe} probe reporting {code}")),
        Ok(Err(error)) => Err(format!("Get \"{url}\": {error}")),
        Err(_) => Err(format!("Get \"{url}\": no answer within {} s", patience.as_secs())),
    }
}

async fn status(host: &str, port: u16, probe: &str) -> Result<u16, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect((host, port)).await.map_err(text)?;
    let host = kube_access::access::join_host_port(host, &port.to_string());
    let request = format!("GET /{probe} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await.map_err(text)?;
    parse(&answer).ok_or_else(|| "the answer is not HTTP".to_owned())
}

/// Parses the code of a status line such as `HTTP/1.1 204 No Content`.
fn parse(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split_whitespace().nth(1)?.parse().ok().filter(|code| (100..600).contains(code))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn status_lines_are_parsed() {
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", Some(204)),
            ("HTTP/1.0 503\r\n", Some(503)),
            ("HTTP/1.1 abc\r\n", None),
            ("SSH-2.0-x\r\n", None),
            ("", None),
        ] {
            assert_eq!(parse(answer.as_bytes()), expected, "{answer}");
        }
    }
}
