//! The pages `/liveness`, `/readiness` and `/metrics`. A small server for probes every few seconds: HTTP/1, no state,
//! nothing that a request could change.
//!
//! No client can keep others from being served. A client that sends no request, or does not read its answer, is
//! disconnected after a while; and when all places are taken, the oldest connection makes room for the newest.

use crate::listen::{Address, listen};
use crate::patience::Patient;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use telemetry::{Health, Metrics};
use tls::{Renewing, TlsFiles};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// How many connections are served at once.
const CONNECTIONS: usize = 64;
/// How long a client may take to send its request, and how long it may read nothing of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to serve.
#[derive(Clone, Default)]
pub struct Pages {
    /// `/liveness` and `/readiness`.
    pub health: Option<Health>,
    /// `/metrics`.
    pub metrics: Option<Metrics>,
}

/// Serves the pages at an address for as long as it is polled, over TLS if there are files for it. If it cannot listen
/// there, it waits until it can.
pub async fn serve_at(address: Address, pages: Pages, files: Option<TlsFiles>) {
    let listener = listen(&address).await;
    match files {
        Some(files) => serve_tls(listener, pages, files).await,
        None => serve(listener, pages).await,
    }
}

/// Serves the pages until the task is dropped.
pub async fn serve(listener: TcpListener, pages: Pages) {
    accept(listener, CONNECTIONS, |stream| Some(tokio::spawn(answer(stream, pages.clone())).abort_handle()))
        .await;
}

/// Serves the pages over TLS until the task is dropped. While the files cannot be used, no client is served: protected
/// content is never sent unencrypted.
pub(crate) async fn serve_tls(listener: TcpListener, pages: Pages, files: TlsFiles) {
    let certificates = Renewing::new(TlsFiles { protocols: &["http/1.1"], ..files });
    accept(listener, CONNECTIONS, |stream| match certificates.current() {
        Ok(acceptor) => {
            let pages = pages.clone();
            let task = tokio::spawn(async move {
                match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => answer(stream, pages).await,
                    Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
                    Err(_) => tracing::debug!("a client did not finish the TLS handshake in time"),
                }
            });
            Some(task.abort_handle())
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be served");
            None
        }
    })
    .await;
}

/// Accepts connections for as long as it is polled, each in its own task; the number of tasks is limited.
async fn accept(
    listener: TcpListener,
    places: usize,
    mut take: impl FnMut(TcpStream) -> Option<AbortHandle>,
) {
    // Oldest first.
    let mut tasks: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tasks.retain(|task| !task.is_finished());
                while tasks.len() >= places
                    && let Some(oldest) = tasks.pop_front()
                {
                    oldest.abort();
                }
                tasks.extend(take(stream));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, pages: Pages) {
    let answer = service_fn(move |request| {
        let response = respond(&request, &pages);
        async move { Ok::<_, Infallible>(response) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), answer)
        .await;
}

fn respond(request: &Request<Incoming>, pages: &Pages) -> Response<Full<Bytes>> {
    page(request.method(), request.uri().path(), pages)
}

fn page(method: &Method, path: &str, pages: &Pages) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    match (path, &pages.health, &pages.metrics) {
        ("/liveness", Some(health), _) => {
            let summary = health.summary(Instant::now());
            text(status(summary.live, &summary.detail), summary.detail)
        }
        ("/readiness", Some(health), _) => {
            let summary = health.summary(Instant::now());
            text(status(summary.ready, &summary.detail), summary.detail)
        }
        ("/metrics", _, Some(metrics)) => text(StatusCode::OK, metrics.page()),
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

fn status(good: bool, detail: &str) -> StatusCode {
    match (good, detail.is_empty()) {
        (true, true) => StatusCode::NO_CONTENT,
        (true, false) => StatusCode::OK,
        (false, _) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::Pulse;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn pages_by_path() {
        let health = Health::default();
        let pulse = Pulse::new();
        health.register("FelixStartup", &pulse, true, true, Duration::ZERO);
        let pages = Pages { health: Some(health), metrics: None };
        let code = |path: &str| page(&Method::GET, path, &pages).status().as_u16();
        assert_eq!(
            (code("/liveness"), code("/readiness"), code("/metrics"), code("/")),
            (200, 503, 404, 404)
        );
        pulse.report(true, "");
        assert_eq!(code("/readiness"), 200);
        assert_eq!(page(&Method::POST, "/readiness", &pages).status().as_u16(), 405);
    }

    /// More clients than there are places request a page that is larger than all buffers, and read none of it.
    #[tokio::test(flavor = "current_thread")]
    async fn clients_that_do_not_read_do_not_block_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Metrics::default();
        let help = "x".repeat(8 << 20);
        metrics.set("felix_resync_state", Box::leak(help.into_boxed_str()), 3.0);
        let pages = Pages { health: None, metrics: Some(metrics) };
        let places = 4;
        let server = tokio::spawn(accept(listener, places, move |stream| {
            Some(tokio::spawn(answer(stream, pages.clone())).abort_handle())
        }));
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let mut silent = Vec::new();
        for _ in 0..places + 1 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request).await.unwrap();
            // The answer has begun, so this client has a place.
            stream.readable().await.unwrap();
            silent.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let reading = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer));
        reading.await.expect("an answer although no other client reads its own").unwrap();
        server.abort();
        assert!(answer.ends_with(b"felix_resync_state 3\n"));
    }

    /// When all places are taken, the oldest connection is closed for a new one, whatever its state.
    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_connection_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(accept(listener, 2, |stream| {
            let endless = async move {
                let _open = stream;
                std::future::pending::<()>().await;
            };
            Some(tokio::spawn(endless).abort_handle())
        }));
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut others = Vec::new();
        for _ in 0..2 {
            others.push(TcpStream::connect(address).await.unwrap());
        }
        let end = tokio::time::timeout(Duration::from_secs(60), first.read(&mut [0; 1])).await;
        assert!(matches!(end, Ok(Ok(0))), "{end:?}");
        for other in &others {
            let still = other.try_read(&mut [0; 1]).unwrap_err();
            assert_eq!(still.kind(), std::io::ErrorKind::WouldBlock);
        }
        server.abort();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn over_a_real_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Metrics::default();
        metrics.set("felix_resync_state", "State.", 3.0);
        let server = tokio::spawn(serve(listener, Pages { health: None, metrics: Some(metrics) }));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        server.abort();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("felix_resync_state 3\n"),
            "{answer}"
        );
    }
}
