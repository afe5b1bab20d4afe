//! Felix's feed on a node: through Typha, from the store itself, and the floor, which is decoding the same bytes.

use crate::clients;
use crate::servers::{Serving, cpu_of};
use crate::store::{ENDPOINTS, Filled, POLICIES};
use anyhow::{Context as _, Result, bail, ensure};
use client::config::{ClientConfig, EtcdSettings, KubernetesSettings};
use follow::{Events, FeedEvent, FelixOptions};
use model::convert::Faults;
use model::feed::Status;
use std::time::{Duration, Instant};
use telemetry::Pulse;
use testkit::{Folder, Process, Report};
use typha_client::{ClientSettings, Discovery, follow_unread};
use typha_wire::{Compression, Incoming, Message, SyncerType, entries};

/// The minimum number of entries that Felix gets.
const LEAST: usize = POLICIES + ENDPOINTS;

struct Cost {
    time: f64,
    cpu: f64,
    mebibytes: f64,
}

pub(crate) async fn measure(store: &Filled, report: &mut Report) -> Result<()> {
    let serving = Serving::ours(store)?;
    let bytes = clients::snapshot(serving.address).await?;
    let folder = Folder::new("typha-bench")?;
    let file = folder.path().join("bytes");
    std::fs::write(&file, bytes)?;
    // The first agent warms everything up.
    agent("typha", &serving.address.to_string())?;
    let through = agent("typha", &serving.address.to_string())?;
    let direct = agent("store", &store.etcd.endpoint())?;
    let floor = agent("decode", &file.display().to_string())?;
    report.row(
        &format!("Felix's feed of {LEAST} keys, start to in sync"),
        &format!("{:.2} s", through.time),
        &format!("decoding the same bytes: {:.2} s", floor.time),
        &format!("{:.2}", through.time / floor.time),
        "1.3",
    );
    report.row(
        &format!("Felix's feed of {LEAST} keys, processor time and memory"),
        &format!("{:.2} CPU s, {:.0} MiB", through.cpu, through.mebibytes),
        &format!(
            "from etcd itself: {:.2} CPU s, {:.0} MiB, {:.2} s",
            direct.cpu, direct.mebibytes, direct.time
        ),
        &format!(
            "{:.2} in CPU, {:.2} in memory",
            through.cpu / direct.cpu,
            through.mebibytes / direct.mebibytes
        ),
        "1",
    );
    Ok(())
}

/// Runs an agent in a process of its own and reads its output.
fn agent(how: &str, place: &str) -> Result<Cost> {
    let folder = Folder::new("typha-bench")?;
    let log = folder.path().join("log");
    let arguments = ["agent".to_owned(), how.to_owned(), place.to_owned()];
    let mut process = Process::start(&std::env::current_exe()?, &arguments, &log)?;
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(&log)?;
        if let Some(time) = text.lines().find_map(|line| line.strip_prefix("in sync after ")) {
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let mebibytes = process.resident_kib()? as f64 / 1024.0;
            return Ok(Cost { time: time.trim().parse()?, cpu: cpu_of(process.id())?, mebibytes });
        }
        process.check_running()?;
        ensure!(begin.elapsed() < Duration::from_secs(120), "an agent is not in sync: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The agent: gets in sync, prints how long that took, and stays until it is killed.
pub(crate) fn run(how: &str, place: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let begin = Instant::now();
        let held: Box<dyn std::any::Any> = match how {
            "typha" => {
                let settings = ClientSettings::new(SyncerType::Felix, "bench", "bench", "");
                let discovery = Discovery::Address(place.to_owned());
                let (follower, mut events) = follow_unread(discovery, settings, Pulse::new());
                in_sync(&mut events).await?;
                Box::new((follower, events))
            }
            "store" => {
                let config = ClientConfig {
                    datastore_type: client::DatastoreType::EtcdV3,
                    etcd: EtcdSettings { endpoints: place.to_owned(), ..EtcdSettings::default() },
                    kubernetes: KubernetesSettings::default(),
                    embedded_path: String::new(),
                };
                let backend = client::open_backend(&config).await?;
                let options = FelixOptions { kubernetes: false, use_pod_cidr: false, leader: true };
                let (follower, events) = follow::follow(&backend, follow::feeds::felix(options));
                let mut events = Events::from(events);
                in_sync(&mut events).await?;
                Box::new((follower, events))
            }
            "decode" => Box::new(decode(&std::fs::read(place)?)?),
            _ => bail!("unknown agent {how}"),
        };
        println!("in sync after {}", begin.elapsed().as_secs_f64());
        tokio::time::sleep(Duration::from_secs(600)).await;
        drop(held);
        Ok(())
    })
}

async fn in_sync(events: &mut Events) -> Result<()> {
    let mut count = 0;
    loop {
        match events.recv().await.context("the feed ended")? {
            FeedEvent::Entries(entries) => count += entries.len(),
            FeedEvent::Status(Status::InSync) => break,
            FeedEvent::Status(_) | FeedEvent::Away(_) => {}
        }
    }
    ensure!(count >= LEAST, "{count} of {LEAST} entries");
    Ok(())
}

fn decode(bytes: &[u8]) -> Result<()> {
    let mut incoming = Incoming::new(256 << 20);
    incoming.restart(Compression::Snappy)?;
    let mut count = 0;
    for part in bytes.chunks(64 << 10) {
        incoming.push(part);
        while incoming
            .next(|message| {
                let Message::Kvs(updates) = message else { return };
                for update in updates {
                    let path = std::str::from_utf8(update.key).unwrap_or_default();
                    let entry =
                        entries::entry(path, update.value.unwrap_or_default(), "", &mut Faults::new());
                    count += usize::from(entry.is_ok_and(|entry| entry.is_some()));
                }
            })?
            .is_some()
        {}
    }
    ensure!(count >= LEAST, "{count} of {LEAST} entries");
    Ok(())
}
