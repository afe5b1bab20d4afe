//! Connections: HTTP/1 and HTTP/2, over TLS where there are files for it, and an end that does not wait for streams.

use axum::Router;
use daemon::Shutdown;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::time::Duration;
use tls::Renewing;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long a client may take to say hello and what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long answers may take to finish when the server ends. Streams never finish.
const FAREWELL: Duration = Duration::from_secs(1);
/// How many connections there may be: a browser has a few.
const CONNECTIONS: usize = 1000;

/// Serves until the end is asked for.
pub async fn serve(
    listener: TcpListener,
    certificates: Option<Renewing>,
    service: Router,
    shutdown: Shutdown,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
            () = shutdown.requested() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // An event must not wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let (service, shutdown) = (service.clone(), shutdown.clone());
        match certificates.as_ref().map(Renewing::current_or_last) {
            None => drop(connections.spawn(connection(stream, service, shutdown))),
            Some(Ok((acceptor, problem))) => {
                if let Some(problem) = problem {
                    tracing::warn!(error = %problem, "the new certificate cannot be used; the last one stays");
                }
                connections.spawn(async move {
                    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => connection(stream, service, shutdown).await,
                        Ok(Err(error)) => tracing::debug!(%error, "no connection over TLS came about"),
                        Err(_) => tracing::debug!("a client does not say hello"),
                    }
                });
            }
            Some(Err(error)) => tracing::error!(%error, "nothing can be served"),
        }
    }
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, all).await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Router,
    shutdown: Shutdown,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
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
