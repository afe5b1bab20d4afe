//! Watches when history is compacted, or the server goes away.

use crate::harness::{
    Store, final_error, labelled, name_of, network_set, network_sets, next_event, next_item, revision, short,
    watch,
};
use anyhow::{Context as _, Result, ensure};
use datastore::{Error, WatchEvent};
use std::time::Duration;

pub(crate) async fn compaction(store: &Store) -> Result<()> {
    let first = store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let mut entry = first.clone();
    for round in 0..20 {
        entry = store.backend.update(&labelled(&entry, &round.to_string())).await?;
    }
    store.fixture.compact().await?;
    let error = retry(|| async {
        let error = match watch(store, &network_sets("default"), Some(&first.revision)).await {
            Ok(mut events) => final_error(&mut events).await?,
            Err(error) => error.downcast::<Error>()?,
        };
        if error.is_transient() { Err(error.into()) } else { Ok(error) }
    })
    .await?;
    ensure!(error.is_expired(), "{error:?}");
    if store.abilities.reads_at_revision {
        let outcome = store.backend.list(&network_sets("default"), Some(&first.revision)).await;
        ensure!(matches!(&outcome, Err(error) if error.is_expired()), "{outcome:?}");
    }
    // The remedy is a new list, and a watch from there.
    let listed = retry(|| async { Ok(store.backend.list(&network_sets("default"), None).await?) }).await?;
    let mut events = watch(store, &network_sets("default"), Some(&listed.revision)).await?;
    store.backend.update(&labelled(&entry, "after")).await?;
    let next = next_event(&mut events).await?;
    ensure!(short(&next) == "modified one after", "{}", short(&next));
    Ok(())
}

pub(crate) async fn disconnect(store: &Store) -> Result<()> {
    let listed = store.backend.list(&network_sets("default"), None).await?;
    let mut events = watch(store, &network_sets("default"), Some(&listed.revision)).await?;
    let mut seen = Vec::new();
    for name in ["a", "b", "c"] {
        store.backend.create(&network_set("default", name, "10.0.0.0/8")?).await?;
        seen.push(next_event(&mut events).await?);
    }
    let last = revision(&seen[2]).to_owned();
    store.backend.create(&network_set("default", "d", "10.0.0.0/8")?).await?;
    store.fixture.stop().await?;
    // `d` may or may not have been delivered before the end; the end itself is an error, not silence.
    let (after, error) = until_error(&mut events).await?;
    ensure!(error.is_transient() && !error.is_expired(), "{error:?}");
    let outcome = store.backend.create(&network_set("default", "lost", "10.0.0.0/8")?).await;
    ensure!(matches!(&outcome, Err(error) if error.is_transient()), "a write without a server: {outcome:?}");
    store.fixture.start().await?;

    for name in ["e", "f"] {
        retry(|| async { Ok(store.backend.create(&network_set("default", name, "10.0.0.0/8")?).await?) })
            .await?;
    }
    let mut all: Vec<String> = seen.iter().chain(&after).map(short).collect();
    let continue_from = after.last().map_or(last, |event| revision(event).to_owned());
    let mut events =
        retry(|| async { watch(store, &network_sets("default"), Some(&continue_from)).await }).await;
    while all.len() < 6 {
        let item = match &mut events {
            Ok(events) => next_item(events).await?.context("the watch has ended")?,
            Err(error) => Err(std::mem::replace(error, anyhow::anyhow!("gone")).downcast::<Error>()?),
        };
        match item {
            Ok(event) => all.push(short(&event)),
            // A store must report what it no longer knows; then a list shows what a watch would have reported.
            Err(error) if error.is_expired() && !store.abilities.keeps_history => {
                let listed = store.backend.list(&network_sets("default"), None).await?;
                let missed = listed.items.iter().map(|item| format!("added {} ", name_of(item)));
                let missed: Vec<String> = missed.filter(|event| !all.contains(event)).collect();
                all.extend(missed);
                events = watch(store, &network_sets("default"), Some(&listed.revision)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let expected = ["added a ", "added b ", "added c ", "added d ", "added e ", "added f "];
    ensure!(all == expected, "{all:?}");
    Ok(())
}

async fn until_error(events: &mut datastore::Watch) -> Result<(Vec<WatchEvent>, Error)> {
    let mut before = Vec::new();
    loop {
        match next_item(events).await?.context("the watch ended without an error")? {
            Ok(event) => before.push(event),
            Err(error) => {
                ensure!(next_item(events).await?.is_none(), "the watch goes on after {error}");
                return Ok((before, error));
            }
        }
    }
}

/// Retries while the store reports a transient error, as every caller must.
async fn retry<T, F: Future<Output = Result<T>>>(attempt: impl Fn() -> F) -> Result<T> {
    let mut tries = 0;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => {
                tries += 1;
                let passes = error.downcast_ref::<Error>().is_some_and(Error::is_transient);
                if !passes || tries > 200 {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
