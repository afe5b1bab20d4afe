//! The rules that apply to all kinds.

use super::{initialised, refusal, refused_fields};
use crate::stores::Store;
use api::meta::Time;
use api::{GlobalNetworkSet, GlobalNetworkSetSpec, Kind, NetworkSet, NetworkSetSpec, Resource, TierSpec};
use client::{DeleteOptions, Error, ListQuery, ResourceEvent};
use futures::StreamExt as _;

fn set(name: &str) -> GlobalNetworkSet {
    GlobalNetworkSet::new("", name, GlobalNetworkSetSpec::default())
}

pub(super) async fn metadata_rules_hold_for_every_kind(store: &dyn Store) {
    let client = store.client();
    let (cluster, namespaced) =
        (client.resource::<GlobalNetworkSetSpec>(), client.resource::<NetworkSetSpec>());

    assert_eq!(refused_fields(cluster.create(set("")).await), ["metadata.name"]);
    let mut generated = set("");
    generated.metadata.generate_name = "gen-".into();
    assert!(refusal(cluster.create(generated).await, "metadata.name").contains("generateName"));
    let mut versioned = set("a");
    versioned.metadata.resource_version = "12".into();
    assert_eq!(refused_fields(cluster.create(versioned).await), ["metadata.resourceVersion"]);
    assert_eq!(refused_fields(cluster.create(set("Not_A_Name")).await), ["metadata.name"]);
    let mut misplaced = set("a");
    misplaced.metadata.namespace = "shop".into();
    assert_eq!(refused_fields(cluster.create(misplaced).await), ["metadata.namespace"]);
    let homeless = NetworkSet::new("", "a", NetworkSetSpec::default());
    assert_eq!(refused_fields(namespaced.create(homeless).await), ["metadata.namespace"]);
    assert_eq!(refused_fields(namespaced.get("", "a").await), ["metadata.namespace"]);
    assert_eq!(
        refused_fields(cluster.delete("shop", "a", &DeleteOptions::default()).await),
        ["metadata.namespace"]
    );
    assert!(matches!(cluster.get("", "").await, Err(Error::InsufficientIdentifiers { .. })));

    let created = cluster.create(set("a")).await.expect("creating");
    assert!(!created.metadata.uid.is_empty() && !created.metadata.resource_version.is_empty());
    let time = created.metadata.creation_timestamp.as_ref().expect("a time");
    assert!(time.parse().is_ok() && time.as_str().len() == 20, "{time}");

    let bare = set("a");
    let needed = ["metadata.resourceVersion", "metadata.creationTimestamp", "metadata.uid"];
    assert_eq!(refused_fields(cluster.update(bare.clone()).await), needed);
    assert_eq!(refused_fields(cluster.update_status(bare).await), needed);

    // A uid and a time chosen by the caller are kept, as a migration between stores needs it. Not on Kubernetes, whose
    // objects have their own.
    if !store.is_kubernetes() {
        let mut imported = set("imported");
        imported.metadata.uid = "d6f380a0-9f06-4e05-855e-dc64de755c9d".into();
        imported.metadata.creation_timestamp = Some(Time::new("2020-01-02T03:04:05Z"));
        let stored = cluster.create(imported.clone()).await.expect("importing");
        assert_eq!(stored.metadata.uid, imported.metadata.uid);
        assert_eq!(stored.metadata.creation_timestamp, imported.metadata.creation_timestamp);
    }
}

pub(super) async fn revisions_guard_updates_and_deletions(store: &dyn Store) {
    let sets = store.client().resource::<GlobalNetworkSetSpec>();
    let first = sets.create(set("guarded")).await.expect("creating");
    assert!(matches!(sets.create(set("guarded")).await, Err(Error::AlreadyExists { .. })));

    let mut changed = first.clone();
    changed.metadata.labels.insert("colour".into(), "orange".into());
    let second = sets.update(changed.clone()).await.expect("updating");
    assert_ne!(first.metadata.resource_version, second.metadata.resource_version);
    assert_eq!(second.metadata.uid, first.metadata.uid);
    assert!(matches!(sets.update(changed).await, Err(Error::UpdateConflict { .. })));

    let stale = DeleteOptions::at(&first.metadata.resource_version);
    assert!(matches!(sets.delete("", "guarded", &stale).await, Err(Error::UpdateConflict { .. })));
    let current = DeleteOptions::at(&second.metadata.resource_version);
    let deleted = sets.delete("", "guarded", &current).await.expect("deleting");
    assert_eq!(deleted.metadata.labels, second.metadata.labels);
    assert!(matches!(sets.get("", "guarded").await, Err(Error::DoesNotExist { .. })));
    assert!(matches!(sets.update(second).await, Err(Error::DoesNotExist { .. })));
    assert!(matches!(
        sets.delete("", "guarded", &DeleteOptions::default()).await,
        Err(Error::DoesNotExist { .. })
    ));
}

pub(super) async fn uids_guard_deletions(store: &dyn Store) {
    let sets = store.client().resource::<GlobalNetworkSetSpec>();
    let old = sets.create(set("again")).await.expect("creating");
    sets.delete("", "again", &DeleteOptions::default()).await.expect("deleting");
    let new = sets.create(set("again")).await.expect("creating again");
    let by_uid = |uid: &str| DeleteOptions { uid: Some(uid.to_owned()), revision: None };
    assert!(matches!(
        sets.delete("", "again", &by_uid(&old.metadata.uid)).await,
        Err(Error::DoesNotExist { .. })
    ));
    sets.delete("", "again", &by_uid(&new.metadata.uid)).await.expect("deleting by uid");
}

pub(super) async fn competing_updates_lose_nothing(store: &dyn Store) {
    const WRITERS: usize = 6;
    const WRITES: usize = 4;
    let client = store.client();
    client.resource::<GlobalNetworkSetSpec>().create(set("counter")).await.expect("creating");
    let writers = (0..WRITERS).map(|writer| {
        let client = client.clone();
        tokio::spawn(async move {
            for write in 0..WRITES {
                let label = format!("w{writer}-{write}");
                client
                    .resource::<GlobalNetworkSetSpec>()
                    .update_with_retry("", "counter", |set| {
                        set.metadata.labels.insert(label.clone(), "done".into());
                        true
                    })
                    .await
                    .expect("updating");
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.expect("a writer");
    }
    let sets = client.resource::<GlobalNetworkSetSpec>();
    let counter = sets.get("", "counter").await.expect("reading");
    assert_eq!(counter.metadata.labels.len(), WRITERS * WRITES);
    let untouched = sets.update_with_retry("", "counter", |_| false).await.expect("nothing to do");
    assert_eq!(untouched.metadata.resource_version, counter.metadata.resource_version);
}

pub(super) async fn a_watch_reports_changes(store: &dyn Store) {
    let client = initialised(store).await;
    let tiers = client.resource::<TierSpec>();
    let list = tiers.list(&ListQuery::all()).await.expect("listing");
    let mut events = tiers.watch(&ListQuery::all().at(&list.revision)).await.expect("watching");
    let mut created =
        tiers.create(api::Tier::new("", "watched", TierSpec::default())).await.expect("creating");
    created.metadata.labels.insert("a".into(), "b".into());
    tiers.update(created).await.expect("updating");
    tiers.delete("", "watched", &DeleteOptions::default()).await.expect("deleting");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = tokio::time::timeout(std::time::Duration::from_secs(30), events.next());
        match event.await.expect("an event in time").expect("the watch goes on").expect("no error") {
            ResourceEvent::Added(tier) => seen.push(("added", tier)),
            ResourceEvent::Modified { new, .. } => seen.push(("modified", new)),
            ResourceEvent::Deleted(tier) => seen.push(("deleted", tier)),
            ResourceEvent::Bookmark(_) => {}
            ResourceEvent::Invalid(entry) => panic!("{entry:?}"),
        }
    }
    let words: Vec<&str> = seen.iter().map(|(word, _)| *word).collect();
    assert_eq!(words, ["added", "modified", "deleted"]);
    assert!(seen.iter().all(|(_, tier)| tier.metadata.name == "watched"));
    assert!(seen.iter().all(|(_, tier)| !tier.metadata.resource_version.is_empty()));
}

pub(super) async fn lists_select_by_namespace_and_name(store: &dyn Store) {
    let sets = store.client().resource::<NetworkSetSpec>();
    for (namespace, name) in [("shop", "a-1"), ("shop", "a-2"), ("shop", "b"), ("default", "a-1")] {
        sets.create(NetworkSet::new(namespace, name, NetworkSetSpec::default())).await.expect("creating");
    }
    let names = |query: ListQuery| async move {
        let list = sets.list(&query).await.expect("listing");
        assert!(list.invalid.is_empty() && !list.revision.is_empty());
        let names =
            list.items.into_iter().map(|set| format!("{}/{}", set.metadata.namespace, set.metadata.name));
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(ListQuery::all()).await, ["default/a-1", "shop/a-1", "shop/a-2", "shop/b"]);
    assert_eq!(names(ListQuery::in_namespace("shop")).await, ["shop/a-1", "shop/a-2", "shop/b"]);
    let one = ListQuery { name: Some("b".into()), ..ListQuery::in_namespace("shop") };
    assert_eq!(names(one).await, ["shop/b"]);
    assert_eq!(names(ListQuery::in_namespace("empty")).await, Vec::<String>::new());
}

pub(super) async fn status_is_written(store: &dyn Store) {
    let tiers = store.client().resource::<TierSpec>();
    let mut tier =
        tiers.create(api::Tier::new("", "with-status", TierSpec::default())).await.expect("creating");
    tier.status.conditions.push(api::meta::Condition {
        kind: "Ready".into(),
        status: "True".into(),
        last_transition_time: Some(Time::new("2026-01-02T03:04:05Z")),
        reason: "Tested".into(),
        message: "by a test".into(),
        ..Default::default()
    });
    tiers.update_status(tier).await.expect("updating the status");
    let read = tiers.get("", "with-status").await.expect("reading");
    assert_eq!(read.status.conditions.len(), 1);
    assert_eq!(read.status.conditions[0].reason, "Tested");
}

pub(super) async fn any_object_of_every_kind_is_refused_without_a_name(store: &dyn Store) {
    for kind in Kind::ALL {
        let empty = Resource::from_value(*kind, serde_json::json!({})).expect("an empty object");
        let outcome = store.client().create_any(empty).await;
        if kind.info().stored {
            assert!(matches!(outcome, Err(Error::Validation(_))), "{kind}: {outcome:?}");
        } else {
            assert!(matches!(outcome, Err(Error::NotSupported { .. })), "{kind}: {outcome:?}");
        }
    }
}
