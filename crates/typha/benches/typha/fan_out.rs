//! Snapshots to many clients at once, and many clients that reconnect at once.

use crate::clients::{self, Client};
use crate::servers::{Serving, peer};
use crate::store::{ENDPOINTS, FEWER_ENDPOINTS, Filled, POLICIES};
use anyhow::Result;
use std::time::{Duration, Instant};
use testkit::Report;
use typha_wire::Position;

/// The cost of this many clients.
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

/// Waits until the server has noticed that clients have gone.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

fn ratio(ours: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.2}", ours / other) } else { String::new() }
}

/// How many times each server is started, in turns with the other. The median is reported.
const ROUNDS: usize = 5;
const CLIENTS: [usize; 3] = [1, 100, 500];

/// One start of a server, and clients that connect to it.
struct Round {
    ready: f64,
    ready_cpu: f64,
    alone: f64,
    clients: [Cost; CLIENTS.len()],
}

impl Round {
    /// Runs the round; also returns the bytes that clients received.
    async fn run(serving: Serving) -> Result<(Self, Vec<u8>)> {
        let (ready, ready_cpu, alone) =
            (serving.ready.as_secs_f64(), serving.ready_cpu, serving.mebibytes()?);
        let snapshot = clients::snapshot(serving.address).await?;
        let mut costs = Vec::new();
        for count in CLIENTS {
            let (cost, clients) = cost(&serving, snapshot.len(), count).await?;
            costs.push(cost);
            drop(clients);
            settle().await;
        }
        let clients = costs.try_into().map_err(|_| anyhow::anyhow!("a cost for each"))?;
        Ok((Self { ready, ready_cpu, alone, clients }, snapshot))
    }

    /// The figures of Calico's Typha, measured once on a machine like the author's.
    fn taken_once() -> Self {
        let cost = |time, cpu, mebibytes| Cost { time, cpu, mebibytes };
        let clients = [cost(0.1, 0.06, 0.0), cost(0.4, 0.2, 0.0), cost(2.4, 1.74, 372.0)];
        Self { ready: 2.1, ready_cpu: 0.0, alone: 332.0, clients }
    }
}

/// The minimum cost of this many clients: a process that writes these bytes to every connection, without a hello.
async fn floor(bytes: &[u8]) -> Result<[f64; CLIENTS.len()]> {
    let serving = Serving::floor(bytes)?;
    let mut times = [0.0; CLIENTS.len()];
    for (time, count) in times.iter_mut().zip(CLIENTS) {
        *time = clients::readers(serving.address, bytes.len(), count).await?.as_secs_f64();
        settle().await;
    }
    Ok(times)
}

/// The median of a figure.
fn middle(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    testkit::median(rounds.iter().map(figure).collect())
}

/// The ratios of a figure over the rounds: lowest and highest.
fn spread(ours: &[Round], theirs: &[Round], figure: impl Fn(&Round) -> f64) -> String {
    let ratios = || ours.iter().zip(theirs).map(|(ours, theirs)| figure(ours) / figure(theirs));
    let (least, most) = (ratios().fold(f64::MAX, f64::min), ratios().fold(0.0, f64::max));
    if theirs.len() > 1 { format!(" ({least:.2} to {most:.2})") } else { String::new() }
}

/// Calico's own measurement, compared with its Typha if available, or else with recorded figures.
pub(crate) async fn beside_calico(store: &Filled, report: &mut Report) -> Result<()> {
    let (mut ours, mut theirs, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let peer = peer();
    for _ in 0..if peer.is_some() { ROUNDS } else { 1 } {
        theirs.push(match &peer {
            Some(program) => Round::run(Serving::typha(program, &[], store)?).await?.0,
            None => Round::taken_once(),
        });
        let (round, bytes) = Round::run(Serving::ours(store)?).await?;
        ours.push(round);
        floors.push(floor(&bytes).await?);
    }
    let who = if peer.is_some() { "Calico's Typha" } else { "Calico's Typha, taken once" };
    let keys = POLICIES + FEWER_ENDPOINTS;
    let both = |figure: fn(&Round) -> f64| (middle(&ours, figure), middle(&theirs, figure));
    let ((ready, other), (cpu, other_cpu)) = (both(|round| round.ready), both(|round| round.ready_cpu));
    report.row(
        &format!("{keys} keys: start to ready"),
        &format!("{ready:.2} s, {cpu:.2} CPU s"),
        &format!("{who}: {other:.2} s, {other_cpu:.2} CPU s"),
        &format!(
            "{}{} in time, {} in CPU",
            ratio(ready, other),
            spread(&ours, &theirs, |round| round.ready),
            ratio(cpu, other_cpu)
        ),
        "0.33",
    );
    let (own, alone) = both(|round| round.alone);
    report.row(
        &format!("{keys} keys: memory before any client"),
        &format!("{own:.0} MiB"),
        &format!("{who}: {alone:.0} MiB"),
        &ratio(own, alone),
        "0.2",
    );
    for (place, count) in CLIENTS.into_iter().enumerate() {
        let both = |figure: fn(&Cost) -> f64| {
            let of = |rounds| middle(rounds, |round| figure(&round.clients[place]));
            (of(&ours), of(&theirs))
        };
        let (time, other) = both(|cost| cost.time);
        let (cpu, other_cpu) = both(|cost| cost.cpu);
        let (mebibytes, others) = both(|cost| cost.mebibytes);
        let least = testkit::median(floors.iter().map(|times| times[place]).collect());
        report.row(
            &format!("{keys} keys to {count} clients: all in sync"),
            &format!("{time:.3} s, {cpu:.2} CPU s, {mebibytes:.0} MiB"),
            &format!(
                "{who}: {other:.3} s, {other_cpu:.2} CPU s, {others:.0} MiB; our bytes by a process that only writes them: \
                 {least:.3} s, {} of Calico's",
                ratio(least, other)
            ),
            &format!(
                "{}{} in time, {} in CPU",
                ratio(time, other),
                spread(&ours, &theirs, |round| round.clients[place].time),
                ratio(cpu, other_cpu)
            ),
            "0.5",
        );
    }
    Ok(())
}

/// Snapshots compared with the floor.
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

/// Disconnects all clients at once; they reconnect.
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
