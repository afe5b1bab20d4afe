//! Watches on a real etcd: from now, from a revision, across a server restart, and from a past that is gone; and
//! readiness without etcd.

use crate::world::{World, open_app};
use anyhow::Result;
use daemon::ShutdownHandle;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

async fn set(world: &World, name: &str, label: &str) -> Result<u64> {
    let body = json!({"metadata": {"name": name, "labels": {"l": label}}, "spec": {}}).to_string();
    let (code, made) = world.ask("POST", "globalnetworksets", &body).await?;
    assert_eq!(code, 201, "{made}");
    Ok(made["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?)
}

async fn relabel(world: &World, name: &str, label: &str) -> Result<()> {
    let patch = json!({"metadata": {"labels": {"l": label}}}).to_string();
    let path = format!("globalnetworksets/{name}");
    let (code, answer) = world.ask_with("PATCH", &path, "application/merge-patch+json", "", &patch).await?;
    assert_eq!(code, 200, "{answer}");
    Ok(())
}

#[tokio::test]
async fn existing_objects_and_changes() -> Result<()> {
    let w = World::start().await?;
    let first = set(&w, "a", "x").await?;
    let mut from_now = w.watch("globalnetworksets?watch=1").await?;
    let mut resumed = w.watch(&format!("globalnetworksets?watch=1&resourceVersion={first}")).await?;
    let mut selected = w.watch("globalnetworksets?watch=1&labelSelector=l%3Dx").await?;
    let mut named = w.watch("globalnetworksets?watch=1&fieldSelector=metadata.name%3Db").await?;
    set(&w, "b", "x").await?;
    relabel(&w, "b", "y").await?;
    w.ask("DELETE", "globalnetworksets/a", "").await?;
    w.ask("DELETE", "globalnetworksets/b", "").await?;
    let all = ["ADDED b", "MODIFIED b", "DELETED a", "DELETED b"];
    assert_eq!(from_now.words(5).await?, [&["ADDED a"], all.as_slice()].concat());
    assert_eq!(resumed.words(4).await?, all);
    assert_eq!(selected.words(4).await?, ["ADDED a", "ADDED b", "DELETED b", "DELETED a"]);
    assert_eq!(named.words(3).await?, ["ADDED b", "MODIFIED b", "DELETED b"]);
    Ok(())
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() -> Result<()> {
    let w = World::start().await?;
    set(&w, "a", "x").await?;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = w.watch(&format!("globalnetworksets?{query}")).await?;
    assert_eq!(watch.words(1).await?, ["ADDED a"]);
    let mark = watch.next().await?.expect("a bookmark");
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark.pointer("/object/metadata/annotations/k8s.io~1initial-events-end"), Some(&json!("true")));
    set(&w, "b", "x").await?;
    assert_eq!(watch.words(1).await?, ["ADDED b"]);
    Ok(())
}

#[tokio::test]
async fn a_new_server_resumes_where_the_old_one_ended() -> Result<()> {
    let mut w = World::start().await?;
    let first = set(&w, "a", "x").await?;
    set(&w, "b", "x").await?;
    w.ask("DELETE", "globalnetworksets/a", "").await?;
    // A server without any history.
    let (handle, shutdown) = ShutdownHandle::new();
    w.app = open_app(&w.etcd, shutdown).await?;
    let path = format!("globalnetworksets?watch=1&resourceVersion={first}");
    let mut watch = w.watch(&path).await?;
    assert_eq!(watch.words(2).await?, ["ADDED b", "DELETED a"]);
    set(&w, "c", "x").await?;
    assert_eq!(watch.words(1).await?, ["ADDED c"]);
    // A watch that ends closes its stream.
    handle.request();
    assert!(watch.next().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn revisions_of_the_past_and_the_future_are_refused() -> Result<()> {
    let mut w = World::start().await?;
    let first = set(&w, "a", "x").await?;
    for number in 0..5 {
        relabel(&w, "a", &number.to_string()).await?;
    }
    let (_, listed) = w.ask("GET", "globalnetworksets", "").await?;
    let now: i64 = listed["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
    let etcdctl = testkit::program("etcdctl", "install Debian's etcd-client")?;
    let output = std::process::Command::new(etcdctl)
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &w.etcd.endpoint(), "compact", &now.to_string()])
        .output()?;
    assert!(output.status.success(), "{output:?}");
    let (_handle, shutdown) = ShutdownHandle::new();
    w.app = open_app(&w.etcd, shutdown).await?;
    let past = format!("globalnetworksets?watch=1&resourceVersion={first}");
    let gone = match w.watch(&past).await {
        Err(refused) => refused.to_string(),
        Ok(mut watch) => watch.next().await?.unwrap_or(Value::Null).to_string(),
    };
    assert!(gone.contains("410") && gone.contains("Expired"), "{gone}");
    let future = w.watch("globalnetworksets?watch=1&resourceVersion=99999999").await;
    assert!(future.err().is_some_and(|error| error.to_string().contains("504")));
    Ok(())
}

#[tokio::test]
async fn a_store_outage_neither_loses_nor_duplicates_changes() -> Result<()> {
    let mut w = World::start().await?;
    set(&w, "a", "x").await?;
    let mut watch = w.watch("globalnetworksets?watch=1").await?;
    assert_eq!(watch.words(1).await?, ["ADDED a"]);
    w.etcd.kill();
    w.etcd.restart()?;
    let other = crate::world::client(&w.etcd).await?;
    for name in ["b", "c"] {
        let object = api::Object::new("", name, api::GlobalNetworkSetSpec::default());
        other.resource::<api::GlobalNetworkSetSpec>().create(object).await?;
    }
    assert_eq!(watch.words(2).await?, ["ADDED b", "ADDED c"]);
    Ok(())
}

/// Waits until `/readyz` answers with this code.
async fn wait_for_readiness(w: &World, code: u16) -> Result<()> {
    testkit::eventually_async("readiness", async || anyhow::Ok(w.ask("GET", "/readyz", "").await?.0 == code))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_is_truthful() -> Result<()> {
    let mut w = World::start().await?;
    wait_for_readiness(&w, 200).await?;
    w.app.is_initialized.store(false, Ordering::Relaxed);
    assert_eq!(w.ask("GET", "/readyz", "").await?.0, 500, "before the datastore was initialised");
    w.app.is_initialized.store(true, Ordering::Relaxed);
    w.etcd.kill();
    wait_for_readiness(&w, 500).await?;
    assert_eq!(w.ask("GET", "/livez", "").await?.0, 200, "a restart would not help");
    w.etcd.restart()?;
    wait_for_readiness(&w, 200).await
}
