//! Kill -9 in the middle of a write load, repeatedly: every acknowledged write must survive, and revisions must be
//! intact. Compactions and rewrites run meanwhile.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use etcd_api::etcdserverpb as pb;

use crate::support::{Server, block_on, connect};

const WRITERS: usize = 8;
const ROUNDS: u64 = 6;

#[test]
fn acknowledged_writes_survive_kill_9() -> Result<()> {
    let mut server = Server::start(&[])?;
    // Key → (revision, value) of the last acknowledged write.
    let acknowledged = Arc::new(Mutex::new(BTreeMap::<String, (i64, u64)>::new()));
    let mut newest = 1;
    for round in 0..ROUNDS {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let stop = Arc::new(AtomicBool::new(false));
        for writer in 0..WRITERS {
            runtime.spawn(write(
                server.endpoint(),
                round,
                writer,
                Arc::clone(&acknowledged),
                Arc::clone(&stop),
            ));
        }
        runtime.spawn(disturb(server.endpoint(), Arc::clone(&stop)));
        let enough = usize::try_from(200 * (round + 1))?;
        while acknowledged.lock().unwrap().len() < enough {
            server.process()?.check_running()?;
            std::thread::sleep(Duration::from_millis(1 + round * 3));
        }
        server.process()?.kill()?;
        stop.store(true, Ordering::Relaxed);
        runtime.shutdown_timeout(Duration::from_secs(10));
        server.restart()?;
        newest = block_on(check(&server.endpoint(), &acknowledged.lock().unwrap(), newest))?;
    }
    Ok(())
}

/// Writes fresh keys and one shared key per writer until the server is gone.
async fn write(
    endpoint: String,
    round: u64,
    writer: usize,
    acknowledged: Arc<Mutex<BTreeMap<String, (i64, u64)>>>,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let mut client = connect(&endpoint).await?;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let value = round << 32 | number;
        let key =
            if number % 3 == 0 { format!("shared-{writer}") } else { format!("{round}-{writer}-{number}") };
        let put = pb::PutRequest {
            key: key.clone().into(),
            value: value.to_string().repeat(40).into(),
            ..pb::PutRequest::default()
        };
        let revision = client.kv.put(put).await?.into_inner().header.context("no header")?.revision;
        acknowledged.lock().unwrap().insert(key, (revision, value));
        number += 1;
    }
    Ok(())
}

/// Compacts and rewrites while the writers work.
async fn disturb(endpoint: String, stop: Arc<AtomicBool>) -> Result<()> {
    let mut client = connect(&endpoint).await?;
    while !stop.load(Ordering::Relaxed) {
        let get = pb::RangeRequest { key: "x".into(), ..pb::RangeRequest::default() };
        let revision = client.kv.range(get).await?.into_inner().header.context("no header")?.revision;
        // Refused when nothing was written since the last compaction.
        let _ = client.kv.compact(pb::CompactionRequest { revision, physical: false }).await;
        client.maintenance.defragment(pb::DefragmentRequest {}).await?;
    }
    Ok(())
}

async fn check(endpoint: &str, acknowledged: &BTreeMap<String, (i64, u64)>, before: i64) -> Result<i64> {
    let mut client = connect(endpoint).await?;
    let (key, range_end) = kvstore_engine::prefix_range(Bytes::new());
    let all = pb::RangeRequest { key, range_end, ..pb::RangeRequest::default() };
    let all = client.kv.range(all).await?.into_inner();
    let now = all.header.context("no header")?.revision;
    assert!(now >= before);
    let found: BTreeMap<String, (i64, String)> = all
        .kvs
        .iter()
        .map(|kv| {
            assert!(kv.mod_revision <= now && kv.create_revision <= kv.mod_revision && kv.version > 0);
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            (text(&kv.key), (kv.mod_revision, text(&kv.value)))
        })
        .collect();
    for (key, (revision, value)) in acknowledged {
        let (found_revision, found_value) = found.get(key).with_context(|| format!("{key} is lost"))?;
        // A later, unacknowledged write may have been applied; an earlier one may not reappear.
        assert!(
            found_revision >= revision,
            "{key}: revision {revision} was acknowledged, {found_revision} is there"
        );
        if found_revision == revision {
            assert_eq!(*found_value, value.to_string().repeat(40), "{key}");
        }
    }
    // The store continues counting where it stopped.
    let put = pb::PutRequest { key: "next".into(), value: "x".into(), ..pb::PutRequest::default() };
    let next = client.kv.put(put).await?.into_inner().header.context("no header")?.revision;
    assert_eq!(next, now + 1);
    Ok(next)
}
