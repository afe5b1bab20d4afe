//! The server as a process: settings, connections, and the tasks that keep its state current.

use crate::access::authorities::{Authorities, NAME, NAMESPACE};
use crate::access::reviews::{Reviews, Times};
use crate::app::{Access, App};
use crate::cli::Arguments;
use crate::handler::handle;
use crate::hooks::Hooks;
use crate::namespaces::Namespaces;
use crate::serve::serve;
use crate::serving_certificate::{Files, ensure};
use anyhow::{Context as _, Result};
use client::{Client, ClientConfig};
use daemon::{Backoff, Environment, Shutdown, Variables};
use kube_access::KubeAccess;
use kube_access::access::SERVICE_ACCOUNT_DIR;
use kube_access::cluster::Cluster;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::net::TcpListener;

/// How often the cluster's authorities are read again.
const LOOKUP: Duration = Duration::from_secs(20);
/// How often the age of our own certificate is checked.
const RENEWAL: Duration = Duration::from_secs(3600);

/// Serves until shutdown.
///
/// # Errors
/// When settings are unusable, or the port cannot be listened on.
pub async fn run(
    arguments: &Arguments,
    environment: &(dyn Environment + Send + Sync),
    shutdown: Shutdown,
) -> Result<()> {
    for name in ["TLS_CIPHER_SUITES", "TLS_MIN_VERSION", "MIN_RESOURCE_REFRESH_INTERVAL"] {
        if environment.variable(name).is_some_and(|value| !value.is_empty()) {
            tracing::warn!(
                "{name} does nothing here: TLS is 1.2 or newer with the suites of this program, and nothing is polled"
            );
        }
    }
    let config = ClientConfig::load(None, environment)?;
    let client = Client::open(&config).await?;
    let main = access(environment, arguments.kubeconfig.as_deref()).await.context("the cluster")?;
    let authentication = match &arguments.authentication_kubeconfig {
        Some(file) => access(environment, Some(file)).await.context("--authentication-kubeconfig")?,
        None => main.clone(),
    };
    let authorization = match &arguments.authorization_kubeconfig {
        Some(file) => access(environment, Some(file)).await.context("--authorization-kubeconfig")?,
        None => main.clone(),
    };
    let authorities = first_authorities(arguments, &authentication, &shutdown).await?;
    let times = Times {
        token: arguments.authentication_token_webhook_cache_ttl,
        allowed: arguments.authorization_webhook_cache_authorized_ttl,
        refused: arguments.authorization_webhook_cache_unauthorized_ttl,
    };
    let reviews =
        Reviews::new(Some(Cluster::new(&authentication)), Some(Cluster::new(&authorization)), times);
    let access = Access::Delegated {
        reviews: Box::new(reviews),
        authorities: std::sync::RwLock::new(Arc::new(authorities)),
        open_paths: arguments.authorization_always_allow_paths.clone(),
    };
    let namespaces = Namespaces::new(Some(Cluster::new(&main)));
    let app = App::new(client, access, namespaces, shutdown.clone());
    let app = Arc::new(app.with_hooks(Hooks::new(Some(Cluster::new(&main)))));
    let certificates = certificates(arguments, &shutdown)?;
    let listener = listen(&arguments.bind_address, arguments.secure_port).await?;
    tracing::info!(address = %listener.local_addr()?, datastore = config.target(), "serving projectcalico.org/v3");
    tokio::spawn(initialize(Arc::clone(&app)));
    let follower = Arc::clone(&app);
    tokio::spawn(async move { follower.hooks.follow(&follower.shutdown).await });
    if arguments.authentication_skip_lookup != Some(true) {
        tokio::spawn(follow_authorities(Arc::clone(&app), arguments.clone(), authentication));
    }
    serve(listener, certificates, shutdown, move |chain, request| {
        let app = Arc::clone(&app);
        async move { handle(&app, &chain, request).await }
    })
    .await;
    Ok(())
}

async fn access(
    environment: &(dyn Environment + Send + Sync),
    kubeconfig: Option<&Path>,
) -> Result<KubeAccess> {
    let Some(file) = kubeconfig else {
        return Ok(KubeAccess::open(environment, Path::new(SERVICE_ACCOUNT_DIR)).await?);
    };
    let variables = Variables::new([("KUBECONFIG", file)]);
    Ok(KubeAccess::open(&variables, Path::new(SERVICE_ACCOUNT_DIR)).await?)
}

async fn listen(host: &str, port: u16) -> Result<TcpListener> {
    let everywhere = matches!(host, "" | "::" | "0.0.0.0");
    let listener = match TcpListener::bind((if everywhere { "::" } else { host }, port)).await {
        Err(_) if everywhere => TcpListener::bind(("0.0.0.0", port)).await,
        listener => listener,
    };
    listener.with_context(|| format!("cannot listen on port {port}"))
}

/// The TLS settings of this server. Clients may present a certificate; its issuer is checked for each request.
fn certificates(arguments: &Arguments, shutdown: &Shutdown) -> Result<Renewing> {
    let files = match (&arguments.tls_cert_file, &arguments.tls_private_key_file) {
        (Some(certificate), Some(key)) => Files { certificate: certificate.clone(), key: key.clone() },
        _ => {
            let fallback = std::env::temp_dir().join(format!("calico-apiserver-{}", std::process::id()));
            let folder = arguments.cert_dir.clone();
            let files = ensure(&folder, &fallback).context("creating a serving certificate")?;
            let shutdown = shutdown.clone();
            tokio::spawn(async move {
                while shutdown.sleep(RENEWAL).await {
                    if let Err(error) = ensure(&folder, &fallback) {
                        tracing::warn!(%error, "cannot renew the serving certificate");
                    }
                }
            });
            files
        }
    };
    let certificates = Renewing::new(TlsFiles {
        certificate: files.certificate,
        key: files.key,
        client_auth: ClientAuth::RequestAny,
        protocols: &["h2", "http/1.1"],
        ..TlsFiles::default()
    });
    certificates.current_or_last().context("the serving certificate")?;
    Ok(certificates)
}

/// Initializes the datastore, however long that takes.
async fn initialize(app: Arc<App>) {
    let mut pause = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
    while let Err(error) = app.store.client().ensure_initialized("", "").await {
        tracing::warn!(%error, "cannot initialise the datastore; trying again");
        if !app.shutdown.sleep(pause.pause()).await {
            return;
        }
    }
    app.is_initialized.store(true, Ordering::Relaxed);
    tracing::info!("the datastore is ready");
}

/// The authorities: those given by flags before those of the cluster.
async fn authorities(arguments: &Arguments, access: &KubeAccess) -> Result<Authorities> {
    let mut data = BTreeMap::new();
    if arguments.authentication_skip_lookup != Some(true) {
        data = access.config_map(NAMESPACE, NAME).await?;
    }
    let read =
        |file: &Path| std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()));
    if let Some(file) = &arguments.client_ca_file {
        data.insert("client-ca-file".into(), read(file)?);
    }
    if let Some(file) = &arguments.requestheader_client_ca_file {
        data.insert("requestheader-client-ca-file".into(), read(file)?);
        for (name, list) in [
            ("requestheader-allowed-names", &arguments.requestheader_allowed_names),
            ("requestheader-username-headers", &arguments.requestheader_username_headers),
            ("requestheader-uid-headers", &arguments.requestheader_uid_headers),
            ("requestheader-group-headers", &arguments.requestheader_group_headers),
            ("requestheader-extra-headers-prefix", &arguments.requestheader_extra_headers_prefix),
        ] {
            data.insert(name.into(), serde_json::to_string(list)?);
        }
    }
    Authorities::from_config_map(&data)
        .map_err(|reason| anyhow::anyhow!("config map {NAMESPACE}/{NAME}: {reason}"))
}

/// The authorities to start with. Waits for a cluster that is not reachable yet: exiting early would only lead to a
/// restart.
async fn first_authorities(
    arguments: &Arguments,
    access: &KubeAccess,
    shutdown: &Shutdown,
) -> Result<Authorities> {
    let mut pause = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    loop {
        match authorities(arguments, access).await {
            Ok(found) => return Ok(found),
            Err(error) if arguments.authentication_tolerate_lookup_failure == Some(true) => {
                tracing::warn!("cannot read the cluster's authorities: {error:#}");
                return Ok(Authorities::default());
            }
            Err(error) => tracing::warn!("cannot read the cluster's authorities; trying again: {error:#}"),
        }
        if !shutdown.sleep(pause.pause()).await {
            return Ok(Authorities::default());
        }
    }
}

/// Rereads the authorities periodically: a cluster renews them.
async fn follow_authorities(app: Arc<App>, arguments: Arguments, access: KubeAccess) {
    while app.shutdown.sleep(LOOKUP).await {
        let Access::Delegated { authorities: current, .. } = &app.access else { return };
        match authorities(&arguments, &access).await {
            Ok(found) => *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found),
            Err(error) => {
                tracing::warn!("cannot read the cluster's authorities; the last ones stay: {error:#}");
            }
        }
    }
}
