//! Many entries, and large ones.

use crate::harness::{
    Store, expect_error, name_of, network_set, network_set_key, network_sets, next_event, sample, short,
    watch,
};
use anyhow::{Result, ensure};
use api::{Kind, Resource};
use datastore::Error;
use futures::StreamExt as _;
use model::{KvPair, ListOptions};
use std::collections::BTreeSet;

const COUNT: usize = 10_000;

pub(crate) async fn ten_thousand(store: &Store) -> Result<()> {
    let writes = futures::stream::iter(0..COUNT).map(|index| async move {
        let net = format!("10.{}.{}.0/24", index / 256 % 256, index % 256);
        store.backend.create(&network_set("default", &format!("set-{index:05}"), &net)?).await?;
        anyhow::Ok(())
    });
    let mut writes = writes.buffer_unordered(64);
    while let Some(outcome) = writes.next().await {
        outcome?;
    }
    let listed = store.backend.list(&network_sets("default"), None).await?;
    ensure!(listed.items.len() == COUNT && listed.invalid.is_empty(), "{} entries", listed.items.len());
    ensure!(listed.items.windows(2).all(|pair| name_of(&pair[0]) < name_of(&pair[1])), "not in order");
    for (index, item) in listed.items.iter().enumerate() {
        let Some(Resource::NetworkSet(set)) = item.as_resource() else { anyhow::bail!("{item:?}") };
        let net = format!("10.{}.{}.0/24", index / 256 % 256, index % 256);
        ensure!(set.spec.nets.len() == 1 && set.spec.nets[0].as_str() == net, "{index}: {:?}", set.spec.nets);
    }
    // In parts it is the same list, of one revision.
    let all = ListOptions::resources(Kind::NetworkSet);
    let mut parts = store.backend.list_parts(&all, None).await?;
    let mut items = Vec::new();
    let mut revisions = BTreeSet::new();
    while let Some(part) = parts.next().await {
        let part = part?;
        revisions.insert(part.revision);
        items.extend(part.items);
        if revisions.len() == 1 && items.len() < COUNT {
            // Not part of that revision.
            store.backend.apply(&network_set("default", "zzz-later", "10.0.0.0/8")?).await?;
        }
    }
    ensure!(items == listed.items, "{} entries in parts", items.len());
    ensure!(revisions.len() == 1, "parts of several moments: {revisions:?}");
    if store.backend.get(&network_set_key("default", "zzz-later"), None).await.is_ok() {
        store.backend.delete(&network_set_key("default", "zzz-later"), None).await?;
    }
    let mut events = watch(store, &network_sets("default"), None).await?;
    let mut names = BTreeSet::new();
    for _ in 0..COUNT {
        let event = next_event(&mut events).await?;
        ensure!(names.insert(short(&event)), "{} came twice", short(&event));
    }
    ensure!(names.iter().all(|name| name.starts_with("added set-")), "something else than additions");
    store.backend.create(&network_set("default", "one-more", "10.0.0.0/8")?).await?;
    let next = next_event(&mut events).await?;
    ensure!(short(&next) == "added one-more ", "{}", short(&next));
    Ok(())
}

/// An entry whose JSON has about this length: one long text, which no schema limits.
fn large(name: &str, size: usize) -> Result<KvPair> {
    let mut information = sample(Kind::ClusterInformation, name)?;
    if let Resource::ClusterInformation(information) = &mut information {
        information.spec.cluster_type = "0123456789abcdef".repeat(size / 16);
    }
    Ok(KvPair::resource(information))
}

pub(crate) async fn size_limit(store: &Store) -> Result<()> {
    let all = ListOptions::resources(Kind::ClusterInformation);
    let fits = large("fits", store.abilities.request_limit * 9 / 10)?;
    let created = store.backend.create(&fits).await?;
    let read = store.backend.get(&created.key, None).await?;
    let (Some(Resource::ClusterInformation(written)), Some(Resource::ClusterInformation(read))) =
        (fits.as_resource(), read.as_resource())
    else {
        anyhow::bail!("not cluster information")
    };
    ensure!(written.spec == read.spec, "a large entry changed");
    for size in [store.abilities.request_limit * 11 / 10, store.abilities.request_limit * 4] {
        let outcome = store.backend.create(&large("too-large", size)?).await;
        let error = expect_error(outcome, "too large", |error| {
            matches!(error, Error::Datastore { transient: false, .. })
        })?;
        let text = error.to_string();
        ensure!(text.contains("too-large") && text.contains("large") && text.len() < 1000, "{text:.1000}");
    }
    // The store continues to work.
    store.backend.create(&large("small", 16)?).await?;
    let listed = store.backend.list(&all, None).await?;
    ensure!(listed.items.len() == 2, "{} entries", listed.items.len());
    Ok(())
}
