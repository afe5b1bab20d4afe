//! Connections: HTTP/2, over TLS of both sides where there are files, and an end that lets answers finish.

use crate::aggregator::Aggregator;
use crate::collecting;
use crate::services::Services;
use daemon::Shutdown;
use goldmane_api::losses::proto::losses_server::LossesServer;
use goldmane_api::proto::flows_server::FlowsServer;
use goldmane_api::proto::statistics_server::StatisticsServer;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Renewing;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service as _;

/// How long a client may take to say hello.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long answers may take to finish when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);
/// How much a client may send ahead of what was read: a sender of flows is not held up by the way.
const WINDOW: u32 = 1 << 20;

/// Serves until the end is asked for: over TLS with these certificates, or in the clear.
pub async fn serve(
    listener: TcpListener,
    certificates: Option<Renewing>,
    services: Services,
    shutdown: Shutdown,
) {
    let aggregator = Arc::clone(&services.0);
    let routes = Routes::new(FlowsServer::new(services.clone()))
        .add_service(StatisticsServer::new(services.clone()))
        .add_service(LossesServer::new(services))
        .prepare();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.requested() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Receipts are small, and senders wait for them.
        let _ = stream.set_nodelay(true);
        let shutdown = shutdown.clone();
        let paths = Paths {
            aggregator: Arc::clone(&aggregator),
            routes: routes.clone(),
            remote: address.ip().to_canonical(),
        };
        match certificates.as_ref().map(Renewing::current_or_last) {
            None => drop(connections.spawn(answer(stream, paths, shutdown))),
            Some(Ok((acceptor, problem))) => {
                if let Some(problem) = problem {
                    tracing::warn!(error = %problem, "the new certificate cannot be used; the last one stays");
                }
                connections.spawn(async move {
                    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => answer(stream, paths, shutdown).await,
                        Ok(Err(error)) => tracing::debug!(%error, "no connection over TLS came about"),
                        Err(_) => tracing::debug!("a client does not say hello"),
                    }
                });
            }
            Some(Err(error)) => tracing::error!(%error, "nothing can be served"),
        }
    }
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, all).await.is_err() {
        tracing::info!("some answers did not finish in time");
    }
}

/// Who answers requests of a connection.
struct Paths {
    aggregator: Arc<Aggregator>,
    routes: Routes,
    remote: IpAddr,
}

async fn answer<S>(stream: S, paths: Paths, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Paths { aggregator, routes, remote } = paths;
    let service = service_fn(move |request: Request<Incoming>| {
        let receipts = (request.uri().path() == collecting::PATH)
            .then(|| (Arc::clone(&aggregator), collecting::sender(request.headers(), remote)));
        let mut routes = routes.clone();
        async move {
            match receipts {
                Some((aggregator, sender)) => Ok(collecting::receipts(aggregator, sender, request)),
                None => routes.call(request.map(Body::new)).await,
            }
        }
    });
    let mut builder = Builder::new(TokioExecutor::new()).http2_only();
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
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
