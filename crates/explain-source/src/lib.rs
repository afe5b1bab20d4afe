//! Reads the cluster for explanations from a datastore: every object that decides about packets.
//!
//! An unreadable object is a problem of the cluster, and counts with its readable part. Nothing is cached.

use api::Kind;
use client::{Client, ListQuery};
use datastore::{Error, InvalidEntry};
use explain::Cluster;
use model::{KvPair, ListOptions};

/// The store could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read every {kind}: {source}")]
pub struct ReadError {
    kind: Kind,
    /// The datastore's error.
    pub source: Error,
}

/// Reads the cluster. [`Cluster::complete`] is left to the caller, who may add to it first.
///
/// # Errors
/// When the store cannot be reached, or a kind that every store has cannot be read.
pub async fn read(client: &Client) -> Result<Cluster, ReadError> {
    let mut cluster = Cluster::new();
    for kind in Cluster::STORED {
        let list = client.list_any(kind, &ListQuery::all()).await;
        let list = list.map_err(|source| ReadError { kind, source })?;
        list.items.into_iter().for_each(|resource| cluster.add(resource));
        add_invalid(&mut cluster, list.invalid);
    }
    let of_kubernetes = client.backend().is_kubernetes().then_some(Cluster::OF_KUBERNETES);
    for kind in of_kubernetes.into_iter().flatten() {
        match client.backend().list(&ListOptions::resources(kind), None).await {
            Ok(list) => {
                let resources = list.items.iter().filter_map(KvPair::as_resource);
                resources.for_each(|resource| cluster.add(resource.clone()));
                add_invalid(&mut cluster, list.invalid);
            }
            // A cluster without the definition of a kind has no objects of it.
            Err(Error::DoesNotExist { .. }) => {}
            // Some users may read policies but not services: report that, and answer what can be answered.
            Err(error @ Error::Unauthorized { .. }) => {
                cluster.add_problem(format!("{kind} objects cannot be read: {error}"));
            }
            Err(source) => return Err(ReadError { kind, source }),
        }
    }
    Ok(cluster)
}

fn add_invalid(cluster: &mut Cluster, entries: Vec<InvalidEntry>) {
    for entry in entries {
        let readable_part = entry.salvaged.as_deref().and_then(KvPair::as_resource).cloned();
        cluster.add_unreadable(&entry.key, &entry.reason, readable_part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvstore_engine::{Options, PutRequest, Store};
    use std::sync::Arc;

    #[tokio::test]
    async fn unreadable_objects_are_problems_of_the_cluster() {
        let folder = testkit::Folder::new("explain-source").unwrap();
        let store = Store::open(folder.path().join("data"), Options::default()).unwrap();
        let set = r#"{"kind":"GlobalNetworkSet","metadata":{"name":"good"},"spec":{"nets":["10.0.0.0/8"]}}"#;
        for (place, value) in [("globalnetworksets/good", set), ("globalnetworkpolicies/broken", "{")] {
            let key = format!("/calico/resources/v3/projectcalico.org/{place}").into_bytes().into();
            let put = PutRequest { key, value: value.as_bytes().to_vec().into(), ..Default::default() };
            store.put(put).await.unwrap();
        }
        let client = Client::new(Arc::new(datastore::etcd::EtcdBackend::embedded(store)));
        let cluster = read(&client).await.unwrap();
        assert!(cluster.get(Kind::GlobalNetworkSet, "", "good").is_some());
        let problems: Vec<&String> = cluster.problems().iter().collect();
        assert!(
            matches!(problems.as_slice(), [one] if one.contains("broken cannot be read")),
            "{problems:?}"
        );
    }
}
