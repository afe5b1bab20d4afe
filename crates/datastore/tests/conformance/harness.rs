//! Runs the whole suite on one store and reports every case by name; plus the small helpers that all cases use.

use crate::cases;
use crate::fixture::{Abilities, Fixture};
use anyhow::{Context as _, Result, bail, ensure};
use api::{Kind, Resource};
use datastore::{Backend, Error, Watch, WatchEvent, WatchOptions};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use model::{Key, KvPair, ListOptions};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A hung store is a failure, not a hung test run. Nothing is asserted about speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// One case of the suite.
pub(crate) type Case = (&'static str, for<'a> fn(&'a Store) -> BoxFuture<'a, Result<()>>);

/// The store under test, as the cases see it.
pub(crate) struct Store {
    /// How to break it.
    pub(crate) fixture: Arc<dyn Fixture>,
    /// The backend under test.
    pub(crate) backend: Arc<dyn Backend>,
    /// Its abilities.
    pub(crate) abilities: Abilities,
}

/// Runs every case, prints each, and fails with the list of failed ones.
pub(crate) async fn run(name: &str, fixture: Arc<dyn Fixture>) -> Result<()> {
    let backend = fixture.backend().await?;
    backend.ensure_ready().await.context("the store is not ready")?;
    let store = Store { abilities: fixture.abilities(), fixture, backend };
    let only = std::env::var("TORTIE_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut passed = 0;
    for (case, body) in cases::ALL.iter().filter(|(case, _)| case.contains(only.as_str())) {
        let begin = Instant::now();
        let outcome = match tokio::time::timeout(PATIENCE * 4, body(&store)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("the case did not end")),
        };
        let took = begin.elapsed().as_millis();
        match outcome {
            Ok(()) => {
                passed += 1;
                eprintln!("conformance {name}: ok {case} ({took} ms)");
            }
            Err(error) => {
                eprintln!("conformance {name}: FAILED {case} ({took} ms): {error:#}");
                failures.push(*case);
            }
        }
        store.backend.clean().await.with_context(|| format!("cleaning after {case}"))?;
    }
    eprintln!("conformance {name}: {passed} of {} cases passed", passed + failures.len());
    ensure!(failures.is_empty(), "{name}: {} cases failed: {}", failures.len(), failures.join(", "));
    ensure!(passed > 0, "no case is called '{only}'");
    Ok(())
}

/// A resource of this kind, with a spec from the table of samples.
pub(crate) fn sample(kind: Kind, name: &str) -> Result<Resource> {
    let (mut object, namespace) = sample_json(kind)?;
    object["metadata"]["name"] = name.into();
    if kind.is_namespaced() {
        object["metadata"]["namespace"] = namespace.into();
    }
    Ok(Resource::from_value(kind, object)?)
}

/// The name that the table of samples gives a kind.
pub(crate) fn sample_name(kind: Kind) -> Result<String> {
    Ok(sample_json(kind)?.0["metadata"]["name"].as_str().context("no name")?.to_owned())
}

fn sample_json(kind: Kind) -> Result<(Value, String)> {
    let samples: Value = serde_json::from_str(include_str!("../data/kinds.json"))?;
    let sample =
        samples.get(kind.as_str()).with_context(|| format!("tests/data/kinds.json has no {kind}"))?;
    let uid = "11111111-2222-4333-8444-555555555555";
    let metadata = json!({"name": sample["name"], "uid": uid, "creationTimestamp": "2026-11-15T12:00:00Z"});
    let object = json!({
        "kind": kind.as_str(), "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": sample["spec"],
    });
    Ok((object, sample["namespace"].as_str().unwrap_or("default").to_owned()))
}

/// A network set, which is small and has no special rules.
pub(crate) fn network_set(namespace: &str, name: &str, net: &str) -> Result<KvPair> {
    let mut set = sample(Kind::NetworkSet, name)?;
    set.metadata_mut().namespace = namespace.to_owned();
    if let Resource::NetworkSet(set) = &mut set {
        set.spec.nets = vec![net.into()];
    }
    Ok(KvPair::resource(set))
}

/// The key of a network set.
pub(crate) fn network_set_key(namespace: &str, name: &str) -> Key {
    Key::resource(Kind::NetworkSet, namespace, name)
}

/// Network sets of a namespace.
pub(crate) fn network_sets(namespace: &str) -> ListOptions {
    ListOptions::Resource {
        kind: Kind::NetworkSet,
        namespace: Some(namespace.to_owned()),
        name: None,
        name_is_prefix: false,
    }
}

/// A copy of the entry with a label set.
pub(crate) fn labelled(entry: &KvPair, value: &str) -> KvPair {
    let mut entry = entry.clone();
    if let model::Value::Resource(resource) = &mut entry.value {
        resource.metadata_mut().labels.insert("conformance".into(), value.into());
    }
    entry
}

/// The label that [`labelled`] sets.
pub(crate) fn label(entry: &KvPair) -> &str {
    entry
        .as_resource()
        .and_then(|resource| resource.metadata().labels.get("conformance"))
        .map_or("", String::as_str)
}

/// The name in an entry's metadata.
pub(crate) fn name_of(entry: &KvPair) -> &str {
    entry.as_resource().map_or("", Resource::name)
}

/// A watch after this revision, or starting with the present state.
pub(crate) async fn watch(store: &Store, list: &ListOptions, revision: Option<&str>) -> Result<Watch> {
    let options = WatchOptions { revision: revision.map(str::to_owned), ..WatchOptions::default() };
    Ok(store.backend.watch(list, options).await?)
}

/// The next item of a watch that is not a bookmark; `None` when it has ended.
pub(crate) async fn next_item(watch: &mut Watch) -> Result<Option<std::result::Result<WatchEvent, Error>>> {
    loop {
        match tokio::time::timeout(PATIENCE, watch.next()).await {
            Err(_) => bail!("the watch stays silent"),
            Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
            Ok(item) => return Ok(item),
        }
    }
}

/// The next event of a watch that is not a bookmark.
pub(crate) async fn next_event(watch: &mut Watch) -> Result<WatchEvent> {
    Ok(next_item(watch).await?.context("the watch has ended")??)
}

/// The error that ends a watch; checks that nothing follows it.
pub(crate) async fn final_error(watch: &mut Watch) -> Result<Error> {
    let error = loop {
        match next_item(watch).await?.context("the watch ended without an error")? {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    ensure!(next_item(watch).await?.is_none(), "the watch goes on after {error}");
    Ok(error)
}

/// An event as one word and a name, for comparisons.
pub(crate) fn short(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Added(entry) => format!("added {} {}", name_of(entry), label(entry)),
        WatchEvent::Modified { new, .. } => format!("modified {} {}", name_of(new), label(new)),
        WatchEvent::Deleted(entry) => format!("deleted {} {}", name_of(entry), label(entry)),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Invalid(entry) => format!("invalid {}", entry.key),
    }
}

/// The revision of an event.
pub(crate) fn revision(event: &WatchEvent) -> &str {
    match event {
        WatchEvent::Added(entry) | WatchEvent::Deleted(entry) | WatchEvent::Modified { new: entry, .. } => {
            &entry.revision
        }
        WatchEvent::Bookmark(revision) => revision,
        WatchEvent::Invalid(_) => "",
    }
}

/// Fails unless the result is this class of error.
pub(crate) fn expect_error<T: std::fmt::Debug>(
    outcome: std::result::Result<T, Error>,
    class: &str,
    is_class: impl Fn(&Error) -> bool,
) -> Result<Error> {
    match outcome {
        Ok(value) => bail!("expected {class}, got {value:?}"),
        Err(error) if is_class(&error) => Ok(error),
        Err(error) => bail!("expected {class}, got {error:?}"),
    }
}
