//! What should be: everything in the datastore that decides about packets, read for the `explain` evaluator.

use crate::settings::Variables;
use anyhow::{Context as _, Result};
use client::{Client, ClientConfig, DatastoreType, ListQuery};
use explain::Cluster;
use model::ListOptions;
use netlink::namespace::Namespace;
use std::path::Path;

/// Does something with a client of the lab's datastore, at the router.
///
/// # Errors
/// When the datastore cannot be opened, and what `work` fails with.
pub(crate) fn with_client<T: Send>(
    router: &Path,
    datastore: &Variables,
    work: impl AsyncFnOnce(&Client, DatastoreType) -> Result<T> + Send,
) -> Result<T> {
    let config = ClientConfig::from_environment(&daemon::Variables::new(datastore))?;
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
    for kind in Cluster::STORED {
        let list = client
            .list_any(kind, &ListQuery::all())
            .await
            .with_context(|| format!("reading every {kind}"))?;
        list.items.into_iter().for_each(|resource| cluster.add(resource));
        add_invalid(&mut cluster, list.invalid);
    }
    if datastore == DatastoreType::Kubernetes {
        for kind in Cluster::OF_KUBERNETES {
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

fn add_invalid(cluster: &mut Cluster, entries: Vec<client::InvalidEntry>) {
    for entry in entries {
        let readable_part = entry.salvaged.as_deref().and_then(model::KvPair::as_resource).cloned();
        cluster.add_unreadable(&entry.key, &entry.reason, readable_part);
    }
}
