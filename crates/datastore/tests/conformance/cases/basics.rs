//! Create, get, update, apply, delete: their effects and their refusals.

use crate::harness::{
    Store, expect_error, label, labelled, name_of, network_set, network_set_key, network_sets, sample,
    sample_name,
};
use anyhow::{Context as _, Result, ensure};
use api::Kind;
use api::kind::KubernetesForm;
use datastore::Error;
use model::{Key, KvPair, ListOptions};

pub(crate) async fn every_kind(store: &Store) -> Result<()> {
    let mut kinds = 0;
    for kind in Kind::ALL.iter().copied().filter(|kind| kind.info().stored) {
        one_kind(store, kind).await.with_context(|| format!("kind {kind}"))?;
        kinds += 1;
    }
    ensure!(kinds >= 24, "only {kinds} kinds");
    Ok(())
}

async fn one_kind(store: &Store, kind: Kind) -> Result<()> {
    let backend = &store.backend;
    let resource = sample(kind, &sample_name(kind)?)?;
    let entry = KvPair::resource(resource.clone());
    if kind.info().kubernetes == KubernetesForm::Native && !store.abilities.stores_native_kinds {
        // Calico's Kubernetes backend derives these from Kubernetes' own objects.
        expect_error(backend.create(&entry).await, "not supported", |error| {
            matches!(error, Error::NotSupported { .. } | Error::DoesNotExist { .. })
        })?;
        return Ok(());
    }
    let created = backend.create(&entry).await?;
    ensure!(!created.revision.is_empty() && created.key == entry.key, "created {created:?}");
    same_content(store, &entry, &created)?;
    let read = backend.get(&entry.key, None).await?;
    same_content(store, &entry, &read)?;
    ensure!(read.revision == created.revision, "{} is not {}", read.revision, created.revision);
    let resource = read.as_resource().context("no resource")?;
    ensure!(resource.metadata().resource_version == read.revision, "metadata.resourceVersion differs");

    let updated = backend.update(&labelled(&read, "updated")).await?;
    ensure!(updated.revision != read.revision, "the revision stays");
    let read = backend.get(&entry.key, None).await?;
    ensure!(label(&read) == "updated" && read.revision == updated.revision, "after update: {read:?}");
    same_content(store, &entry, &read)?;

    backend.apply(&labelled(&read, "applied")).await?;
    let listed = backend.list(&ListOptions::resources(kind), None).await?;
    ensure!(listed.invalid.is_empty(), "{:?}", listed.invalid);
    let ours = listed.items.iter().find(|item| item.key == entry.key).context("not in the list")?;
    ensure!(label(ours) == "applied", "after apply: {ours:?}");

    let deleted = backend.delete(&entry.key, None).await?;
    ensure!(label(&deleted) == "applied", "deleted {deleted:?}");
    expect_error(backend.get(&entry.key, None).await, "does not exist", Error::is_does_not_exist)?;
    backend.apply(&entry).await.context("apply of a new entry")?;
    backend.delete(&entry.key, None).await?;
    Ok(())
}

/// Spec and name are as written; uid, timestamps and revision are the store's.
fn same_content(store: &Store, expected: &KvPair, found: &KvPair) -> Result<()> {
    let spec = |pair: &KvPair| -> Result<serde_json::Value> {
        let resource = pair.as_resource().context("no resource")?;
        Ok(serde_json::to_value(resource)?["spec"].clone())
    };
    let (wanted, is) = (spec(expected)?, spec(found)?);
    let same = if store.abilities.fills_defaults { contains(&is, &wanted) } else { is == wanted };
    ensure!(same, "the spec changed: {wanted} to {is}");
    ensure!(name_of(expected) == name_of(found), "the name changed to {}", name_of(found));
    let metadata = found.as_resource().context("no resource")?.metadata();
    ensure!(!metadata.uid.is_empty() && metadata.creation_timestamp.is_some(), "no uid or no creation time");
    ensure!(
        !metadata.annotations.contains_key("projectcalico.org/metadata"),
        "the bookkeeping annotation shows"
    );
    Ok(())
}

/// Whether everything in `part` is also in `whole`; only objects may have more.
fn contains(whole: &serde_json::Value, part: &serde_json::Value) -> bool {
    match (whole, part) {
        (serde_json::Value::Object(whole), serde_json::Value::Object(part)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|whole| contains(whole, value)))
        }
        (whole, part) => whole == part,
    }
}

pub(crate) async fn create_existing(store: &Store) -> Result<()> {
    store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let outcome = store.backend.create(&network_set("default", "one", "11.0.0.0/8")?).await;
    let error = expect_error(outcome, "already exists", Error::is_already_exists)?;
    ensure!(error.to_string() == "resource already exists: NetworkSet(default/one)", "{error}");
    Ok(())
}

pub(crate) async fn update_missing(store: &Store) -> Result<()> {
    let mut entry = store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    store.backend.delete(&entry.key, None).await?;
    let outcome = store.backend.update(&entry).await;
    let error = expect_error(outcome, "does not exist", Error::is_does_not_exist)?;
    ensure!(error.to_string().starts_with("resource does not exist: NetworkSet(default/one)"), "{error}");
    entry.revision.clear();
    expect_error(store.backend.delete(&entry.key, None).await, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

pub(crate) async fn update_conflict(store: &Store) -> Result<()> {
    let first = store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let second = store.backend.update(&labelled(&first, "second")).await?;
    let outcome = store.backend.update(&labelled(&first, "stale")).await;
    let error = expect_error(outcome, "update conflict", Error::is_conflict)?;
    ensure!(error.to_string() == "update conflict: NetworkSet(default/one)", "{error}");
    let read = store.backend.get(&first.key, None).await?;
    ensure!(label(&read) == "second" && read.revision == second.revision, "{read:?}");
    Ok(())
}

pub(crate) async fn update_without_revision(store: &Store) -> Result<()> {
    let first = store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let mut without = labelled(&first, "unconditional");
    without.set_revision("");
    let outcome = store.backend.update(&without).await;
    expect_error(outcome, "a refusal", |error| {
        matches!(error, Error::Validation(_) | Error::UpdateConflict { .. })
    })?;
    let read = store.backend.get(&first.key, None).await?;
    ensure!(read.revision == first.revision, "it was written all the same");
    Ok(())
}

pub(crate) async fn delete_wrong_revision(store: &Store) -> Result<()> {
    let first = store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let second = store.backend.update(&labelled(&first, "second")).await?;
    let outcome = store.backend.delete(&first.key, Some(&first.revision)).await;
    expect_error(outcome, "update conflict", Error::is_conflict)?;
    store.backend.get(&first.key, None).await.context("it must still be there")?;
    let deleted = store.backend.delete(&first.key, Some(&second.revision)).await?;
    ensure!(label(&deleted) == "second", "deleted {deleted:?}");
    let outcome = store.backend.delete(&first.key, Some(&second.revision)).await;
    expect_error(outcome, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

pub(crate) async fn delete_wrong_uid(store: &Store) -> Result<()> {
    let created = store.backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let read = store.backend.get(&created.key, None).await?;
    let mut other = read.clone();
    other.uid = Some("99999999-2222-4333-8444-555555555555".into());
    other.set_revision("");
    let outcome = store.backend.delete_entry(&other).await;
    expect_error(outcome, "does not exist", Error::is_does_not_exist)?;
    store.backend.get(&created.key, None).await.context("it must still be there")?;
    store.backend.delete_entry(&read).await?;
    expect_error(store.backend.get(&created.key, None).await, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

pub(crate) async fn get_at_revision(store: &Store) -> Result<()> {
    let first =
        store.backend.create(&labelled(&network_set("default", "one", "10.0.0.0/8")?, "first")).await?;
    store.backend.update(&labelled(&first, "second")).await?;
    let read = store.backend.get(&first.key, Some(&first.revision)).await?;
    let expected = if store.abilities.reads_at_revision { "first" } else { "second" };
    ensure!(label(&read) == expected, "at revision {}: {read:?}", first.revision);
    let read = store.backend.get(&first.key, Some("0")).await?;
    ensure!(label(&read) == "second", "at revision 0: {read:?}");
    Ok(())
}

pub(crate) async fn incomplete_key(store: &Store) -> Result<()> {
    let outcome = store.backend.get(&Key::resource(Kind::NetworkSet, "default", ""), None).await;
    let error = expect_error(outcome, "insufficient identifiers", |error| {
        matches!(error, Error::InsufficientIdentifiers { .. })
    })?;
    ensure!(error.to_string().contains("name"), "{error}");
    Ok(())
}

pub(crate) async fn clean(store: &Store) -> Result<()> {
    for name in ["one", "two"] {
        store.backend.create(&network_set("default", name, "10.0.0.0/8")?).await?;
    }
    store.backend.clean().await?;
    let listed = store.backend.list(&network_sets("default"), None).await?;
    ensure!(listed.items.is_empty(), "{:?}", listed.items);
    let outcome = store.backend.get(&network_set_key("default", "one"), None).await;
    expect_error(outcome, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}
