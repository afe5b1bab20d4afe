//! What should be: everything in the datastore that decides about packets, read for the `explain` evaluator.

use crate::settings::Variables;
use anyhow::{Context as _, Result};
use api::{Kind, Resource};
use client::config::Environment;
use client::{Client, ClientConfig, DatastoreType, ListQuery};
use explain::Cluster;
use model::ListOptions;
use netlink::namespace::Namespace;
use std::ffi::OsString;
use std::path::Path;

/// What every datastore has.
const STORED: [Kind; 14] = [
    Kind::FelixConfiguration,
    Kind::GlobalNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::HostEndpoint,
    Kind::IPPool,
    Kind::NetworkPolicy,
    Kind::NetworkSet,
    Kind::Node,
    Kind::Profile,
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::Tier,
    Kind::WorkloadEndpoint,
];

/// What Kubernetes alone has.
const OF_KUBERNETES: [Kind; 4] = [
    Kind::KubernetesNetworkPolicy,
    Kind::KubernetesClusterNetworkPolicy,
    Kind::KubernetesService,
    Kind::KubernetesEndpointSlice,
];

/// The lab's variables as an environment; files are the machine's, except that nobody's default file counts.
struct LabEnvironment<'a>(&'a Variables);

impl Environment for LabEnvironment<'_> {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).map(OsString::from)
    }

    fn read_file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

/// Does something with a client of the lab's datastore, at the router.
///
/// # Errors
/// When the datastore cannot be opened, and what `work` fails with.
pub(crate) fn with_client<T: Send>(
    router: &Path,
    datastore: &Variables,
    work: impl AsyncFnOnce(&Client, DatastoreType) -> Result<T> + Send,
) -> Result<T> {
    let config = ClientConfig::from_environment(&LabEnvironment(datastore))?;
    let namespace = Namespace::open(router)?;
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("preparing a client")?;
        runtime.block_on(async {
            let client = Client::open(&config).await?;
            work(&client, config.datastore_type).await
        })
    })?
}

/// Reads the cluster.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn cluster(client: &Client, datastore: DatastoreType) -> Result<Cluster> {
    let mut cluster = Cluster::new();
    for kind in STORED {
        let list = client
            .list_any(kind, &ListQuery::all())
            .await
            .with_context(|| format!("reading every {kind}"))?;
        list.items.into_iter().for_each(|resource| cluster.add(resource));
        add_invalid(&mut cluster, list.invalid);
    }
    if datastore == DatastoreType::Kubernetes {
        for kind in OF_KUBERNETES {
            let list = match client.backend().list(&ListOptions::resources(kind), None).await {
                Ok(list) => list,
                // A cluster without the definition has no objects of it.
                Err(client::Error::DoesNotExist { .. }) => continue,
                Err(error) => return Err(error).with_context(|| format!("reading every {kind}")),
            };
            for resource in list.items.iter().filter_map(model::KvPair::as_resource) {
                cluster.add(resource.clone());
            }
            add_invalid(&mut cluster, list.invalid);
        }
    }
    cluster.complete();
    Ok(cluster)
}

/// What cannot be read counts as Felix counts it: with the part that can be, which restricts at least as much.
fn add_invalid(cluster: &mut Cluster, entries: Vec<client::InvalidEntry>) {
    for entry in entries {
        cluster.add_problem(format!("{} cannot be read: {}", entry.key, entry.reason));
        let salvaged: Option<Resource> =
            entry.salvaged.as_deref().and_then(model::KvPair::as_resource).cloned();
        if let Some(resource) = salvaged {
            cluster.add(resource);
        }
    }
}
