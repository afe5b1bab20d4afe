//! The initial configuration of Felix: environment and file, then the datastore's settings, read once through a small
//! feed of the kinds that hold settings. Waits for the datastore for as long as it takes.

use anyhow::{Context as _, Result};
use api::Kind;
use client::config::{ClientConfig, DatastoreType};
use daemon::{Environment as _, SystemEnvironment};
use datastore::Backend;
use felix_config::derived::DatastoreOverrides;
use felix_config::environment::from_environment;
use felix_config::file::from_file;
use felix_config::{Config, ConfigResolver, Source, Sources, Surroundings};
use follow::{FeedEvent, FollowedKind};
use messages::Encapsulation;
use model::ListOptions;
use model::feed::{FeedEntry, Status};
use std::path::Path;
use std::sync::Arc;

/// The state of Felix when it starts.
pub(crate) struct Startup {
    /// The datastore.
    pub(crate) backend: Arc<dyn Backend>,
    /// Whether the datastore is the Kubernetes API.
    pub(crate) kubernetes: bool,
    /// Whether Kubernetes assigns the addresses.
    pub(crate) use_pod_cidr: bool,
    /// The configuration, ready to apply changes.
    pub(crate) resolver: ConfigResolver,
    /// The encapsulations of the pools.
    pub(crate) encapsulation: Encapsulation,
}

/// The machine, for parameters that name files and programs.
struct Machine;

impl Surroundings for Machine {
    fn hostname(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    fn file_exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn find_program(&self, name: &str) -> Option<String> {
        let beside = std::env::current_exe().ok()?.parent()?.join(name);
        let found = if beside.is_file() { beside } else { SystemEnvironment.find_program(name)? };
        Some(found.to_string_lossy().into_owned())
    }
}

/// The configuration before the datastore is known: environment and file.
pub(crate) fn local_settings(file: &Path) -> Result<ConfigResolver> {
    Ok(ConfigResolver::new(local_sources(file)?, Box::new(Machine))?)
}

/// Messages for the log about the initial configuration.
pub(crate) fn notices(resolver: &ConfigResolver) -> Vec<String> {
    let mut notices: Vec<String> = resolver.effective().notices.iter().map(ToString::to_string).collect();
    let config = resolver.config();
    for (why, names) in [
        ("without effect in this version", felix_config::without_effect(config)),
        // Manifests often set these beforehand, so this is not a mistake.
        ("for the eBPF dataplane only, which is off (BPFEnabled)", felix_config::without_bpf(config)),
    ] {
        if !names.is_empty() {
            notices.push(format!("set, and {why}: {}", names.join(", ")));
        }
    }
    notices
}

fn local_sources(file: &Path) -> Result<Sources> {
    let mut sources = Sources::default();
    sources.set(Source::EnvironmentVariable, from_environment(SystemEnvironment.texts()));
    match std::fs::read_to_string(file) {
        Ok(text) => {
            let texts = from_file(&text).with_context(|| format!("reading {}", file.display()))?;
            sources.set(Source::ConfigFile, texts);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::info!(file = %file.display(), "no configuration file");
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    }
    Ok(sources)
}

/// Opens the datastore and reads its settings.
pub(crate) async fn start(mut resolver: ConfigResolver) -> Result<Startup> {
    let mut settings = ClientConfig::load(None, &SystemEnvironment)?;
    let overrides = resolver.config().datastore_overrides(resolver.sources());
    apply_overrides(&mut settings, &overrides);
    let kubernetes = settings.datastore_type == DatastoreType::Kubernetes;
    let use_pod_cidr = settings.kubernetes.use_pod_cidr;
    // The feed waits for stores that are not up yet: nodes boot in any order.
    let backend = client::open_backend(&settings).await?;
    let encapsulation = settle(&backend, &mut resolver, use_pod_cidr).await?;
    Ok(Startup { backend, kubernetes, use_pod_cidr, resolver, encapsulation })
}

fn apply_overrides(settings: &mut ClientConfig, overrides: &DatastoreOverrides) {
    if let Some(kind) = overrides.datastore_type {
        settings.datastore_type = kind;
    }
    let etcd = &mut settings.etcd;
    for (wanted, field) in [
        (&overrides.etcd_endpoints, &mut etcd.endpoints),
        (&overrides.etcd_key_file, &mut etcd.key_file),
        (&overrides.etcd_cert_file, &mut etcd.cert_file),
        (&overrides.etcd_ca_file, &mut etcd.ca_cert_file),
    ] {
        if let Some(value) = wanted {
            field.clone_from(value);
        }
    }
}

/// Reads settings, pools and this host's node until they are complete and the datastore may be used.
async fn settle(
    backend: &Arc<dyn Backend>,
    resolver: &mut ConfigResolver,
    use_pod_cidr: bool,
) -> Result<Encapsulation> {
    let host = resolver.config().felix_hostname.clone();
    let (follower, mut events) = follow::follow(backend, settings_feed(&host, use_pod_cidr));
    let mut pools = std::collections::BTreeMap::new();
    let (mut in_sync, mut is_waiting) = (false, false);
    while let Some(event) = events.recv().await {
        match event {
            FeedEvent::Entries(entries) => {
                for entry in entries {
                    resolver.on_entry(&entry);
                    match entry {
                        FeedEntry::IpPool(cidr, Some(pool)) => _ = pools.insert(cidr, pool),
                        FeedEntry::IpPool(cidr, None) => _ = pools.remove(&cidr),
                        _ => {}
                    }
                }
            }
            FeedEvent::Status(status) => {
                in_sync = status == Status::InSync;
                resolver.on_status(status);
            }
            // Waits for the store for as long as it takes; the follower has logged it.
            FeedEvent::Away(_) => {}
        }
        if !in_sync {
            continue;
        }
        resolver.flush()?;
        if resolver.is_datastore_ready() {
            break;
        }
        if !is_waiting {
            tracing::warn!(
                "the datastore is not ready to be used (datastoreReady of the ClusterInformation); waiting"
            );
            is_waiting = true;
        }
    }
    drop(follower);
    let config = resolver.config();
    let mut need = calc::network::EncapsulationNeed::new(encapsulation_settings(config));
    for (cidr, pool) in &pools {
        need.set_pool(*cidr, Some((&pool.ipip_mode, &pool.vxlan_mode)));
    }
    Ok(need.need())
}

fn settings_feed(host: &str, use_pod_cidr: bool) -> Vec<FollowedKind> {
    let all = follow::feeds::felix(follow::FelixOptions { kubernetes: false, use_pod_cidr, leader: true });
    let mut kinds: Vec<FollowedKind> = all
        .into_iter()
        .filter(|kind| match &kind.list {
            ListOptions::Resource { kind, .. } => {
                matches!(
                    kind,
                    Kind::ClusterInformation | Kind::FelixConfiguration | Kind::IPPool | Kind::Node
                )
            }
            _ => false,
        })
        .collect();
    for kind in &mut kinds {
        // Of all nodes only our own has settings for us.
        if let ListOptions::Resource { kind: Kind::Node, name, .. } = &mut kind.list {
            *name = Some(host.to_owned());
        }
    }
    kinds
}

/// The configuration of tunnels.
pub(crate) fn encapsulation_settings(config: &Config) -> calc::network::EncapsulationSettings {
    calc::network::EncapsulationSettings {
        ipip: config.ipip_enabled,
        vxlan: config.vxlan_enabled,
        program_no_encap_routes: config.programs_no_encap_routes(),
    }
}
