//! The process: configuration, datastore, feeds, server, health, metrics.

use crate::config::Config;
use crate::feed::Feed;
use crate::figures::{self, ConnectionFigures};
use crate::random;
use crate::rebalance::Rebalancing;
use crate::server::{Server, ServerParts};
use crate::source::{self, SourceOptions};
use anyhow::{Context as _, Result};
use client::config::ClientConfig;
use client::{Client, DatastoreType};
use daemon::log::{LevelFilter, Log, Outlets};
use daemon::{Backoff, Environment as _, Shutdown, SystemEnvironment};
use model::feed::Status;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use telemetry::{Health, Metrics, Pulse};
use telemetry_server::{Address, Pages, serve_at};
use tls::TlsFiles;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use typha_client::tls::ServerTls;
use typha_wire::{DEFAULT_PORT, SyncerType};

/// How many clients may wait to be accepted. The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: u32 = 8192;
/// How often health checks a feed: at most this often while it is in sync, at least this often otherwise.
const HEALTH_PAUSE: Duration = Duration::from_millis(10);
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// The pauses between attempts to initialise the datastore. A permission may be missing, which takes longer than
/// seconds to grant.
const READY_PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));

/// Runs Typha until it is asked to stop.
///
/// # Errors
/// When the configuration is invalid, the store's address is wrong, or the port is not available.
pub(crate) async fn run(file: &Path, version: &str, log: &Log, shutdown: &Shutdown) -> Result<()> {
    let config = read(file)?;
    set_log(log, &config);
    allow_many_files();
    for notice in &config.notices {
        tracing::warn!("{notice}");
    }
    let (health, metrics) = (Health::default(), Metrics::default());
    let instance = random::any() | 1;
    let feeds: Vec<Arc<Feed>> =
        SyncerType::ALL.iter().map(|kind| Feed::new(*kind, instance, config.feeds())).collect();
    let figures = Arc::new(ConnectionFigures::default());
    figures::register(&metrics, &figures, &feeds, log.losses());
    let mut tasks = Tasks::default();
    tasks.watch_health(&health, &feeds);
    tasks.give_memory_back(&feeds);
    tasks.write_dumps(&config);
    tasks.serve_pages(&config, &health, &metrics);

    let tls = config.tls()?.map(|(files, peer)| ServerTls::new(files, peer));
    if let Some(tls) = &tls {
        // Unusable files are detected now instead of by the first client.
        tls.acceptor()?;
    }
    let settings = datastore(&config)?;
    let options = SourceOptions {
        kubernetes: settings.datastore_type == DatastoreType::Kubernetes,
        use_pod_cidr: settings.kubernetes.use_pod_cidr,
    };
    let backend = client::open_backend(&settings).await?;
    tasks.make_ready(Client::new(Arc::clone(&backend)));
    let _sources: Vec<_> = feeds.iter().map(|feed| source::follow(&backend, feed, options)).collect();

    let listener = listen(&config).await?;
    let parts = ServerParts { feeds, settings: config.server(), version: version.to_owned(), tls, figures };
    let server = Server::start(listener, parts);
    server.set_most_connections(config.limits().upper);
    let rebalancing = rebalancing(&config).await?;
    let types = SyncerType::ALL.len();
    match &rebalancing {
        None => shutdown.requested().await,
        Some(rebalancing) => loop {
            server.set_most_connections(rebalancing.most(types).await);
            if !shutdown.sleep(rebalancing.interval).await {
                break;
            }
        },
    }
    server.shut_down().await;
    tracing::info!("Server has shut down");
    Ok(())
}

fn read(file: &Path) -> Result<Config> {
    let texts: BTreeMap<String, String> = match std::fs::read_to_string(file) {
        Ok(text) => {
            felix_config::file::from_file(&text).with_context(|| format!("reading {}", file.display()))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let variables =
        SystemEnvironment.variables().filter_map(|(name, value)| Some((name, settings::utf8(Some(value))?)));
    Ok(Config::read(variables, &texts)?)
}

fn set_log(log: &Log, config: &Config) {
    let given = &config.parameters;
    let path = &given.log_file_path;
    let outlets = Outlets {
        screen: given.log_severity_screen.unwrap_or(LevelFilter::OFF),
        file: given.log_severity_file.filter(|_| !path.is_empty()).map(|level| (level, path.into())),
        syslog: given.log_severity_sys.map(|level| (level, "calico-typha")),
    };
    for problem in log.set(&outlets) {
        tracing::info!("{problem}");
    }
}

/// The datastore's configuration. Typha's own parameters take precedence over the variables that all components share.
fn datastore(config: &Config) -> Result<ClientConfig> {
    let given = &config.parameters;
    let mut settings = ClientConfig::load(None, &SystemEnvironment)?;
    let shared = ["DATASTORE_TYPE", "CALICO_DATASTORE_TYPE"];
    let is_shared = shared.iter().any(|name| SystemEnvironment.variable(name).is_some());
    if given.datastore_type.is_given || !is_shared {
        settings.datastore_type = given.datastore_type.value.unwrap_or(DatastoreType::EtcdV3);
    }
    let etcd = &mut settings.etcd;
    if given.etcd_endpoints.is_given {
        etcd.endpoints.clone_from(&given.etcd_endpoints.value);
    } else if given.etcd_addr.is_given || etcd.endpoints.is_empty() {
        etcd.endpoints = format!("{}://{}", given.etcd_scheme, given.etcd_addr.value);
    }
    for (file, field) in [
        (&given.etcd_key_file, &mut etcd.key_file),
        (&given.etcd_cert_file, &mut etcd.cert_file),
        (&given.etcd_ca_file, &mut etcd.ca_cert_file),
    ] {
        if file.is_given {
            field.clone_from(&file.value);
        }
    }
    Ok(settings)
}

async fn listen(config: &Config) -> Result<TcpListener> {
    let port = match config.parameters.server_port {
        0 => DEFAULT_PORT,
        port => port,
    };
    let host = config.parameters.server_host.as_str();
    let attempt = async {
        let addresses: Vec<SocketAddr> = if host.is_empty() {
            // All addresses of both families, or of IPv4 on a machine without IPv6.
            vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
        } else {
            tokio::net::lookup_host((host, port)).await?.collect()
        };
        let mut outcome = Err(std::io::ErrorKind::AddrNotAvailable.into());
        for address in addresses {
            outcome = listen_at(address);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    };
    attempt.await.with_context(|| format!("listening for clients on {host}:{port}"))
}

/// Listens with a backlog for all nodes of a large cluster connecting at once: a connection that does not fit is
/// retried by the client's kernel after one second, then after three, then after seven.
fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Every client is an open file; the initial limit of a service manager is often lower than the number of clients.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the number of open files");
        }
    }
}

async fn rebalancing(config: &Config) -> Result<Option<Rebalancing>> {
    let given = &config.parameters;
    if !given.connection_rebalancing_mode {
        return Ok(None);
    }
    let access = kube_access::KubeAccess::from_environment(&SystemEnvironment).await?;
    let access =
        access.context("ConnectionRebalancingMode is kubernetes, but there is no access to Kubernetes")?;
    Ok(Some(Rebalancing {
        access,
        namespace: given.k8s_namespace.clone(),
        service: given.k8s_service_name.clone(),
        port_name: given.k8s_port_name.clone(),
        interval: config.poll_interval(),
        limits: config.limits(),
    }))
}

/// Tasks beside the server; dropping this ends them.
#[derive(Default)]
struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Tasks {
    /// Reports each feed as ready when it is in sync.
    fn watch_health(&mut self, health: &Health, feeds: &[Arc<Feed>]) {
        for feed in feeds {
            let name = match feed.kind() {
                SyncerType::Felix => "felix-cache",
                SyncerType::Bgp => "bgp-cache",
                SyncerType::TunnelIpAllocation => "tunnel-ip-allocation-cache",
                SyncerType::NodeStatus => "node-status-cache",
            };
            let pulse = Pulse::new();
            health.register(name, &pulse, true, true, Duration::ZERO);
            let feed = Arc::clone(feed);
            self.0.push(tokio::spawn(async move {
                let mut steps = feed.subscribe();
                loop {
                    let status = feed.status();
                    pulse.report(status == Status::InSync, status.as_str());
                    // Clients waiting for the first reading wait no longer than that.
                    if status == Status::InSync {
                        tokio::time::sleep(HEALTH_PAUSE).await;
                    }
                    let _ = tokio::time::timeout(HEALTH_INTERVAL, steps.changed()).await;
                }
            }));
        }
    }

    /// Reading a whole cluster takes more memory than keeping it: the rest is returned to the system after everything
    /// has been read.
    fn give_memory_back(&mut self, feeds: &[Arc<Feed>]) {
        let feeds = feeds.to_vec();
        self.0.push(tokio::spawn(async move {
            for feed in &feeds {
                let mut steps = feed.subscribe();
                while feed.status() != Status::InSync {
                    if steps.changed().await.is_err() {
                        return;
                    }
                }
            }
            let work = || {
                telemetry::memory::give_back();
                telemetry::memory::let_go_of_code();
            };
            let _ = tokio::task::spawn_blocking(work).await;
        }));
    }

    /// Initialises the datastore: Calico's agents wait for that, and Typha may be the first to connect. Nothing here
    /// waits for it: the contents of the store are sent meanwhile.
    fn make_ready(&mut self, client: Client) {
        self.0.push(tokio::spawn(async move {
            let mut pauses = READY_PAUSES;
            while let Err(error) = client.ensure_initialized("", "typha").await {
                tracing::warn!(error = %daemon::causes(&error), "cannot initialise the datastore; trying again");
                tokio::time::sleep(pauses.pause()).await;
            }
        }));
    }

    fn write_dumps(&mut self, config: &Config) {
        let memory = config.parameters.debug_memory_profile_path.clone();
        self.0.push(tokio::spawn(daemon::dumps::on_signals(memory, String::new())));
    }

    fn serve_pages(&mut self, config: &Config, health: &Health, metrics: &Metrics) {
        let given = &config.parameters;
        if given.health_enabled {
            let pages = Pages { health: Some(health.clone()), metrics: None };
            let place = Address { what: "health", host: given.health_host.clone(), port: given.health_port };
            self.0.push(tokio::spawn(serve_at(place, pages, None)));
        }
        if given.prometheus_metrics_enabled {
            if given.prometheus_process_metrics_enabled {
                telemetry::process::watch(metrics);
            }
            let pages = Pages { health: None, metrics: Some(metrics.clone()) };
            let (host, port) = (given.prometheus_metrics_host.clone(), given.prometheus_metrics_port);
            let place = Address { what: "metrics", host, port };
            self.0.push(tokio::spawn(serve_at(place, pages, metrics_tls(config))));
        }
    }
}

fn metrics_tls(config: &Config) -> Option<TlsFiles> {
    let given = &config.parameters;
    let (certificate, key) = (&given.prometheus_metrics_cert_file, &given.prometheus_metrics_key_file);
    (!certificate.is_empty() || !key.is_empty()).then(|| TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        authorities: (&given.prometheus_metrics_ca_file).into(),
        client_auth: given.prometheus_metrics_client_auth,
        ..TlsFiles::default()
    })
}
