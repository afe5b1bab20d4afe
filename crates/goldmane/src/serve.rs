//! Connections: HTTP/2, over mutual TLS if files are configured, with a shutdown that lets answers finish.

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
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tls::{Door, Renewing, Stream};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service as _;

/// How long answers may take to finish after shutdown began.
const FAREWELL: Duration = Duration::from_secs(5);
/// How much a client may send ahead of the reader: large enough that latency does not limit a sender of flows.
const WINDOW: u32 = 1 << 20;

/// Serves until shutdown is requested: over TLS with these certificates, or unencrypted.
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
    let door = Door { listener, certificates, most: usize::MAX, farewell: FAREWELL };
    let ending = shutdown.clone();
    let answer = move |stream, address: SocketAddr| {
        let paths = Paths {
            aggregator: Arc::clone(&aggregator),
            routes: routes.clone(),
            remote: address.ip().to_canonical(),
        };
        answer(stream, paths, ending.clone())
    };
    if !door.serve(&shutdown, answer).await {
        tracing::info!("some answers did not finish in time");
    }
}

/// Dispatches the requests of a connection by path.
struct Paths {
    aggregator: Arc<Aggregator>,
    routes: Routes,
    remote: IpAddr,
}

async fn answer(stream: Stream, paths: Paths, shutdown: Shutdown) {
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
