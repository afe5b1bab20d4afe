//! The entries of address management, which have keys of their own.

use crate::harness::{Store, expect_error, next_event, watch};
use anyhow::{Context as _, Result, ensure};
use datastore::{Batch, Error, WatchEvent, Write};
use model::{AffinityType, BlockAffinityKey, IpVersion, Key, KvPair, ListOptions};

fn entry(key: Key, json: &str) -> Result<KvPair> {
    let value = model::decode(&key, json.as_bytes()).with_context(|| key.to_string())?;
    Ok(KvPair { key, value, revision: String::new(), uid: None, ttl: None })
}

fn block(cidr: &str) -> Result<KvPair> {
    let json = format!(
        r#"{{"cidr":"{cidr}","affinity":"host:node-a","allocations":[0,null,null,null],"unallocated":[1,2,3],"attributes":[{{"handle_id":"pod-1","secondary":{{"node":"node-a"}}}}],"deleted":false}}"#
    );
    entry(Key::Block { cidr: cidr.parse()? }, &json)
}

fn affinity(cidr: &str, host: &str) -> Result<KvPair> {
    let key = BlockAffinityKey { cidr: cidr.parse()?, host: host.into(), affinity_type: AffinityType::Host };
    entry(Key::BlockAffinity(key), r#"{"state":"pending","deleted":false}"#)
}

fn handle(id: &str) -> Result<KvPair> {
    entry(Key::IpamHandle { handle_id: id.into() }, r#"{"block":{"10.65.0.0/30":1},"deleted":false}"#)
}

pub(crate) async fn objects(store: &Store) -> Result<()> {
    let entries = [
        block("10.65.0.0/30")?,
        block("fd00:65::/126")?,
        affinity("10.65.0.0/30", "node-a")?,
        affinity("fd00:65::/126", "node-b")?,
        handle("k8s-pod-network.pod-1")?,
        handle("k8s-pod-network.pod-2")?,
    ];
    for entry in &entries {
        let created = store.backend.create(entry).await.with_context(|| entry.key.to_string())?;
        let read = store.backend.get(&entry.key, None).await.with_context(|| entry.key.to_string())?;
        ensure!(read.value == entry.value, "{}: wrote {:?}, read {:?}", entry.key, entry.value, read.value);
        ensure!(read.revision == created.revision, "{}", entry.key);
        expect_error(store.backend.create(entry).await, "already exists", Error::is_already_exists)?;
    }
    let lists = [
        (ListOptions::Block { ip_version: None }, vec![0, 1]),
        (ListOptions::Block { ip_version: Some(IpVersion::V6) }, vec![1]),
        (ListOptions::BlockAffinity { host: None, affinity_type: None, ip_version: None }, vec![2, 3]),
        (
            ListOptions::BlockAffinity {
                host: Some("node-b".into()),
                affinity_type: Some(AffinityType::Host),
                ip_version: None,
            },
            vec![3],
        ),
        (ListOptions::IpamHandle, vec![4, 5]),
    ];
    for (options, expected) in lists {
        let listed = store.backend.list(&options, None).await.with_context(|| options.to_string())?;
        let mut found: Vec<Key> = listed.items.into_iter().map(|item| item.key).collect();
        found.sort();
        let mut expected: Vec<Key> =
            expected.into_iter().map(|index: usize| entries[index].key.clone()).collect();
        expected.sort();
        ensure!(found == expected, "{options}: {found:?}");
    }
    for entry in &entries {
        let read = store.backend.get(&entry.key, None).await?;
        store.backend.delete_entry(&read).await.with_context(|| entry.key.to_string())?;
        expect_error(store.backend.get(&entry.key, None).await, "does not exist", Error::is_does_not_exist)?;
    }
    Ok(())
}

pub(crate) async fn settings(store: &Store) -> Result<()> {
    let settings = entry(
        Key::IpamConfig,
        r#"{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":7}"#,
    )?;
    expect_error(
        store.backend.get(&Key::IpamConfig, None).await,
        "does not exist",
        Error::is_does_not_exist,
    )?;
    store.backend.create(&settings).await?;
    let mut read = store.backend.get(&Key::IpamConfig, None).await?;
    ensure!(read.value == settings.value, "{read:?}");
    let changed = entry(Key::IpamConfig, r#"{"strict_affinity":false,"auto_allocate_blocks":true}"#)?;
    read.value = changed.value.clone();
    store.backend.update(&read).await?;
    let read = store.backend.get(&Key::IpamConfig, None).await?;
    ensure!(read.value == changed.value, "{read:?}");
    store.backend.delete_entry(&read).await?;
    Ok(())
}

pub(crate) async fn conflicts(store: &Store) -> Result<()> {
    let listed = store.backend.list(&ListOptions::Block { ip_version: None }, None).await?;
    let first = store.backend.create(&block("10.65.0.0/30")?).await?;
    let mut second = store.backend.get(&first.key, None).await?;
    let changed = block_with_two()?;
    second.value = changed.value.clone();
    let second = store.backend.update(&second).await?;
    let mut stale = first.clone();
    stale.value = block("10.65.0.0/30")?.value;
    expect_error(store.backend.update(&stale).await, "conflict", Error::is_conflict)?;
    let outcome = store.backend.delete_entry(&first).await;
    expect_error(outcome, "conflict", Error::is_conflict)?;
    let read = store.backend.get(&first.key, None).await?;
    ensure!(read.value == changed.value && read.revision == second.revision, "{read:?}");

    let mut events = watch(store, &ListOptions::Block { ip_version: None }, Some(&listed.revision)).await?;
    ensure!(matches!(next_event(&mut events).await?, WatchEvent::Added(entry) if entry.key == first.key));
    match next_event(&mut events).await? {
        WatchEvent::Modified { new, .. } => ensure!(new.value == changed.value, "{new:?}"),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

/// Several writes at once: all of them, or none; or the store reports that it cannot.
pub(crate) async fn together(store: &Store) -> Result<()> {
    let backend = &store.backend;
    let old = backend.create(&handle("k8s-pod-network.old")?).await?;
    let writes = [
        Write::Create(block("10.65.0.0/30")?),
        Write::Create(handle("k8s-pod-network.new")?),
        Write::Delete(old.clone()),
        Write::Unchanged { key: Key::IpamConfig, revision: None },
    ];
    let outcome = backend.write_all(&writes).await?;
    if backend.is_kubernetes() {
        ensure!(outcome == Batch::Unsupported, "{outcome:?}");
        expect_error(backend.get(writes[0].key(), None).await, "does not exist", Error::is_does_not_exist)?;
        return Ok(());
    }
    let Batch::Done(stored) = outcome else { anyhow::bail!("{outcome:?}") };
    let [Some(block), Some(new), None, None] = stored.as_slice() else { anyhow::bail!("{stored:?}") };
    ensure!(backend.get(&block.key, None).await? == *block, "{block:?}");
    ensure!(backend.get(&new.key, None).await? == *new, "{new:?}");
    expect_error(backend.get(&old.key, None).await, "does not exist", Error::is_does_not_exist)?;

    // If one condition does not hold, nothing happens; the existing entries are reported.
    let changed = KvPair { value: block_with_two()?.value, ..block.clone() };
    let conflicts = [
        Write::Create(handle("k8s-pod-network.new")?),
        Write::Update(KvPair { revision: "1".to_owned(), ..changed.clone() }),
        Write::Delete(KvPair { revision: "1".to_owned(), ..block.clone() }),
        Write::Unchanged { key: Key::IpamConfig, revision: Some("1".to_owned()) },
        Write::Unchanged { key: new.key.clone(), revision: None },
    ];
    for conflict in conflicts {
        let other = handle("k8s-pod-network.other")?;
        let outcome = backend.write_all(&[Write::Create(other.clone()), conflict.clone()]).await?;
        let expected = match conflict.key() {
            Key::IpamConfig => None,
            key if *key == block.key => Some(block.clone()),
            _ => Some(new.clone()),
        };
        ensure!(outcome == Batch::Conflict(vec![None, expected]), "{conflict:?}: {outcome:?}");
        expect_error(backend.get(&other.key, None).await, "does not exist", Error::is_does_not_exist)?;
    }
    let outcome = backend.write_all(&[Write::Update(changed.clone())]).await?;
    ensure!(
        matches!(&outcome, Batch::Done(stored) if stored[0].as_ref().is_some_and(|entry| entry.value == changed.value))
    );
    ensure!(backend.write_all(&[]).await? == Batch::Done(Vec::new()));

    // More than fits into one transaction is refused as a whole.
    let many: Vec<Write> =
        (0..200).map(|number| handle(&format!("many.{number}")).map(Write::Create)).collect::<Result<_>>()?;
    ensure!(backend.write_all(&many).await? == Batch::Unsupported);
    expect_error(backend.get(many[0].key(), None).await, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

fn block_with_two() -> Result<KvPair> {
    let json = r#"{"cidr":"10.65.0.0/30","affinity":"host:node-a","allocations":[0,0,null,null],"unallocated":[2,3],"attributes":[{"handle_id":"pod-1","secondary":{"node":"node-a"}}],"deleted":false}"#;
    entry(Key::Block { cidr: "10.65.0.0/30".parse()? }, json)
}
