//! The cost of a list besides the network: listing and decoding 10,000 NetworkPolicies compared with fetching the same
//! bytes.
//!
//! Both use the same transport to the same real etcd, in interleaved rounds; the figure is the ratio of the medians,
//! and the goal is at most 2. With `TORTIE_BENCH_OUT=<folder>` the table is also written there. The time for decoding
//! without a network, on one thread and on two, is written to standard error. Does not compare different data: both
//! sides must see every policy.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::{Context as _, Result, ensure};
use api::Kind;
use datastore::Backend;
use datastore::etcd::remote::RemoteTransport;
use datastore::etcd::transport::{Entry, RangeRequest, Span, Step, Transaction, Transport};
use datastore::etcd::{EtcdBackend, EtcdConfig};
use model::{Key, ListOptions, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Etcd, Report};

const COUNT: usize = 10_000;
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let etcd = Etcd::start()?;
    runtime.block_on(measure(&etcd))
}

async fn measure(etcd: &Etcd) -> Result<()> {
    let config = EtcdConfig::for_endpoints(&etcd.endpoint());
    let transport: Arc<dyn Transport> = Arc::new(RemoteTransport::new(&config).await?);
    let bytes = fill(&*transport).await?;
    let backend = EtcdBackend::new(Arc::clone(&transport));
    let (mut raw, mut listed) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (fetch, list) = (fetch(&*transport).await?, list(&backend).await?);
        // The first round warms up both sides.
        if round > 0 {
            raw.push(fetch);
            listed.push(list);
        }
    }
    let (raw, listed) = (median(raw), median(listed));
    decoding(&*transport).await?;
    let ratio = listed.as_secs_f64() / raw.as_secs_f64();
    let mut report = Report::new("list");
    report.row(
        &format!("list and decode {COUNT} NetworkPolicies ({} KiB) from etcd", bytes / 1024),
        &format!("{:.1} ms", milliseconds(listed)),
        &format!("fetching the same bytes: {:.1} ms", milliseconds(raw)),
        &format!("{ratio:.2}"),
        "at most 2",
    );
    print!("{}", report.markdown());
    report.record()
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Typical policies: two ingress rules, one egress rule, selectors, ports, labels. Returns their size in bytes.
async fn fill(transport: &dyn Transport) -> Result<usize> {
    let mut total = 0;
    for start in (0..COUNT).step_by(100) {
        let mut then = Vec::new();
        for index in start..(start + 100).min(COUNT) {
            let (namespace, name) = (format!("team-{:03}", index % 200), format!("policy-{index:05}"));
            let policy = serde_json::json!({
                "metadata": {
                    "name": name, "namespace": namespace, "uid": uuid::Uuid::new_v4().to_string(),
                    "creationTimestamp": "2026-11-15T12:00:00Z", "labels": {"projectcalico.org/tier": "default"},
                },
                "spec": {
                    "tier": "default", "order": index % 100, "selector": format!("app == 'service-{}'", index % 500),
                    "ingress": [
                        {"action": "Allow", "protocol": "TCP", "source": {"selector": "role == 'frontend'"},
                         "destination": {"ports": [80, 443, "8080:8090"]}},
                        {"action": "Allow", "protocol": "UDP", "source": {"nets": ["10.0.0.0/8", "192.168.0.0/16"]},
                         "destination": {"ports": [53]}},
                    ],
                    "egress": [{"action": "Allow", "destination": {"selector": "app == 'database'", "notNets": ["10.9.0.0/16"]}}],
                    "types": ["Ingress", "Egress"],
                },
            });
            let key = Key::resource(Kind::NetworkPolicy, &namespace, &name);
            let value = model::encode(
                &key,
                &Value::Resource(api::Resource::from_value(Kind::NetworkPolicy, policy)?),
            )?;
            total += value.len();
            then.push(Step::Put { key: key.path()?.into(), value: value.into(), lease: 0 });
        }
        transport.transact(Transaction { then, ..Transaction::default() }).await?;
    }
    Ok(total)
}

/// Fetches all the bytes in one answer.
async fn fetch(transport: &dyn Transport) -> Result<Duration> {
    let span = Span::prefix(ListOptions::resources(Kind::NetworkPolicy).prefix()?);
    let begin = Instant::now();
    let answer = transport.range(RangeRequest { span, revision: 0, limit: 0 }).await?;
    let took = begin.elapsed();
    ensure!(answer.entries.len() == COUNT, "{} entries", answer.entries.len());
    Ok(took)
}

/// Prints the time for decoding.
async fn decoding(transport: &dyn Transport) -> Result<()> {
    let span = Span::prefix(ListOptions::resources(Kind::NetworkPolicy).prefix()?);
    let answer = transport.range(RangeRequest { span, revision: 0, limit: 0 }).await?;
    let decode = |entries: &[Entry]| -> Result<Vec<(Key, Value)>> {
        let decode = |entry: &Entry| -> Result<(Key, Value)> {
            let key = Key::parse(std::str::from_utf8(&entry.key)?).context("no key")?;
            let value = model::decode(&key, &entry.value)?;
            Ok((key, value))
        };
        entries.iter().map(decode).collect()
    };
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let decoded = decode(&answer.entries)?;
        alone.push(begin.elapsed());
        drop(decoded);
        let begin = Instant::now();
        let (left, right) = answer.entries.split_at(answer.entries.len() / 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| decode(left));
            let own = decode(right)?;
            let other = other.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            together.push(begin.elapsed());
            drop((own, other));
            anyhow::Ok(())
        })?;
    }
    let (alone, together) = (milliseconds(median(alone)), milliseconds(median(together)));
    eprintln!("decoding alone: {alone} ms on one thread, {together} ms on two");
    Ok(())
}

/// Lists all policies.
async fn list(backend: &EtcdBackend) -> Result<Duration> {
    let begin = Instant::now();
    let listed = backend.list(&ListOptions::resources(Kind::NetworkPolicy), None).await?;
    let took = begin.elapsed();
    ensure!(listed.items.len() == COUNT && listed.invalid.is_empty(), "{} policies", listed.items.len());
    Ok(took)
}
