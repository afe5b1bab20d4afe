//! Snapshots to many clients at once, and clients that all come back at once.

use crate::clients::{self, Client};
use crate::servers::{Serving, peer};
use crate::store::{ENDPOINTS, FEWER_ENDPOINTS, Filled, POLICIES};
use anyhow::Result;
use std::time::{Duration, Instant};
use testkit::Report;
use typha_wire::Position;

/// What so many clients cost.
struct Cost {
    time: f64,
    cpu: f64,
    mebibytes: f64,
}

async fn cost(serving: &Serving, snapshot: usize, count: usize) -> Result<(Cost, Vec<Client>)> {
    let before = serving.cpu()?;
    let (time, clients) = clients::all(serving.address, snapshot, vec![None; count]).await?;
    let cost =
        Cost { time: time.as_secs_f64(), cpu: serving.cpu()? - before, mebibytes: serving.mebibytes()? };
    Ok((cost, clients))
}

/// Waits until clients that went are gone at the server, too.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

fn ratio(ours: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.2}", ours / other) } else { String::new() }
}

/// The shape of Calico's own figures, beside those figures or beside its Typha where that is at hand.
pub(crate) async fn beside_calico(store: &Filled, report: &mut Report) -> Result<()> {
    // Taken once, on a machine like the one that this was written on.
    let mut compared = (
        "Calico's Typha, taken once",
        (2.1, None),
        332.0,
        [(1, 0.1, 0.06, 0.0), (100, 0.4, 0.2, 0.0), (500, 2.4, 1.74, 372.0)],
    );
    if let Some(program) = peer() {
        let calico = Serving::typha(&program, &[], store)?;
        let ready = (calico.ready.as_secs_f64(), Some(calico.ready_cpu));
        let alone = calico.mebibytes()?;
        let snapshot = clients::snapshot(calico.address).await?.len();
        let mut rows = compared.3;
        for row in &mut rows {
            let (cost, clients) = cost(&calico, snapshot, row.0).await?;
            *row = (row.0, cost.time, cost.cpu, cost.mebibytes);
            drop(clients);
            settle().await;
        }
        compared = ("Calico's Typha", ready, alone, rows);
    }
    let (who, (ready, ready_cpu), alone, rows) = compared;
    let ours = Serving::ours(store)?;
    let keys = POLICIES + FEWER_ENDPOINTS;
    report.row(
        &format!("{keys} keys: start to ready"),
        &format!("{:.2} s, {:.2} CPU s", ours.ready.as_secs_f64(), ours.ready_cpu),
        &format!("{who}: {ready:.2} s{}", ready_cpu.map_or(String::new(), |cpu| format!(", {cpu:.2} CPU s"))),
        &format!(
            "{} in time{}",
            ratio(ours.ready.as_secs_f64(), ready),
            ready_cpu.map_or(String::new(), |cpu| format!(", {} in CPU", ratio(ours.ready_cpu, cpu)))
        ),
        "0.33",
    );
    let own = ours.mebibytes()?;
    report.row(
        &format!("{keys} keys: memory before any client"),
        &format!("{own:.0} MiB"),
        &format!("{who}: {alone:.0} MiB"),
        &ratio(own, alone),
        "0.2",
    );
    let snapshot = clients::snapshot(ours.address).await?.len();
    for (count, time, cpu, mebibytes) in rows {
        let (cost, clients) = cost(&ours, snapshot, count).await?;
        report.row(
            &format!("{keys} keys to {count} clients: all in sync"),
            &format!("{:.2} s, {:.2} CPU s, {:.0} MiB", cost.time, cost.cpu, cost.mebibytes),
            &format!("{who}: {time:.2} s, {cpu:.2} CPU s, {mebibytes:.0} MiB"),
            &format!("{} in time, {} in CPU", ratio(cost.time, time), ratio(cost.cpu, cpu)),
            "0.5",
        );
        drop(clients);
        settle().await;
    }
    Ok(())
}

/// Snapshots beside the floor.
pub(crate) async fn snapshots(store: &Filled, report: &mut Report) -> Result<()> {
    let serving = Serving::ours(store)?;
    let bytes = clients::snapshot(serving.address).await?;
    let alone = serving.mebibytes()?;
    let keys = POLICIES + ENDPOINTS;
    report.note(format!(
        "{keys} keys: ready {:.2} s after the start of the process ({:.2} CPU s), {alone:.0} MiB with a snapshot of {:.1} MiB compressed.",
        serving.ready.as_secs_f64(),
        serving.ready_cpu,
        mebibytes(bytes.len())
    ));
    for count in [100, 1_000, 5_000] {
        let (ours, clients) = cost(&serving, bytes.len(), count).await?;
        drop(clients);
        settle().await;
        let floor = Serving::floor(&bytes)?;
        let before = floor.cpu()?;
        let time = clients::readers(floor.address, bytes.len(), count).await?.as_secs_f64();
        let cpu = floor.cpu()? - before;
        drop(floor);
        report.row(
            &format!(
                "{keys} keys to {count} clients, {:.0} MiB sent: all in sync",
                mebibytes(bytes.len() * count)
            ),
            &format!("{:.2} s, {:.2} CPU s", ours.time, ours.cpu),
            &format!("the same bytes to as many sockets: {time:.2} s, {cpu:.2} CPU s"),
            &format!("{} in time, {} in CPU", ratio(ours.time, time), ratio(ours.cpu, cpu)),
            "1.5",
        );
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let each = (ours.mebibytes - alone).max(0.0) * 1024.0 / count as f64;
        report.row(
            &format!("memory of the server with {count} clients"),
            &format!("{:.0} MiB", ours.mebibytes),
            &format!("before: {alone:.0} MiB"),
            &format!("{each:.1} KiB a client"),
            "32 KiB a client",
        );
    }
    Ok(())
}

/// All clients are cut off at once and come back.
pub(crate) async fn storms(store: &Filled, report: &mut Report) -> Result<()> {
    let serving = Serving::ours(store)?;
    let snapshot = clients::snapshot(serving.address).await?.len();
    for count in [1_000, 5_000] {
        let (time, clients) =
            clients::all(serving.address, snapshot, vec![Some(Position::default()); count]).await?;
        let standing: Vec<Option<Position>> = clients.iter().map(|client| client.position).collect();
        drop(clients);
        let (before, begin) = (serving.cpu()?, Instant::now());
        let (_, again) = clients::all(serving.address, snapshot, vec![None; count]).await?;
        let whole = (begin.elapsed().as_secs_f64(), serving.cpu()? - before);
        drop(again);
        settle().await;
        let before = serving.cpu()?;
        let (resumed, _clients) = clients::all(serving.address, snapshot, standing).await?;
        let cpu = serving.cpu()? - before;
        report.row(
            &format!("reconnect of {count} clients at once, clients of ours"),
            &format!("{:.2} s, {cpu:.2} CPU s", resumed.as_secs_f64()),
            &format!("clients of Calico's, which get everything: {:.2} s, {:.2} CPU s", whole.0, whole.1),
            &ratio(resumed.as_secs_f64(), whole.0),
            "",
        );
        report.note(format!("The {count} clients came for the first time in {:.2} s.", time.as_secs_f64()));
        settle().await;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
