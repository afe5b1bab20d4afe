//! Entries that cannot be read: they are reported by name, and affect nothing else.

use crate::harness::{
    Store, expect_error, network_set, network_set_key, network_sets, next_event, short, watch,
};
use anyhow::{Context as _, Result, ensure};
use datastore::{Error, WatchEvent};

pub(crate) async fn lists(store: &Store) -> Result<()> {
    store.backend.create(&network_set("default", "good", "10.0.0.0/8")?).await?;
    let bad = network_set_key("default", "bad");
    store.fixture.put_unreadable(&bad).await?;
    let listed = store.backend.list(&network_sets("default"), None).await?;
    ensure!(listed.items.len() == 1, "{:?}", listed.items);
    ensure!(listed.invalid.len() == 1, "{:?}", listed.invalid);
    let reported = &listed.invalid[0];
    ensure!(reported.key.ends_with("networksets/default/bad"), "{reported:?}");
    ensure!(reported.parsed_key.as_ref() == Some(&bad) && !reported.reason.is_empty(), "{reported:?}");
    let outcome = store.backend.get(&bad, None).await;
    let error = expect_error(outcome, "a parse error", |error| matches!(error, Error::Parse { .. }))?;
    ensure!(error.to_string().contains("bad"), "{error}");
    // It can be removed, and replaced.
    store.backend.delete(&bad, None).await.context("delete of an unreadable entry")?;
    let listed = store.backend.list(&network_sets("default"), None).await?;
    ensure!(listed.invalid.is_empty(), "{:?}", listed.invalid);
    Ok(())
}

pub(crate) async fn watches(store: &Store) -> Result<()> {
    let bad = network_set_key("default", "bad");
    let listed = store.backend.list(&network_sets("default"), None).await?;
    let mut events = watch(store, &network_sets("default"), Some(&listed.revision)).await?;
    store.fixture.put_unreadable(&bad).await?;
    store.backend.create(&network_set("default", "good", "10.0.0.0/8")?).await?;
    let next = next_event(&mut events).await?;
    let WatchEvent::Invalid(reported) = &next else { anyhow::bail!("{next:?}") };
    ensure!(reported.key.ends_with("networksets/default/bad"), "{reported:?}");
    let next = next_event(&mut events).await?;
    ensure!(short(&next) == "added good ", "{}", short(&next));
    store.backend.delete(&bad, None).await?;
    let next = next_event(&mut events).await?;
    ensure!(short(&next) == "deleted bad ", "{}", short(&next));

    // A watch that begins with the existing entries reports it, too.
    store.fixture.put_unreadable(&bad).await?;
    let mut events = watch(store, &network_sets("default"), None).await?;
    let mut first = vec![short(&next_event(&mut events).await?), short(&next_event(&mut events).await?)];
    first.sort();
    ensure!(first[0] == "added good " && first[1].starts_with("invalid "), "{first:?}");
    Ok(())
}
