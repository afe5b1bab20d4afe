//! What a feed must survive on every store: changes, restarts, compacted history.

use crate::recorder::Recorder;
use anyhow::{Result, ensure};
use api::{Kind, Resource};
use async_trait::async_trait;
use datastore::Backend;
use follow::feeds::{self, FelixOptions};
use model::feed::FeedKey;
use model::{Key, KvPair};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A store that can be broken.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// A backend with connections of its own.
    async fn backend(&self) -> Result<Arc<dyn Backend>>;
    /// Whether this is the Kubernetes API.
    fn is_kubernetes(&self) -> bool {
        false
    }
    /// The initial number of entries: more than one part of a list, where writing is cheap.
    fn entries(&self) -> usize {
        1500
    }
    /// Ends the server without warning.
    async fn stop(&self) -> Result<()>;
    /// Restarts it on the same data.
    async fn start(&self) -> Result<()>;
    /// Compacts all revisions before now.
    async fn compact(&self) -> Result<()>;
}

/// A global network set that contains its version.
pub(crate) fn set(name: &str, version: &str) -> Result<KvPair> {
    let object = serde_json::json!({
        "metadata": {
            "name": name, "labels": {"version": version}, "uid": "11111111-2222-4333-8444-555555555555",
            "creationTimestamp": "2026-11-15T12:00:00Z",
        },
        "spec": {"nets": ["10.0.0.0/8"]},
    });
    Ok(KvPair::resource(Resource::from_value(Kind::GlobalNetworkSet, object)?))
}

pub(crate) fn set_key(name: &str) -> Key {
    Key::resource(Kind::GlobalNetworkSet, "", name)
}

/// Writes with as much patience as a freshly started store needs.
async fn write(backend: &dyn Backend, entry: &KvPair) -> Result<()> {
    for _ in 0..100 {
        match backend.apply(entry).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    backend.apply(entry).await?;
    Ok(())
}

/// Follows Felix's feed through everything that can happen.
pub(crate) async fn survive(store: &dyn Fixture) -> Result<()> {
    let backend = store.backend().await?;
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    for number in 0..store.entries() {
        let name = format!("set-{number}");
        write(&*backend, &set(&name, "0")?).await?;
        expected.insert(name, "0".to_owned());
    }
    let options = FelixOptions { kubernetes: store.is_kubernetes(), use_pod_cidr: false, leader: true };
    let (recorder, follower) = Recorder::follow(&store.backend().await?, feeds::felix(options));
    recorder.wait_in_sync().await?;
    ensure!(recorder.known().sets() == expected, "the first list");

    let mut deleted = Vec::new();
    for round in 1..=4 {
        // While the watch is running.
        change(&*backend, &mut expected, &mut deleted, round * 10).await?;
        let wanted = expected.clone();
        recorder.wait("changes", |known| known.sets() == wanted).await?;
        // While the store is down, and right after, before or after the feed is back.
        store.stop().await?;
        tokio::time::sleep(std::time::Duration::from_millis(round * 300)).await;
        store.start().await?;
        change(&*backend, &mut expected, &mut deleted, round * 10 + 5).await?;
        if round % 2 == 0 {
            store.compact().await?;
        }
        let wanted = expected.clone();
        recorder.wait("changes around a restart", |known| known.sets() == wanted).await?;
        recorder.wait_in_sync().await?;
    }
    {
        let known = recorder.known();
        ensure!(known.complaints.is_empty(), "{:?}", known.complaints);
        let told: Vec<String> = known
            .deleted
            .iter()
            .filter_map(|key| match key {
                FeedKey::NetworkSet(name) => Some(name.clone()),
                _ => None,
            })
            .collect();
        // Entries that came and went while the feed was disconnected need not be reported; existing ones must not be
        // deleted.
        let wrong: Vec<&String> = told.iter().filter(|name| !deleted.contains(name)).collect();
        ensure!(wrong.is_empty(), "reported as deleted, but never were: {wrong:?}");
    }
    ensure!(follower.unreadable().count() == 0, "{:?}", follower.unreadable().objects());
    follower.stop().await;
    recorder.wait("the end of a feed withdraws what it reported", |known| known.values.is_empty()).await
}

/// Adds some entries, changes some, deletes some.
async fn change(
    backend: &dyn Backend,
    expected: &mut BTreeMap<String, String>,
    deleted: &mut Vec<String>,
    version: u64,
) -> Result<()> {
    for number in 0..10 {
        let (new, old) = (format!("new-{version}-{number}"), format!("set-{}", version + number));
        for name in [new.clone(), old] {
            write(backend, &set(&name, &version.to_string())?).await?;
            expected.insert(name, version.to_string());
        }
        let gone = if number % 2 == 0 { new } else { format!("set-{}", 60 + version + number) };
        if expected.remove(&gone).is_some() {
            backend.delete(&set_key(&gone), None).await?;
            deleted.push(gone);
        }
    }
    Ok(())
}
