//! The longest wait of a client while the store cleans up: the longest put and the longest get of two clients that
//! never stop, while nothing else happens, during a compaction (in our store also of its file), and during a snapshot.

use crate::{Line, connect, fill, put, value};
use anyhow::{Context as _, Result};
use etcd_api::{Client, etcdserverpb as pb};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

const KEYS: usize = 30_000;
/// How often each key is written, so that most of the file is garbage.
const WRITTEN: usize = 3;
/// A pause that goes unnoticed.
const GOAL: &str = "at most 10 ms";

/// One row each: longest put and get, when idle, during a compaction and during a snapshot.
pub(crate) struct Pauses {
    lines: Vec<[Line; 2]>,
}

const PHASES: [&str; 3] = ["nothing else going on", "during a compaction", "during a snapshot"];

impl Pauses {
    pub(crate) fn new() -> Self {
        let line =
            |what: &str, phase: &str| Line::with_goal(format!("longest {what}, {phase}"), "ms", GOAL, false);
        Self { lines: PHASES.iter().map(|phase| [line("put", phase), line("get", phase)]).collect() }
    }

    /// Measures a fresh server.
    pub(crate) async fn measure(&mut self, endpoint: &str, is_etcd: bool) -> Result<()> {
        for _ in 0..WRITTEN {
            fill(endpoint, "paused", KEYS).await?;
        }
        let mut client = connect(endpoint).await?;
        for (phase, lines) in PHASES.iter().zip(&mut self.lines) {
            let is_over = Arc::new(AtomicBool::new(false));
            let waiting = [Kind::Put, Kind::Get]
                .map(|kind| tokio::spawn(longest(endpoint.to_owned(), kind, Arc::clone(&is_over))));
            tokio::time::sleep(Duration::from_millis(500)).await;
            match *phase {
                "during a compaction" => compact(&mut client).await?,
                "during a snapshot" => snapshot(&mut client).await?,
                _ => {}
            }
            // Our store continues to rewrite its file after it has answered.
            tokio::time::sleep(Duration::from_secs(3)).await;
            is_over.store(true, Ordering::Relaxed);
            for (line, waiting) in lines.iter_mut().zip(waiting) {
                line.add(is_etcd, waiting.await??.as_secs_f64() * 1000.0);
            }
        }
        Ok(())
    }

    pub(crate) fn into_lines(self) -> impl Iterator<Item = Line> {
        self.lines.into_iter().flatten()
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Put,
    Get,
}

/// The longest time that a request of one client took until the end.
async fn longest(endpoint: String, kind: Kind, is_over: Arc<AtomicBool>) -> Result<Duration> {
    let mut client = connect(&endpoint).await?;
    let get = pb::RangeRequest { key: "/paused/00000007".into(), ..pb::RangeRequest::default() };
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match kind {
            Kind::Put => drop(client.kv.put(put("/paused/00000008".to_owned(), value())).await?),
            Kind::Get => drop(client.kv.range(get.clone()).await?),
        }
        longest = longest.max(begun.elapsed());
    }
    Ok(longest)
}

async fn compact(client: &mut Client) -> Result<()> {
    let answer = client.kv.range(pb::RangeRequest { key: "/".into(), ..pb::RangeRequest::default() }).await?;
    let revision = answer.into_inner().header.context("no header")?.revision;
    client.kv.compact(pb::CompactionRequest { revision, physical: true }).await?;
    Ok(())
}

async fn snapshot(client: &mut Client) -> Result<()> {
    let mut parts = client.maintenance.snapshot(pb::SnapshotRequest::default()).await?.into_inner();
    while parts.message().await?.is_some() {}
    Ok(())
}
