//! Addresses per second, for one host and for 64 concurrent hosts, on the embedded store and on a real etcd, with their
//! floor: the same number of compare-and-swap writes of the same size, done directly on the same store in the same
//! rounds.
//!
//! A host is a long-lived process with a warm [`Ipam`]. It requests one address at a time, as CNI does. What several
//! concurrent requests of one host gain by sharing writes is a separate row. Only addresses that were assigned are
//! counted; anything else is an error.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::{Context as _, Result, ensure};
use api::{IPPool, IPPoolSpec, Node, NodeSpec};
use datastore::etcd::{EtcdBackend, EtcdConfig};
use datastore::{Backend, Batch, Write};
use ipam::{AutoAssign, IntendedUse, Ipam};
use ipam_core::{AddressSet, Holder, take};
use model::{AllocationBlock, Key, KvPair, ListOptions, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Etcd, Folder, Report, median};

const ROUNDS: usize = 5;
/// How many addresses one host takes in a round.
const ALONE: usize = 256;
/// How many addresses each of 64 hosts takes in a round.
const EACH: usize = 32;
const HOSTS: usize = 64;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let etcd = Etcd::start()?;
    let folder = Folder::new("ipam-bench")?;
    let store = kvstore_engine::Store::open(folder.path().join("data"), kvstore_engine::Options::default())?;
    runtime.block_on(async {
        let embedded: Arc<dyn Backend> = Arc::new(EtcdBackend::embedded(store));
        let config = EtcdConfig::for_endpoints(&etcd.endpoint());
        let remote: Arc<dyn Backend> = Arc::new(EtcdBackend::connect(&config).await?);
        let mut report = Report::new("ipam");
        for (name, backend) in [("embedded store", embedded), ("etcd", remote)] {
            measure(name, &backend, &mut report).await?;
        }
        print!("{}", report.markdown());
        report.record()
    })
}

async fn measure(name: &str, backend: &Arc<dyn Backend>, report: &mut Report) -> Result<()> {
    let spec: IPPoolSpec = serde_json::from_str(r#"{"cidr":"10.0.0.0/8"}"#)?;
    backend.create(&KvPair::resource(IPPool::new("", "pool", spec))).await?;
    let mut ipams = Vec::new();
    for host in 0..HOSTS {
        let node = Node::new("", &format!("node-{host}"), NodeSpec::default());
        backend.create(&KvPair::resource(node)).await?;
        ipams.push(Ipam::warm(Arc::clone(backend), &format!("node-{host}")));
    }
    // Wait until the watches are in step and every host has its first block.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (host, ipam) in ipams.iter().enumerate() {
        assign(ipam, host, "first").await?;
    }
    let mut rates: [Vec<f64>; 6] = Default::default();
    for round in 0..=ROUNDS {
        let alone = rate(ALONE, one_host(&ipams[0], round)).await?;
        let alone_floor = rate(ALONE, floor(backend, 1, ALONE, round)).await?;
        let together = rate(ALONE, one_host_at_once(&ipams[0], round)).await?;
        let many = rate(HOSTS * EACH, many_hosts(&ipams, round)).await?;
        let many_floor = rate(HOSTS * EACH, floor(backend, HOSTS, EACH, round)).await?;
        release_all(backend, round).await?;
        // The first round warms everything up.
        if round > 0 {
            for (place, figure) in [alone, alone_floor, together, many, many_floor].into_iter().enumerate() {
                rates[place].push(figure);
            }
        }
    }
    let [alone, alone_floor, together, many, many_floor, _] =
        rates.map(|rates| if rates.is_empty() { 0.0 } else { median(rates) });
    let mut row = |what: &str, ours: f64, floor: f64| {
        report.row(
            &format!("{what}, {name}"),
            &format!("{ours:.0} addresses/s"),
            &format!("the same number of plain writes: {floor:.0}/s"),
            &format!("{:.2}", ours / floor),
            "near 1; above 1 where writes are shared",
        );
    };
    row("1 host, one request after the other", alone, alone_floor);
    row("1 host, 64 requests at once", together, alone_floor);
    row("64 hosts at once", many, many_floor);
    Ok(())
}

async fn rate(count: usize, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let begin = Instant::now();
    work.await?;
    Ok(f64::from(u32::try_from(count)?) / begin.elapsed().as_secs_f64())
}

async fn assign(ipam: &Ipam, host: usize, handle: &str) -> Result<()> {
    let mut request = AutoAssign::new(format!("node-{host}"), IntendedUse::Workload);
    request.handle = Some(format!("bench.{host}.{handle}").into());
    request.attributes = [("node".to_owned(), format!("node-{host}"))].into();
    request.num4 = 1;
    let assigned = ipam.auto_assign(&request).await?;
    ensure!(assigned.ipv4.len() == 1, "{:?}", assigned.shortfalls);
    Ok(())
}

async fn one_host(ipam: &Ipam, round: usize) -> Result<()> {
    for number in 0..ALONE {
        assign(ipam, 0, &format!("alone.{round}.{number}")).await?;
    }
    Ok(())
}

async fn one_host_at_once(ipam: &Ipam, round: usize) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let ipam = ipam.clone();
        tasks.spawn(async move {
            for number in 0..ALONE / 64 {
                assign(&ipam, 0, &format!("together.{round}.{task}.{number}")).await?;
            }
            Ok(())
        });
    }
    joined(tasks).await
}

async fn many_hosts(ipams: &[Ipam], round: usize) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for (host, ipam) in ipams.iter().enumerate() {
        let ipam = ipam.clone();
        tasks.spawn(async move {
            for number in 0..EACH {
                assign(&ipam, host, &format!("many.{round}.{number}")).await?;
            }
            Ok(())
        });
    }
    joined(tasks).await
}

async fn joined(mut tasks: tokio::task::JoinSet<Result<()>>) -> Result<()> {
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(())
}

/// Does the same writes directly: a block of the usual size at the revision that was read, and a new handle.
async fn floor(backend: &Arc<dyn Backend>, writers: usize, each: usize, round: usize) -> Result<()> {
    let sample = half_full_block()?;
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let backend = Arc::clone(backend);
        let key = Key::Block { cidr: format!("192.168.{writer}.0/26").parse()? };
        let sample = KvPair::new(key, Value::Block(sample.clone()));
        tasks.spawn(async move {
            let mut block = backend.create(&sample).await?;
            for number in 0..each {
                let key = Key::IpamHandle {
                    handle_id: format!("floor.{writers}.{round}.{writer}.{number}").into(),
                };
                let value = model::decode(&key, br#"{"block":{"192.168.0.0/26":1},"deleted":false}"#)?;
                let handle = KvPair::new(key, value);
                let writes = [Write::Update(block.clone()), Write::Create(handle)];
                let Batch::Done(stored) = backend.write_all(&writes).await? else {
                    anyhow::bail!("another process writes")
                };
                block = stored.into_iter().next().flatten().context("a block")?;
            }
            backend.delete_entry(&block).await?;
            Ok(())
        });
    }
    joined(tasks).await
}

/// An average block while it fills up: half of its addresses are taken, each by a different holder.
fn half_full_block() -> Result<AllocationBlock> {
    let owner = IntendedUse::Workload.owner("floor");
    let mut block = take::new_block("192.168.0.0/26".parse()?, &owner, None, jiff::Timestamp::now());
    for number in 0..32 {
        let attributes = [("node".to_owned(), "node-0".to_owned())].into();
        let holder = Holder { handle: Some(format!("bench.0.alone.0.{number}").into()), attributes };
        take::take(&mut block, 1, &holder, &AddressSet::default());
    }
    Ok(block)
}

/// Releases everything, so that all rounds begin in the same state.
async fn release_all(backend: &Arc<dyn Backend>, round: usize) -> Result<()> {
    let ipam = Ipam::new(Arc::clone(backend));
    for entry in backend.list(&ListOptions::IpamHandle, None).await?.items {
        let (Key::IpamHandle { handle_id }, Value::IpamHandle(_)) = (&entry.key, &entry.value) else {
            continue;
        };
        if handle_id.starts_with("floor.") {
            backend.delete_entry(&entry).await?;
        } else if handle_id.contains(&format!(".{round}.")) {
            ipam.release_by_handle(handle_id).await?;
        }
    }
    Ok(())
}
