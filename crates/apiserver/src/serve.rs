//! Connections of the API server and of the webhooks: TLS, HTTP/1 and HTTP/2, and a shutdown that lets requests finish.

use crate::respond::Answer;
use daemon::Shutdown;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tls::{Door, Renewing, Stream};
use tokio::net::TcpListener;

/// How long a client may take to send its TLS handshake or request headers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests may take to finish after shutdown begins.
const FAREWELL: Duration = Duration::from_secs(5);
/// How many concurrent requests one connection may have: a kube-apiserver sends all of its requests over a few
/// connections.
const STREAMS: u32 = 1000;
/// How many bytes may be buffered for a client on one connection beyond what it has read. A smaller limit would slow
/// down large lists.
const SEND_BUFFER: usize = 1 << 20;

/// The certificates that a client presented, its own first.
pub(crate) type Chain = Arc<[CertificateDer<'static>]>;

/// Answers every request with `handle` until shutdown.
pub(crate) async fn serve<H, F>(listener: TcpListener, certificates: Renewing, shutdown: Shutdown, handle: H)
where
    H: Fn(Chain, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let door = Door { listener, certificates: Some(certificates), most: usize::MAX, farewell: FAREWELL };
    let ending = shutdown.clone();
    let answer = move |stream, _| connection(stream, handle.clone(), ending.clone());
    if !door.serve(&shutdown, answer).await {
        tracing::info!("some requests did not finish in time");
    }
}

async fn connection<H, F>(stream: Stream, handle: H, shutdown: Shutdown)
where
    H: Fn(Chain, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let chain: Chain = stream.peer_certificates().into();
    let service = service_fn(move |request| {
        let answer = handle(Arc::clone(&chain), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shutdown.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}
