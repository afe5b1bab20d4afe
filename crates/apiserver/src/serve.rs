//! Connections: TLS, HTTP/1 and HTTP/2, and an end that lets requests finish.

use crate::app::App;
use crate::handler::handle;
use daemon::Shutdown;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tls::Renewing;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long a client may take to say hello and what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests may take to finish when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);
/// How many requests one connection may have at once: a kube-apiserver sends all of its over a few.
const STREAMS: u32 = 1000;
/// How much a client may be sent ahead of what it has read, on one connection. Less would slow down large lists.
const SEND_BUFFER: usize = 1 << 20;

/// Serves until the end is asked for.
pub(crate) async fn serve(listener: TcpListener, certificates: Renewing, app: Arc<App>, shutdown: Shutdown) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.requested() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((stream, _)) => match certificates.current_or_last() {
                Ok((acceptor, problem)) => {
                    if let Some(problem) = problem {
                        tracing::warn!(error = %problem, "the new serving certificate cannot be used; the last one stays");
                    }
                    connections.spawn(connection(stream, acceptor, Arc::clone(&app), shutdown.clone()));
                }
                Err(error) => tracing::error!(%error, "nothing can be served"),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, all).await.is_err() {
        tracing::info!("some requests did not finish in time");
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: tokio_rustls::TlsAcceptor,
    app: Arc<App>,
    shutdown: Shutdown,
) {
    // Small answers must not wait for the acknowledgement of the ones before.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "no connection over TLS came about"),
        Err(_) => return tracing::debug!("a client does not say hello"),
    };
    let chain: Arc<[CertificateDer<'static>]> = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .cloned()
        .map(CertificateDer::into_owned)
        .collect();
    let service = service_fn(move |request| {
        let (app, chain) = (Arc::clone(&app), Arc::clone(&chain));
        async move { Ok::<_, Infallible>(handle(&app, &chain, request).await) }
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
