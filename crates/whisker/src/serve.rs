//! Connections: HTTP/1 and HTTP/2, over TLS if files are configured, with a shutdown that does not wait for streams.

use axum::Router;
use daemon::Shutdown;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::time::Duration;
use tls::{Door, Renewing, Stream};
use tokio::net::TcpListener;

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long answers may take to finish after shutdown began. Streams never finish.
const FAREWELL: Duration = Duration::from_secs(1);
/// The maximum number of connections: a browser opens a few.
const CONNECTIONS: usize = 1000;

/// Serves until shutdown is requested.
pub async fn serve(
    listener: TcpListener,
    certificates: Option<Renewing>,
    service: Router,
    shutdown: Shutdown,
) {
    let door = Door { listener, certificates, most: CONNECTIONS, farewell: FAREWELL };
    let ending = shutdown.clone();
    let answer = move |stream, _| connection(stream, service.clone(), ending.clone());
    // Streams never end; clients reconnect by themselves.
    let _ = door.serve(&shutdown, answer).await;
}

async fn connection(stream: Stream, service: Router, shutdown: Shutdown) {
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
