//! The cost of a feed besides reading the store: 100,000 workload endpoints from an embedded store to the sink.
//!
//! The floor is the same list, fetched and decoded in the same parts, and discarded. The second figure is the memory
//! kept per endpoint, besides the key itself. With `TORTIE_BENCH_OUT=<folder>` the table is also written there. Does
//! not compare different data: both sides must see every endpoint.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::{Result, ensure};
use api::{Kind, Resource};
use datastore::Backend;
use datastore::etcd::EtcdBackend;
use follow::cache::{Cache, CacheOptions, Entries, Event};
use follow::processor::Converted;
use follow::{FeedEvent, FollowedKind};
use futures::StreamExt as _;
use model::feed::{FeedEntry, Status};
use model::{KvPair, ListOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Folder, Report, median};

const COUNT: usize = 100_000;
const BATCH: usize = 100;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure())
}

fn endpoint(number: usize) -> Result<KvPair> {
    let (node, pod) = (number % 1000, format!("web-5d4f8c7b9-{number}"));
    let object = serde_json::json!({
        "metadata": {
            "name": format!("node--{node}-k8s-{}-eth0", pod.replace('-', "--")), "namespace": format!("shop-{}", number % 500),
            "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9", "projectcalico.org/orchestrator": "k8s"},
        },
        "spec": {
            "orchestrator": "k8s", "node": format!("node-{node}"), "pod": pod, "endpoint": "eth0",
            "interfaceName": format!("cali{number:011x}"), "profiles": ["kns.shop", "ksa.shop.default"],
            "ipNetworks": [format!("10.{}.{}.{}/32", number >> 16, number >> 8 & 255, number & 255)],
        },
    });
    Ok(KvPair::resource(Resource::from_value(Kind::WorkloadEndpoint, object)?))
}

async fn measure() -> Result<()> {
    let folder = Folder::new("follow-bench")?;
    let store = kvstore_engine::Store::open(folder.path(), kvstore_engine::Options::default())?;
    let backend: Arc<dyn Backend> = Arc::new(EtcdBackend::embedded(store));
    for start in (0..COUNT).step_by(BATCH) {
        let entries = (start..start + BATCH).map(endpoint).collect::<Result<Vec<_>>>()?;
        ensure!(backend.create_all(&entries).await?.is_some(), "the store does not take {BATCH} at once");
    }
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (list, feed) = (list(&*backend).await?, feed(&backend).await?);
        // The first round warms up both sides.
        if round > 0 {
            floor.push(list.as_secs_f64());
            ours.push(feed.as_secs_f64());
        }
    }
    let (floor, ours) = (median(floor), median(ours));
    let mut report = Report::new("feed");
    report.row(
        &format!("{COUNT} workload endpoints, start of the feed to in sync"),
        &format!("{ours:.2} s"),
        &format!("the same list, decoded and dropped: {floor:.2} s"),
        &format!("{:.2}", ours / floor),
        "at most 2",
    );
    let (kept, key) = kept_per_endpoint(&*backend).await?;
    report.row(
        "kept in memory for one endpoint",
        &format!("{kept:.0} bytes"),
        &format!("its key: {key:.0} bytes"),
        &format!("{:.2}", kept / key),
        "at most 2",
    );
    report.record()?;
    println!("{}", report.markdown());
    Ok(())
}

fn all() -> ListOptions {
    ListOptions::resources(Kind::WorkloadEndpoint)
}

async fn list(backend: &dyn Backend) -> Result<Duration> {
    let begin = Instant::now();
    let mut parts = backend.list_parts(&all(), None).await?;
    let mut count = 0;
    while let Some(part) = parts.next().await {
        count += part?.items.len();
    }
    ensure!(count == COUNT, "{count} of {COUNT} endpoints");
    Ok(begin.elapsed())
}

async fn feed(backend: &Arc<dyn Backend>) -> Result<Duration> {
    let begin = Instant::now();
    let (_follower, mut events) = follow::follow(backend, vec![FollowedKind::new(all(), Converted)]);
    let mut count = 0;
    while let Some(event) = events.recv().await {
        match event {
            FeedEvent::Entries(entries) => count += entries.len(),
            FeedEvent::Status(Status::InSync) => break,
            FeedEvent::Status(_) | FeedEvent::Away(_) => {}
        }
    }
    let took = begin.elapsed();
    ensure!(count == COUNT, "{count} of {COUNT} endpoints");
    Ok(took)
}

/// The bytes kept per endpoint, and the length of its key.
async fn kept_per_endpoint(backend: &dyn Backend) -> Result<(f64, f64)> {
    let mut cache = Cache::new(Entries::<FeedEntry>::new(Box::new(Converted)), CacheOptions::default());
    cache.handle(Event::Timer, Duration::ZERO);
    let mut parts = backend.list_parts(&all(), None).await?;
    let mut length = 0;
    while let Some(part) = parts.next().await {
        let part = part?;
        length += part.items.iter().filter_map(|pair| Some(pair.key.path().ok()?.len())).sum::<usize>();
        cache.handle(Event::ListPart(part.into()), Duration::ZERO);
    }
    ensure!(cache.contents().len() == COUNT, "{} of {COUNT} endpoints", cache.contents().len());
    #[expect(clippy::cast_precision_loss, reason = "sums of a benchmark, far below 2^53")]
    let per_endpoint = |sum: usize| sum as f64 / COUNT as f64;
    Ok((per_endpoint(cache.contents().bytes()), per_endpoint(length)))
}
