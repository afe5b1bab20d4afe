//! Many clients at once: nothing is lost, nothing is repeated.

use crate::harness::{
    Store, label, labelled, name_of, network_set, network_sets, next_event, revision, watch,
};
use anyhow::{Context as _, Result, ensure};
use datastore::{Error, WatchEvent};
use model::KvPair;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::JoinSet;

const WRITERS: usize = 4;
const ROUNDS: usize = 40;

/// Every writer creates, updates and deletes its own entries; a reader lists in the middle and watches from there.
pub(crate) async fn list_then_watch(store: &Store) -> Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let backend = Arc::clone(&store.backend);
        writers.spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..ROUNDS {
                let entry = network_set("default", &format!("w{writer}-{}", round % 7), "10.0.0.0/8")?;
                let entry = labelled(&entry, &format!("{round}"));
                let written = match backend.create(&entry).await {
                    Err(Error::AlreadyExists { .. }) => {
                        let current = backend.get(&entry.key, None).await?;
                        if round % 3 == 0 {
                            backend.delete(&current.key, Some(&current.revision)).await?
                        } else {
                            backend.update(&labelled(&current, &format!("{round}"))).await?
                        }
                    }
                    other => other?,
                };
                revisions.push(written.revision);
            }
            anyhow::Ok(revisions)
        });
    }
    let mut listed = store.backend.list(&network_sets("default"), None).await?;
    while listed.items.len() < WRITERS {
        listed = store.backend.list(&network_sets("default"), None).await?;
    }
    let mut events = watch(store, &network_sets("default"), Some(&listed.revision)).await?;
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    let end = store.backend.create(&network_set("default", "zz-end", "10.0.0.0/8")?).await?;

    let mut state: BTreeMap<String, (String, String)> = BTreeMap::new();
    for item in &listed.items {
        state.insert(name_of(item).to_owned(), (item.revision.clone(), label(item).to_owned()));
    }
    let mut seen = BTreeSet::new();
    loop {
        let event = next_event(&mut events).await?;
        ensure!(seen.insert(revision(&event).to_owned()), "revision {} came twice", revision(&event));
        match &event {
            WatchEvent::Added(entry) | WatchEvent::Modified { new: entry, .. } => {
                let old = state
                    .insert(name_of(entry).to_owned(), (entry.revision.clone(), label(entry).to_owned()));
                let is_new = matches!(event, WatchEvent::Added(_));
                ensure!(
                    old.is_none() == is_new,
                    "{event:?} after {old:?}: something is missing or came twice"
                );
                if entry.key == end.key {
                    break;
                }
            }
            WatchEvent::Deleted(entry) => {
                ensure!(state.remove(name_of(entry)).is_some(), "{event:?} of an entry that does not exist");
            }
            other => anyhow::bail!("{other:?}"),
        }
    }
    let now = store.backend.list(&network_sets("default"), None).await?;
    let truth: BTreeMap<String, (String, String)> = now
        .items
        .iter()
        .map(|item| (name_of(item).to_owned(), (item.revision.clone(), label(item).to_owned())))
        .collect();
    ensure!(state == truth, "the watch led to {state:?}, the store has {truth:?}");
    Ok(())
}

pub(crate) async fn increments(store: &Store) -> Result<()> {
    const TASKS: usize = 16;
    const EACH: usize = 10;
    let counter =
        store.backend.create(&labelled(&network_set("default", "counter", "10.0.0.0/8")?, "0")).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (backend, key) = (Arc::clone(&store.backend), counter.key.clone());
        tasks.spawn(async move {
            let mut done = 0;
            let mut conflicts = 0_usize;
            while done < EACH {
                let current = backend.get(&key, None).await?;
                let number: usize = label(&current).parse()?;
                match backend.update(&labelled(&current, &(number + 1).to_string())).await {
                    Ok(_) => done += 1,
                    Err(Error::UpdateConflict { .. }) => conflicts += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            anyhow::Ok(conflicts)
        });
    }
    let mut conflicts = 0;
    while let Some(task) = tasks.join_next().await {
        conflicts += task??;
    }
    let read = store.backend.get(&counter.key, None).await?;
    ensure!(label(&read) == (TASKS * EACH).to_string(), "{} after {conflicts} conflicts", label(&read));
    ensure!(conflicts > 0, "no conflict ever: the tasks did not meet");
    Ok(())
}

pub(crate) async fn creators(store: &Store) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let backend = Arc::clone(&store.backend);
        tasks.spawn(async move {
            let entry: KvPair = labelled(&network_set("default", "only", "10.0.0.0/8")?, &task.to_string());
            match backend.create(&entry).await {
                Ok(created) => anyhow::Ok(Some((task, created.revision))),
                Err(Error::AlreadyExists { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            }
        });
    }
    let mut winners = Vec::new();
    while let Some(task) = tasks.join_next().await {
        winners.extend(task??);
    }
    ensure!(winners.len() == 1, "{winners:?}");
    let read = store.backend.get(&network_set("default", "only", "10.0.0.0/8")?.key, None).await?;
    let (task, revision) = winners.pop().context("no winner")?;
    ensure!(label(&read) == task.to_string() && read.revision == revision, "{read:?}");
    Ok(())
}
