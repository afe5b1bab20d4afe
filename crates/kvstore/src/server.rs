//! The server: etcd's v3 API over the engine. One port speaks gRPC (HTTP/2) and JSON (HTTP/1.1 or HTTP/2), as etcd's does.
//!
//! [`Server::start`] opens the store and binds every endpoint, so that mistakes show before anything is served;
//! [`Server::serve`] runs until it is asked to stop. It parses no command line (see `cli`) and installs no signal
//! handlers.

mod authority;
mod certificate;
mod compactor;
mod convert;
mod gateway;
mod listen;
mod pages;
mod services;
mod streams;
mod unary;
mod users;
mod watching;

use std::{
    convert::Infallible,
    fs::OpenOptions,
    future::Future,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{Router, routing};
use etcd_api::etcdserverpb::{
    auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer, lease_server::LeaseServer,
    maintenance_server::MaintenanceServer, watch_server::WatchServer,
};
use futures::future::Either;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tower::Service;

pub use certificate::TlsFiles;
pub use compactor::AutoCompaction;
pub use gateway::decode_json;
pub use listen::{Endpoint, EndpointError};
pub use tls::TlsError;

use authority::Authority;
use certificate::Tls;
use listen::{Connection, Listener};
use services::{Api, Info};
use streams::Streams;

use kvstore_engine::{OpenError, Options, Store, served_path, socket_path};

/// The etcd version whose API is served; clients choose by it which features they use.
pub const VERSION: &str = "3.5.21";
/// The cluster version to report.
const CLUSTER_VERSION: &str = "3.5.0";
/// Messages may be this much larger than requests, as in etcd.
const MESSAGE_OVERHEAD: usize = 512 << 10;
/// How long open connections get to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The server's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of the store.
    pub data_dir: PathBuf,
    /// The member's name.
    pub name: String,
    /// Where to listen, besides the socket in the data directory.
    pub listen: Vec<Endpoint>,
    /// The addresses reported to clients; if empty, those it listens on.
    pub advertise: Vec<String>,
    /// For `https` and `unixs` endpoints.
    pub tls: Option<TlsFiles>,
    /// The engine's options.
    pub options: Options,
    /// The history to keep.
    pub auto_compaction: AutoCompaction,
    /// How often idle watches that requested it get a progress report.
    pub progress_interval: Duration,
    /// A snapshot to create a new store from.
    pub restore: Option<PathBuf>,
}

impl Config {
    /// etcd's defaults for a store in `data_dir`, listening only on the socket there.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            name: "default".to_owned(),
            listen: Vec::new(),
            advertise: Vec::new(),
            tls: None,
            options: Options::default(),
            auto_compaction: AutoCompaction::Off,
            progress_interval: Duration::from_secs(600),
            restore: None,
        }
    }
}

/// Applies the filter that header blocks pass before HTTP/2 sees them; public for the fuzzer.
pub fn clean_header_block(block: &mut [u8]) {
    authority::clean_block(block);
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be opened or restored.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An endpoint cannot be bound.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        /// The endpoint.
        endpoint: Endpoint,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A server that is bound and ready.
pub struct Server {
    api: Api,
    listeners: Vec<Listener>,
    endpoints: Vec<Endpoint>,
    auto_compaction: AutoCompaction,
}

/// Starts and serves until `shutdown` completes.
///
/// # Errors
/// When it cannot start.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), StartError> {
    Server::start(config).await?.serve(shutdown).await;
    Ok(())
}

impl Server {
    /// Opens the store and binds every endpoint.
    ///
    /// # Errors
    /// When the store cannot be opened or an endpoint cannot be bound.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        if let Some(snapshot) = &config.restore {
            Store::restore(&config.data_dir, snapshot)?;
        }
        let certificates = config.tls.map(Tls::new).transpose()?.map(Arc::new);
        let store = Store::open(&config.data_dir, config.options).inspect_err(|error| {
            // The program that has it open yields it to the server when the server starts again.
            if matches!(error, OpenError::InUse { .. }) {
                mark_as_served(&config.data_dir);
            }
        })?;
        let mut wanted = vec![Endpoint::Unix { path: socket_path(&config.data_dir), tls: false }];
        wanted.extend(config.listen);
        let mut listeners = Vec::new();
        let mut endpoints = Vec::new();
        for endpoint in wanted {
            let listener = Listener::bind(&endpoint, certificates.as_ref()).await;
            let bound = listener.and_then(|listener| Ok((listener.endpoint()?, listener)));
            let (bound, listener) = bound.map_err(|source| StartError::Listen { endpoint, source })?;
            listeners.push(listener);
            endpoints.push(bound);
        }
        mark_as_served(&config.data_dir);
        let status = store.status();
        let client_urls = if config.advertise.is_empty() {
            endpoints.iter().skip(1).map(ToString::to_string).collect()
        } else {
            config.advertise
        };
        let info = Arc::new(Info {
            name: config.name,
            client_urls,
            progress_interval: config.progress_interval,
            cluster_id: status.cluster_id,
            member_id: status.member_id,
        });
        let api = Api { store, info };
        Ok(Self { api, listeners, endpoints, auto_compaction: config.auto_compaction })
    }

    /// The endpoints it listens on; the socket in the data directory first.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The store it serves.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.api.store
    }

    /// Serves until `shutdown` completes, then ends watches, lets open requests finish and closes the store.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Self { api, listeners, endpoints, auto_compaction } = self;
        for endpoint in &endpoints {
            tracing::info!("ready to serve client requests on {endpoint}");
        }
        let store = Arc::clone(&api.store);
        let routes = Routes::new(&api);
        let (stop, stopped) = watch::channel(());
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(accept(listener, routes.clone(), stopped.clone()));
        }
        let compactor = tokio::spawn(compactor::run(Arc::clone(&store), auto_compaction));
        let herald = tokio::spawn(store.herald());
        shutdown.await;
        tracing::info!("stopping");
        compactor.abort();
        herald.abort();
        // Both sides of watches are notified: connections by this, streams by the store.
        drop(stop);
        drop(stopped);
        let closing = tokio::task::spawn_blocking(move || store.close());
        while accepting.join_next().await.is_some() {}
        if let Err(error) = closing.await {
            tracing::error!("closing the store failed: {error}");
        }
    }
}

/// Leaves a mark for programs that find the server down: they wait for it, instead of opening the store and locking it
/// out. The mark stays when the server ends.
fn mark_as_served(dir: &Path) {
    let path = served_path(dir);
    let text = "A server has served this store, so Calico's components wait for it.\n\
                Remove this file if they are to open the store themselves.\n";
    let written = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        // The store can be served nevertheless.
        tracing::warn!("cannot write {}: {error}", path.display());
    }
}

async fn accept(listener: Listener, routes: Routes, mut stopped: watch::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, acceptor)) => {
                    let (routes, stopped) = (routes.clone(), stopped.clone());
                    connections.spawn(async move {
                        match acceptor {
                            None => converse(stream, routes, stopped).await,
                            Some(acceptor) => match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                                Ok(Ok(stream)) => converse(Box::new(stream), routes, stopped).await,
                                Ok(Err(error)) => tracing::debug!("the TLS handshake failed: {error}"),
                                Err(_) => tracing::debug!("a TLS handshake took too long"),
                            },
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: give connections time to end.
                    tracing::warn!("accepting a connection failed: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, drained).await.is_err() {
        connections.abort_all();
    }
}

async fn converse(stream: Box<dyn Connection>, routes: Routes, mut stopped: watch::Receiver<()>) {
    let streams = Streams::default();
    let mut builder = auto::Builder::new(streams.clone());
    builder
        .http2()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_concurrent_streams(None);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(60));
    let service = hyper::service::service_fn(move |request| routes.call(request));
    let connection = builder.serve_connection(TokioIo::new(Authority::new(stream)), service);
    let connection = std::pin::pin!(connection);
    let mut driven = streams.drive(connection);
    let result = tokio::select! {
        result = &mut driven => result,
        _ = stopped.changed() => {
            driven.connection().as_mut().graceful_shutdown();
            driven.await
        }
    };
    if let Err(error) = result {
        tracing::debug!("a connection ended: {error}");
    }
}

/// Dispatches requests. gRPC goes straight to its service; everything else through a router.
#[derive(Clone)]
struct Routes {
    api: Api,
    /// The longest request message, in bytes.
    most: usize,
    kv: KvServer<Api>,
    watch: WatchServer<Api>,
    lease: LeaseServer<Api>,
    cluster: ClusterServer<Api>,
    maintenance: MaintenanceServer<Api>,
    auth: AuthServer<Api>,
    pages: Router,
}

impl Routes {
    fn new(api: &Api) -> Self {
        let most = api.store.options().max_request_bytes + MESSAGE_OVERHEAD;
        let pages = Router::new()
            .route("/health", routing::get(pages::health))
            .route("/version", routing::get(pages::version))
            .route("/metrics", routing::get(pages::metrics))
            .route("/v3/{*path}", routing::post(gateway::handle))
            .route("/v3beta/{*path}", routing::post(gateway::handle))
            .fallback(pages::not_found)
            .method_not_allowed_fallback(pages::not_allowed)
            .with_state(api.clone());
        Self {
            api: api.clone(),
            most,
            kv: KvServer::new(api.clone()).max_decoding_message_size(most),
            watch: WatchServer::new(api.clone()).max_decoding_message_size(most),
            lease: LeaseServer::new(api.clone()),
            cluster: ClusterServer::new(api.clone()),
            maintenance: MaintenanceServer::new(api.clone()),
            auth: AuthServer::new(api.clone()),
            pages,
        }
    }

    fn call(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send + use<> {
        let path = request.uri().path();
        if let Some(method) = path.strip_prefix("/etcdserverpb.KV/").and_then(Method::from_name)
            && unary::plain(&request)
        {
            let (api, most) = (self.api.clone(), self.most);
            return Either::Left(Either::Right(async move { Ok(method.call(api, most, request).await) }));
        }
        let service = path.strip_prefix("/etcdserverpb.").and_then(|rest| rest.split('/').next());
        // Cloning a service clones a pointer.
        match service {
            Some("KV") => Either::Left(Either::Left(self.kv.clone().call(request))),
            Some("Watch") => Either::Left(Either::Left(self.watch.clone().call(request))),
            Some("Lease") => Either::Left(Either::Left(self.lease.clone().call(request))),
            Some("Cluster") => Either::Left(Either::Left(self.cluster.clone().call(request))),
            Some("Maintenance") => Either::Left(Either::Left(self.maintenance.clone().call(request))),
            Some("Auth") => Either::Left(Either::Left(self.auth.clone().call(request))),
            _ => {
                let mut pages = self.pages.clone();
                Either::Right(async move {
                    let response = pages.call(request.map(axum::body::Body::new)).await?;
                    Ok(response.map(tonic::body::Body::new))
                })
            }
        }
    }
}

/// The methods of the key service that are answered without the gRPC library.
#[derive(Clone, Copy)]
enum Method {
    Range,
    Put,
    DeleteRange,
    Txn,
}

impl Method {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "Range" => Self::Range,
            "Put" => Self::Put,
            "DeleteRange" => Self::DeleteRange,
            "Txn" => Self::Txn,
            _ => return None,
        })
    }

    async fn call(self, api: Api, most: usize, request: Request<Incoming>) -> Response<tonic::body::Body> {
        use unary::encoded;
        match self {
            Self::Range => {
                let answer = |request| async move { encoded(&api.read_keys(request).await?) };
                unary::call(request, most, answer).await
            }
            Self::Put => {
                let answer = |request| async move { encoded(&api.put_key(request).await?) };
                unary::call(request, most, answer).await
            }
            Self::DeleteRange => {
                let answer = |request| async move { encoded(&api.delete_keys(request).await?) };
                unary::call(request, most, answer).await
            }
            Self::Txn => {
                let answer = |request| async move { encoded(&api.transact(request).await?) };
                unary::call(request, most, answer).await
            }
        }
    }
}
