//! The latency of a change from its writer to clients, at 1,000 changes per second.

use crate::clients::{self, Client};
use crate::servers::Serving;
use crate::store::{ENDPOINTS, Filled, endpoint};
use anyhow::Result;
use follow::processor::Converted;
use follow::{FeedEvent, FollowedKind};
use model::ListOptions;
use model::feed::{FeedEntry, Status};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::Report;
use tokio::sync::watch;
use typha_wire::Message;

/// Changes per second, and for how many seconds.
const RATE: u32 = 1_000;
const SECONDS: u32 = 8;
/// How many clients decode what they receive; the others only read it.
const LOOKING: usize = 20;

type Times = Arc<Mutex<Vec<f64>>>;

pub(crate) async fn measure(store: &Filled, report: &mut Report) -> Result<()> {
    let serving = Serving::ours(store)?;
    for count in [100, 1_000] {
        // Earlier measurements changed the snapshot.
        let snapshot = clients::snapshot(serving.address).await?.len();
        let (_, clients) = clients::all(serving.address, snapshot, vec![None; count]).await?;
        let begin = Instant::now();
        let (through, direct) = (Times::default(), Times::default());
        let (end, ended) = watch::channel(());
        let mut tasks = Vec::new();
        for (number, client) in clients.into_iter().enumerate() {
            let (through, mut ended) = (Arc::clone(&through), ended.clone());
            tasks.push(tokio::spawn(async move {
                let work = listen(client, number < LOOKING, begin, through);
                tokio::select! { outcome = work => outcome, _ = ended.changed() => Ok(()) }
            }));
        }
        let watching = tokio::spawn(watch_store(store.backend.clone(), begin, Arc::clone(&direct)));
        // Ensures that both are connected before the first change.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = serving.cpu()?;
        write(store, begin).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let cpu = serving.cpu()? - before;
        end.send_replace(());
        for task in tasks {
            task.await??;
        }
        watching.abort();
        let (ours, other) = (percentiles(&through), percentiles(&direct));
        report.row(
            &format!("{RATE} changes a second to {count} clients, from writing to a client, p50 and p99"),
            &format!(
                "{:.1} ms, {:.1} ms; {:.0} % of a processor",
                ours.0,
                ours.1,
                cpu * 100.0 / f64::from(SECONDS)
            ),
            &format!("a follower of etcd at the same time: {:.1} ms, {:.1} ms", other.0, other.1),
            &format!("{:.2} at p50, {:.2} at p99", ours.0 / other.0, ours.1 / other.1),
            "",
        );
    }
    Ok(())
}

fn percentiles(times: &Times) -> (f64, f64) {
    let mut times = times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or(f64::NAN);
    (at(50), at(99))
}

/// Writes changes at an even pace. Each contains the time at which it was written.
async fn write(store: &Filled, begin: Instant) -> Result<()> {
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    let each = RATE / 100;
    let mut number = 0;
    let mut writing = tokio::task::JoinSet::new();
    for _ in 0..SECONDS * 100 {
        pace.tick().await;
        for _ in 0..each {
            let mark = format!("t{}", begin.elapsed().as_micros());
            let entry = endpoint(number % ENDPOINTS, &mark)?;
            number += 1;
            let backend = Arc::clone(&store.backend);
            writing.spawn(async move { backend.apply(&entry).await.map(drop) });
        }
    }
    while let Some(written) = writing.join_next().await {
        written??;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn age(mark: &str, begin: Instant) -> Option<f64> {
    let written: u128 = mark.strip_prefix('t')?.parse().ok()?;
    Some(begin.elapsed().as_micros().checked_sub(written)? as f64 / 1000.0)
}

fn keep(times: &Times, age: f64) {
    times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(age);
}

async fn listen(mut client: Client, looks: bool, begin: Instant, times: Times) -> Result<()> {
    loop {
        if !looks {
            clients::pass_over(&client.stream, usize::MAX).await?;
            continue;
        }
        let mut ping = None;
        let next = client.incoming.next(|message| match message {
            Message::Kvs(updates) => {
                for update in updates {
                    let value = String::from_utf8_lossy(update.value.unwrap_or_default()).into_owned();
                    let mark = value.split_once(r#""mark":""#).and_then(|(_, rest)| rest.split('"').next());
                    if let Some(age) = mark.and_then(|mark| age(mark, begin)) {
                        keep(&times, age);
                    }
                }
            }
            Message::Ping(time) => ping = Some(time),
            _ => {}
        })?;
        if let Some(time) = ping {
            client.pong(time).await?;
        }
        if next.is_none() {
            let incoming = &mut client.incoming;
            clients::read(&client.stream, |bytes| incoming.push(bytes)).await?;
        }
    }
}

async fn watch_store(backend: Arc<dyn datastore::Backend>, begin: Instant, times: Times) {
    let list = ListOptions::resources(api::Kind::WorkloadEndpoint);
    let (_follower, mut events) = follow::follow(&backend, vec![FollowedKind::new(list, Converted)]);
    let mut in_sync = false;
    while let Some(event) = events.recv().await {
        match event {
            FeedEvent::Status(status) => in_sync |= status == Status::InSync,
            FeedEvent::Entries(entries) if in_sync => {
                for entry in entries {
                    if let FeedEntry::WorkloadEndpoint(_, Some(endpoint)) = entry
                        && let Some(age) = endpoint.labels.get("mark").and_then(|mark| age(mark, begin))
                    {
                        keep(&times, age);
                    }
                }
            }
            FeedEvent::Entries(_) | FeedEvent::Away(_) => {}
        }
    }
}
