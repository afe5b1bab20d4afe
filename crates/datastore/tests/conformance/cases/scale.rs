//! Many entries, and large ones.

use crate::harness::{Store, expect_error, name_of, network_set, network_sets, next_event, short, watch};
use anyhow::{Result, ensure};
use api::Resource;
use datastore::Error;
use futures::StreamExt as _;
use model::KvPair;
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

/// An entry whose JSON is about this long.
fn large(name: &str, size: usize) -> Result<KvPair> {
    let mut entry = network_set("default", name, "10.0.0.0/8")?;
    if let model::Value::Resource(Resource::NetworkSet(set)) = &mut entry.value {
        set.spec.nets = (0..size / 20).map(|index| large_net(index).into()).collect();
    }
    Ok(entry)
}

/// Text of always the same length.
fn large_net(index: usize) -> String {
    format!("1{:02}.1{:02}.1{:02}.128/25", index / 10_000 % 100, index / 100 % 100, index % 100)
}

pub(crate) async fn size_limit(store: &Store) -> Result<()> {
    let fits = large("fits", store.abilities.request_limit * 9 / 10)?;
    let created = store.backend.create(&fits).await?;
    let read = store.backend.get(&created.key, None).await?;
    let (Some(Resource::NetworkSet(written)), Some(Resource::NetworkSet(read))) =
        (fits.as_resource(), read.as_resource())
    else {
        anyhow::bail!("not a network set")
    };
    ensure!(written.spec == read.spec, "a large entry changed");
    for size in [store.abilities.request_limit * 11 / 10, store.abilities.request_limit * 4] {
        let outcome = store.backend.create(&large("too-large", size)?).await;
        let error = expect_error(outcome, "too large", |error| {
            matches!(error, Error::Datastore { transient: false, .. })
        })?;
        let text = error.to_string();
        ensure!(text.contains("NetworkSet(default/too-large)") && text.contains("large"), "{text}");
    }
    // And the store goes on.
    store.backend.create(&network_set("default", "small", "10.0.0.0/8")?).await?;
    let listed = store.backend.list(&network_sets("default"), None).await?;
    ensure!(listed.items.len() == 2, "{} entries", listed.items.len());
    Ok(())
}
