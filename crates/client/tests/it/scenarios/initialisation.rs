//! Initialising a datastore.

use crate::stores::Store;
use api::{ClusterInformationSpec, TierSpec};
use client::ListQuery;

pub(super) async fn a_fresh_datastore_is_initialised(store: &dyn Store) {
    let client = store.client();
    client.ensure_initialized("v3.32.1", "k8s,bgp").await.expect("initialising");
    let information =
        client.resource::<ClusterInformationSpec>().get("", "default").await.expect("ClusterInformation");
    let expected_type = if store.is_kubernetes() { "k8s,bgp,kdd" } else { "k8s,bgp" };
    assert_eq!(information.spec.cluster_type, expected_type);
    assert_eq!(information.spec.calico_version, "v3.32.1");
    assert_eq!(information.spec.datastore_ready, Some(true));
    let guid = &information.spec.cluster_guid;
    assert!(guid.len() == 32 && guid.bytes().all(|byte| byte.is_ascii_hexdigit()), "{guid}");

    let tiers = client.resource::<TierSpec>().list(&ListQuery::all()).await.expect("tiers").items;
    let facts: Vec<(String, f64, String)> = tiers
        .iter()
        .map(|tier| {
            let action = tier.spec.default_action.as_ref().expect("an action").to_string();
            (tier.metadata.name.clone(), tier.spec.order.expect("an order").0, action)
        })
        .collect();
    let expected = [("default", 1e6, "Deny"), ("kube-admin", 1e3, "Pass"), ("kube-baseline", 1e7, "Pass")];
    assert_eq!(facts, expected.map(|(name, order, action)| (name.to_owned(), order, action.to_owned())));
}

pub(super) async fn repeated_initialisation_changes_only_what_is_new(store: &dyn Store) {
    let client = store.client();
    let informations = client.resource::<ClusterInformationSpec>();
    client.ensure_initialized("", "").await.expect("initialising");
    let first = informations.get("", "default").await.expect("ClusterInformation");
    client.ensure_initialized("", "").await.expect("initialising again");
    let same = informations.get("", "default").await.expect("ClusterInformation");
    assert_eq!(first, same, "nothing new, nothing written");

    informations
        .update_with_retry("", "default", |information| {
            information.spec.datastore_ready = Some(false);
            true
        })
        .await
        .expect("marking");
    client.ensure_initialized("v3.33.0", "typha,bgp").await.expect("initialising with more");
    let last = informations.get("", "default").await.expect("ClusterInformation");
    let expected_type = if store.is_kubernetes() { "kdd,typha,bgp" } else { "typha,bgp" };
    assert_eq!(last.spec.cluster_type, expected_type);
    assert_eq!((last.spec.calico_version.as_str(), last.spec.datastore_ready), ("v3.33.0", Some(false)));
    assert_eq!(last.spec.cluster_guid, first.spec.cluster_guid);
    assert_eq!(last.metadata.uid, first.metadata.uid);
    client.ensure_initialized("v3.34.0", "").await.expect("initialising as another version");
    let same = informations.get("", "default").await.expect("ClusterInformation");
    assert_eq!(same, last, "the version of the cluster is not a node's to change");
}
