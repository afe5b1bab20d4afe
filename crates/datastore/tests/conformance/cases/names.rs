//! Policies that releases before v3.32 stored under `default.<name>`.

use crate::harness::{Store, expect_error, label, labelled, name_of, next_event, sample, short, watch};
use anyhow::{Result, ensure};
use api::Kind;
use datastore::Error;
use model::{Key, KvPair, ListOptions};

const KINDS: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

/// As written by v3.28 and earlier: the prefix in the name, and no annotation.
fn without_annotation(kind: Kind, name: &str) -> Result<(Key, String)> {
    let mut policy = sample(kind, &format!("default.{name}"))?;
    policy.metadata_mut().labels.insert("conformance".into(), "old".into());
    let key = Key::resource(kind, "default", &format!("default.{name}"));
    Ok((key, String::from_utf8(policy.to_json()?)?))
}

/// As written by v3.30 and v3.31: the prefix in the name, the policy's own name in an annotation.
fn with_annotation(kind: Kind, name: &str) -> Result<(Key, String)> {
    let mut policy = sample(kind, &format!("default.{name}"))?;
    let metadata = policy.metadata_mut();
    metadata.labels.insert("conformance".into(), "old".into());
    metadata.annotations.insert("projectcalico.org/metadata".into(), format!("{{\"name\":\"{name}\"}}"));
    let key = Key::resource(kind, "default", &format!("default.{name}"));
    Ok((key, String::from_utf8(policy.to_json()?)?))
}

pub(crate) async fn old_names(store: &Store) -> Result<()> {
    for kind in KINDS {
        for (form, (old_key, json)) in
            [("bare", without_annotation(kind, "p")?), ("annotated", with_annotation(kind, "p")?)]
        {
            store.fixture.put_raw(&old_key, &json).await?;
            let key = Key::resource(kind, "default", "p");
            let read = store.backend.get(&key, None).await?;
            ensure!(name_of(&read) == "p" && label(&read) == "old", "{kind} {form}: {read:?}");
            let listed = store.backend.list(&ListOptions::resources(kind), None).await?;
            let names: Vec<&str> = listed.items.iter().map(name_of).collect();
            ensure!(names == ["p"] && listed.invalid.is_empty(), "{kind} {form}: {listed:?}");

            // A client that read it by its name writes it back by its name.
            let mut mine =
                KvPair::resource(read.as_resource().cloned().ok_or_else(|| anyhow::anyhow!("none"))?);
            ensure!(mine.key == key, "{:?}", mine.key);
            mine = labelled(&mine, "updated");
            let updated = store.backend.update(&mine).await?;
            ensure!(name_of(&updated) == "p", "{kind} {form}: {updated:?}");
            expect_error(store.backend.update(&mine).await, "conflict", Error::is_conflict)?;
            let listed = store.backend.list(&ListOptions::resources(kind), None).await?;
            let labels: Vec<&str> = listed.items.iter().map(label).collect();
            ensure!(labels == ["updated"], "{kind} {form}: {listed:?}");

            let outcome = store.backend.delete(&key, Some(&read.revision)).await;
            expect_error(outcome, "conflict", Error::is_conflict)?;
            let deleted = store.backend.delete(&key, None).await?;
            ensure!(name_of(&deleted) == "p" && label(&deleted) == "updated", "{kind} {form}: {deleted:?}");
            expect_error(store.backend.get(&key, None).await, "does not exist", Error::is_does_not_exist)?;
            let listed = store.backend.list(&ListOptions::resources(kind), None).await?;
            ensure!(listed.items.is_empty(), "{kind} {form}: something stays: {listed:?}");

            // With the right revision, and again through the entry as it was read.
            store.fixture.put_raw(&old_key, &json).await?;
            let read = store.backend.get(&key, None).await?;
            store.backend.delete(&key, Some(&read.revision)).await?;
            store.fixture.put_raw(&old_key, &json).await?;
            let read = store.backend.get(&key, None).await?;
            store.backend.update(&labelled(&read, "again")).await?;
            let read = store.backend.get(&key, None).await?;
            ensure!(label(&read) == "again", "{kind} {form}: {read:?}");
            store.backend.delete_entry(&read).await?;
            expect_error(store.backend.get(&key, None).await, "does not exist", Error::is_does_not_exist)?;
        }
    }
    Ok(())
}

/// In v3.32 a policy of the default tier may be called `default.x`, which is not `x`.
pub(crate) async fn strangers(store: &Store) -> Result<()> {
    for kind in KINDS {
        let stranger = labelled(&KvPair::resource(sample(kind, "default.p")?), "stranger");
        store.backend.create(&stranger).await?;
        let key = Key::resource(kind, "default", "p");
        expect_error(store.backend.get(&key, None).await, "does not exist", Error::is_does_not_exist)?;
        expect_error(store.backend.delete(&key, None).await, "does not exist", Error::is_does_not_exist)?;
        let ours = labelled(&KvPair::resource(sample(kind, "p")?), "ours");
        let created = store.backend.create(&ours).await?;
        store.backend.update(&labelled(&created, "ours-updated")).await?;
        for (name, expected) in [("p", "ours-updated"), ("default.p", "stranger")] {
            let read = store.backend.get(&Key::resource(kind, "default", name), None).await?;
            ensure!(name_of(&read) == name && label(&read) == expected, "{kind} {name}: {read:?}");
        }
        store.backend.delete(&key, None).await?;
        let read = store.backend.get(&stranger.key, None).await?;
        ensure!(label(&read) == "stranger", "{kind}: {read:?}");
    }
    Ok(())
}

pub(crate) async fn lists_and_watches(store: &Store) -> Result<()> {
    let kind = Kind::NetworkPolicy;
    let select = |name: &str, name_is_prefix| ListOptions::Resource {
        kind,
        namespace: Some("default".into()),
        name: Some(name.to_owned()),
        name_is_prefix,
    };
    let before = store.backend.list(&ListOptions::resources(kind), None).await?;
    let (key, json) = with_annotation(kind, "web")?;
    store.fixture.put_raw(&key, &json).await?;
    store.backend.create(&KvPair::resource(sample(kind, "web-2")?)).await?;
    for (options, expected) in [
        (select("web", false), vec!["web"]),
        (select("web", true), vec!["web", "web-2"]),
        (select("we", true), vec!["web", "web-2"]),
        (select("nothing", true), vec![]),
    ] {
        let listed = store.backend.list(&options, None).await?;
        let mut names: Vec<&str> = listed.items.iter().map(name_of).collect();
        names.sort_unstable();
        ensure!(names == expected, "{options:?}: {names:?}");
    }
    for options in [ListOptions::resources(kind), select("web", false)] {
        let mut events = watch(store, &options, Some(&before.revision)).await?;
        let next = next_event(&mut events).await?;
        ensure!(short(&next) == "added web old", "{options:?}: {}", short(&next));
    }
    let mut events = watch(store, &select("web", false), None).await?;
    let next = next_event(&mut events).await?;
    ensure!(short(&next) == "added web old", "{}", short(&next));
    store.backend.delete(&Key::resource(kind, "default", "web"), None).await?;
    let next = next_event(&mut events).await?;
    ensure!(short(&next) == "deleted web old", "{}", short(&next));
    Ok(())
}

/// Nothing is created beside an old entry; an unconditional write replaces it in place.
pub(crate) async fn nothing_beside(store: &Store) -> Result<()> {
    for kind in KINDS {
        let (old_key, json) = with_annotation(kind, "p")?;
        store.fixture.put_raw(&old_key, &json).await?;
        let ours = labelled(&KvPair::resource(sample(kind, "p")?), "ours");
        expect_error(store.backend.create(&ours).await, "already exists", Error::is_already_exists)?;
        store.backend.apply(&ours).await?;
        let listed = store.backend.list(&ListOptions::resources(kind), None).await?;
        let found: Vec<(&str, &str)> = listed.items.iter().map(|item| (name_of(item), label(item))).collect();
        ensure!(found == [("p", "ours")], "{kind}: {found:?}");
        store.backend.delete(&ours.key, None).await?;
    }
    Ok(())
}

/// The migration: one policy before, the same policy after, under its own name.
pub(crate) async fn moved(store: &Store) -> Result<()> {
    for kind in KINDS {
        let (old_key, json) = without_annotation(kind, "p")?;
        store.fixture.put_raw(&old_key, &json).await?;
        let listed = store.backend.list(&ListOptions::resources(kind), None).await?;
        let [old] = &listed.items[..] else { anyhow::bail!("{kind}: {listed:?}") };
        let mut events = watch(store, &ListOptions::resources(kind), Some(&listed.revision)).await?;
        let mut stale = old.clone();
        stale.set_revision("1");
        let outcome = store.backend.store_under_own_name(&stale).await;
        ensure!(outcome.is_err(), "{kind}: a stale entry was moved");
        ensure!(store.backend.store_under_own_name(old).await?, "{kind}: nothing was moved");
        // It exists under its own name before it is removed under the old one.
        for expected in ["added p old", "deleted p old"] {
            let next = next_event(&mut events).await?;
            ensure!(short(&next) == expected, "{kind}: {}", short(&next));
        }
        let listed = store.backend.list(&ListOptions::resources(kind), None).await?;
        let [new] = &listed.items[..] else { anyhow::bail!("{kind}: {listed:?}") };
        ensure!(new.key == Key::resource(kind, "default", "p") && label(new) == "old", "{kind}: {new:?}");
        ensure!(!store.backend.store_under_own_name(new).await?, "{kind}: moved twice");
        store.backend.delete(&new.key, Some(&new.revision)).await?;
    }
    Ok(())
}
