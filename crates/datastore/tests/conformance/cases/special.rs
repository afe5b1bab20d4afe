//! Entries with rules of their own: the profile that always exists, entries that expire, Felix's reports, statuses.

use crate::harness::{Store, expect_error, name_of, next_event, sample, watch};
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use datastore::Error;
use model::{Key, KvPair, ListOptions};
use std::time::Duration;

pub(crate) async fn default_allow(store: &Store) -> Result<()> {
    let key = Key::resource(Kind::Profile, "", "projectcalico-default-allow");
    let read = store.backend.get(&key, None).await?;
    let json = serde_json::to_value(read.as_resource().context("no resource")?)?;
    for direction in ["ingress", "egress"] {
        ensure!(json["spec"][direction][0]["action"] == "Allow", "{json}");
    }
    let listed = store.backend.list(&ListOptions::resources(Kind::Profile), None).await?;
    let count = listed.items.iter().filter(|item| item.key == key).count();
    ensure!(count == 1, "listed {count} times");
    // A watch does not report it: it never changes.
    if store.abilities.stores_native_kinds {
        let mut events = watch(store, &ListOptions::resources(Kind::Profile), None).await?;
        store.backend.create(&KvPair::resource(sample(Kind::Profile, "k8s-pod-network")?)).await?;
        match next_event(&mut events).await? {
            datastore::WatchEvent::Added(entry) => {
                ensure!(name_of(&entry) == "k8s-pod-network", "{entry:?}");
            }
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(())
}

fn report(key: Key, ttl: Option<Duration>) -> Result<KvPair> {
    let json = br#"{"time":"2026-11-15T12:00:00Z","uptime":12.5,"first_update":false}"#;
    let value = model::decode(&key, json)?;
    Ok(KvPair { key, value, revision: String::new(), uid: None, ttl })
}

fn active() -> Key {
    Key::ActiveStatusReport { region: "no-region".into(), host: "node-a".into() }
}

/// Kubernetes has no such entries: there the write is refused as not supported.
async fn refused(store: &Store, entry: &KvPair) -> Result<()> {
    let outcome = store.backend.apply(entry).await;
    expect_error(outcome, "not supported", |error| matches!(error, Error::NotSupported { .. }))?;
    Ok(())
}

pub(crate) async fn time_to_live(store: &Store) -> Result<()> {
    let entry = report(active(), Some(Duration::from_secs(1)))?;
    if !store.abilities.status_entries {
        return refused(store, &entry).await;
    }
    let listed = store.backend.list(&ListOptions::StatusReports, None).await?;
    let mut events = watch(store, &ListOptions::StatusReports, Some(&listed.revision)).await?;
    store.backend.apply(&entry).await?;
    store.backend.get(&entry.key, None).await?;
    ensure!(matches!(next_event(&mut events).await?, datastore::WatchEvent::Added(_)));
    ensure!(
        matches!(next_event(&mut events).await?, datastore::WatchEvent::Deleted(old) if old.key == entry.key)
    );
    expect_error(store.backend.get(&entry.key, None).await, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

pub(crate) async fn status_reports(store: &Store) -> Result<()> {
    let last = Key::LastStatusReport { region: "no-region".into(), host: "node-a".into() };
    let entries = [
        report(active(), None)?,
        report(last, None)?,
        endpoint(Key::HostEndpointStatus { host: "node-a".into(), endpoint: "eth0".into() })?,
        endpoint(Key::WorkloadEndpointStatus {
            region: "no-region".into(),
            host: "node-a".into(),
            orchestrator: "k8s".into(),
            workload: "default/pod-1".into(),
            endpoint: "eth0".into(),
        })?,
    ];
    for entry in &entries {
        if !store.abilities.status_entries {
            refused(store, entry).await?;
            continue;
        }
        store.backend.apply(entry).await?;
        let read = store.backend.get(&entry.key, None).await?;
        ensure!(read.value == entry.value, "{read:?}");
    }
    if store.abilities.status_entries {
        for (options, count) in [
            (ListOptions::StatusReports, 2),
            (ListOptions::HostEndpointStatus { host: None }, 1),
            (ListOptions::WorkloadEndpointStatus { host: Some("node-a".into()) }, 1),
            (ListOptions::WorkloadEndpointStatus { host: Some("node-b".into()) }, 0),
        ] {
            let listed = store.backend.list(&options, None).await?;
            ensure!(listed.items.len() == count && listed.invalid.is_empty(), "{options}: {listed:?}");
        }
    }
    Ok(())
}

fn endpoint(key: Key) -> Result<KvPair> {
    let value = model::decode(&key, br#"{"status":"up"}"#)?;
    Ok(KvPair { key, value, revision: String::new(), uid: None, ttl: None })
}

pub(crate) async fn update_status(store: &Store) -> Result<()> {
    let created = store.backend.create(&KvPair::resource(sample(Kind::Tier, "security")?)).await?;
    let mut json = serde_json::to_value(created.as_resource().context("no resource")?)?;
    json["status"] = serde_json::json!({"conditions": [{
        "type": "Ready", "status": "True", "reason": "Made", "message": "", "lastTransitionTime": "2026-11-15T12:00:00Z",
    }]});
    let mut changed = created.clone();
    changed.value = model::Value::Resource(Resource::from_value(Kind::Tier, json)?);
    let updated = store.backend.update_status(&changed).await?;
    ensure!(updated.revision != created.revision, "the revision stays");
    let read = store.backend.get(&created.key, None).await?;
    let json = serde_json::to_value(read.as_resource().context("no resource")?)?;
    ensure!(json["status"]["conditions"][0]["type"] == "Ready", "{json}");
    expect_error(store.backend.update_status(&changed).await, "conflict", Error::is_conflict)?;
    Ok(())
}
