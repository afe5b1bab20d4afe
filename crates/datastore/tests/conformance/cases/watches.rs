//! Watches on a store that stays up: order, content, selection.

use crate::harness::{
    Store, labelled, network_set, network_set_key, network_sets, next_event, revision, short, watch,
};
use anyhow::{Result, ensure};
use api::Kind;
use model::ListOptions;

pub(crate) async fn from_revision(store: &Store) -> Result<()> {
    store.backend.create(&network_set("default", "before", "10.0.0.0/8")?).await?;
    let listed = store.backend.list(&network_sets("default"), None).await?;
    let one = store.backend.create(&labelled(&network_set("default", "one", "10.0.0.0/8")?, "1")).await?;
    let mut events = watch(store, &network_sets("default"), Some(&listed.revision)).await?;
    let two = store.backend.update(&labelled(&one, "2")).await?;
    store.backend.delete(&one.key, None).await?;
    store.backend.create(&labelled(&network_set("default", "one", "10.0.0.0/8")?, "3")).await?;

    let mut found = Vec::new();
    for _ in 0..4 {
        found.push(next_event(&mut events).await?);
    }
    let shorts: Vec<String> = found.iter().map(short).collect();
    ensure!(shorts == ["added one 1", "modified one 2", "deleted one 2", "added one 3"], "{shorts:?}");
    ensure!(revision(&found[0]) == one.revision && revision(&found[1]) == two.revision, "wrong revisions");
    ensure!(revision(&found[2]) != two.revision, "a deletion carries its own revision");

    // Resumed after the deletion, it shows only what came later.
    let mut resumed = watch(store, &network_sets("default"), Some(revision(&found[2]))).await?;
    let next = next_event(&mut resumed).await?;
    ensure!(short(&next) == "added one 3", "{}", short(&next));
    Ok(())
}

pub(crate) async fn without_revision(store: &Store) -> Result<()> {
    for name in ["a", "b"] {
        store.backend.create(&labelled(&network_set("default", name, "10.0.0.0/8")?, "old")).await?;
    }
    for revision in [None, Some("0")] {
        let mut events = watch(store, &network_sets("default"), revision).await?;
        let mut first = vec![short(&next_event(&mut events).await?), short(&next_event(&mut events).await?)];
        first.sort();
        ensure!(first == ["added a old", "added b old"], "{first:?}");
        let created =
            store.backend.create(&labelled(&network_set("default", "c", "10.0.0.0/8")?, "new")).await?;
        let next = next_event(&mut events).await?;
        ensure!(short(&next) == "added c new", "{}", short(&next));
        store.backend.delete(&created.key, None).await?;
        let next = next_event(&mut events).await?;
        ensure!(short(&next) == "deleted c new", "{}", short(&next));
    }
    Ok(())
}

pub(crate) async fn selections(store: &Store) -> Result<()> {
    store.fixture.namespace("other").await?;
    let listed = store.backend.list(&ListOptions::resources(Kind::NetworkSet), None).await?;
    let one_name = ListOptions::Resource {
        kind: Kind::NetworkSet,
        namespace: Some("default".into()),
        name: Some("one".into()),
        name_is_prefix: false,
    };
    let mut by_name = watch(store, &one_name, Some(&listed.revision)).await?;
    let mut by_namespace = watch(store, &network_sets("default"), Some(&listed.revision)).await?;
    let mut by_kind = watch(store, &ListOptions::resources(Kind::NetworkSet), Some(&listed.revision)).await?;
    for (namespace, name) in [("other", "one"), ("default", "one-more"), ("default", "one")] {
        store.backend.create(&network_set(namespace, name, "10.0.0.0/8")?).await?;
    }
    let next = next_event(&mut by_name).await?;
    ensure!(short(&next) == "added one ", "by name: {}", short(&next));
    for expected in ["added one-more ", "added one "] {
        let next = next_event(&mut by_namespace).await?;
        ensure!(short(&next) == expected, "by namespace: {}", short(&next));
    }
    for expected in ["added one ", "added one-more ", "added one "] {
        let next = next_event(&mut by_kind).await?;
        ensure!(short(&next) == expected, "by kind: {}", short(&next));
    }
    Ok(())
}

pub(crate) async fn dropped(store: &Store) -> Result<()> {
    for round in 0..50 {
        let events = watch(store, &network_sets("default"), None).await?;
        drop(events);
        if round % 10 == 0 {
            store.backend.apply(&network_set("default", "one", "10.0.0.0/8")?).await?;
        }
    }
    store.backend.get(&network_set_key("default", "one"), None).await?;
    Ok(())
}
