//! From the datastore to the kernel: a whole cluster, then one change at a time, then nothing.

use crate::Wanted;
use crate::cluster::{Calico, Cluster, Shape, interface, policy};
use crate::daemon::Felix;
use crate::host::{self, Filter};
use anyhow::{Context as _, Result, ensure};
use netlink::netfilter::nft;
use netlink::netfilter::watch::Watch;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testkit::{Report, median};
use tokio::runtime::Runtime;

const STARTS: usize = if cfg!(debug_assertions) { 1 } else { 3 };
const UPDATES: usize = if cfg!(debug_assertions) { 5 } else { 100 };
/// How long after a start memory is read.
const SETTLED: Duration = Duration::from_millis(300);
/// How often the kernel's own share is measured.
const FLOORS: usize = if cfg!(debug_assertions) { 1 } else { 25 };
const IDLE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 1 } else { 10 });
/// Changes come one at a time, not as a burst.
const PAUSE: Duration = Duration::from_millis(120);

pub(crate) fn measure(runtime: &Runtime, shape: &Shape, wanted: &Wanted, report: &mut Report) -> Result<()> {
    let names = Filter::BOTH.map(|filter| format!("{}-{}", filter.name(), shape.name));
    if !names.iter().any(|name| wanted.has(name)) {
        return Ok(());
    }
    let (_, local, _) = shape.for_this_build();
    let cluster = runtime.block_on(Cluster::of(shape))?;
    host::make_uplink()?;
    host::make_interfaces((0..local).map(interface))?;
    for (filter, name) in Filter::BOTH.into_iter().zip(&names) {
        if wanted.has(name) {
            let calico = match filter {
                Filter::Nftables => &shape.nftables,
                Filter::Iptables => &shape.iptables,
            };
            measure_filter(runtime, &cluster, shape, filter, calico, report)
                .with_context(|| format!("measuring {name}"))?;
        }
    }
    host::remove_interfaces((0..local).map(interface))
}

/// The cost of one start.
struct Start {
    seconds: f64,
    memory: f64,
    peak: f64,
    cpu: f64,
}

fn start(cluster: &Cluster, filter: Filter, policies: usize) -> Result<(Felix, Start)> {
    let mut felix = Felix::start(&cluster.etcd.endpoint(), filter)?;
    let seconds = felix.wait_until_ready()?.as_secs_f64();
    let cpu = felix.cpu()?;
    // By then it has returned the memory that only the start needed.
    std::thread::sleep(SETTLED);
    let start = Start { seconds, memory: felix.memory()?, peak: felix.peak_memory()?, cpu };
    let there = filter.policy_chains()?;
    ensure!(there >= policies, "ready with {there} of {policies} policies in the kernel:\n{}", felix.log());
    Ok((felix, start))
}

fn measure_filter(
    runtime: &Runtime,
    cluster: &Cluster,
    shape: &Shape,
    filter: Filter,
    calico: &Calico,
    report: &mut Report,
) -> Result<()> {
    let (policies, local, remote) = shape.for_this_build();
    let what = format!("{policies} policies, {local} local, {remote} remote, {}", filter.name());
    let mut starts = Vec::new();
    let mut running = None;
    for _ in 0..STARTS {
        drop(running.take());
        host::clean()?;
        let (felix, start) = start(cluster, filter, policies)?;
        starts.push(start);
        running = Some(felix);
    }
    drop(running);
    // Everything is in the kernel already.
    let (felix, again) = start(cluster, filter, policies)?;
    let middle = |of: fn(&Start) -> f64| median(starts.iter().map(of).collect());
    let seconds = middle(|one| one.seconds);
    row(report, &format!("{what}: start to programmed"), seconds, "s", calico.start_seconds, "at most 0.33");
    row(
        report,
        &format!("{what}: resident memory"),
        middle(|one| one.memory),
        "MiB",
        calico.memory_mib,
        "at most 0.2",
    );
    let (cpu, peak) = (middle(|one| one.cpu), middle(|one| one.peak));
    match calico.cpu_seconds {
        Some(theirs) => row(report, &format!("{what}: CPU seconds"), cpu, "s", theirs, "at most 0.25"),
        None => report.row(&format!("{what}: CPU seconds"), &format!("{cpu:.2} s"), "", "", ""),
    }
    report.row(&format!("{what}: most memory"), &format!("{peak:.1} MiB"), "", "", "");
    report.row(
        &format!("{what}: start of the next Felix, which finds everything"),
        &format!("{:.2} s, {:.2} CPU s", again.seconds, again.cpu),
        &format!("first start: {seconds:.2} s"),
        &format!("{:.2}", again.seconds / seconds),
        "below 1",
    );
    let updates = update(runtime, cluster, &felix, filter, (policies, local))?;
    let (half, most) = (quantile(&updates.times, 0.5), quantile(&updates.times, 0.99));
    let goal = if filter == Filter::Nftables { "at most 5 ms" } else { "at most 30 ms" };
    row(report, &format!("{what}: write to rule in the kernel, p50"), half, "ms", calico.update_ms, goal);
    report.row(
        &format!("{what}: write to rule in the kernel, p99"),
        &format!("{most:.1} ms"),
        &format!("etcd's write alone, p50: {:.1} ms", quantile(&updates.writes, 0.5)),
        &format!("{:.1}", most / quantile(&updates.writes, 0.5)),
        "",
    );
    report.row(&format!("{what}: CPU of one update"), &format!("{:.2} ms", updates.cpu_ms), "", "", "");
    std::thread::sleep(Duration::from_secs(1));
    let before = felix.exact_cpu()?;
    std::thread::sleep(IDLE);
    let used = Duration::from_nanos(felix.exact_cpu()? - before);
    report.row(
        &format!("{what}: idle CPU"),
        &format!("{:.3} %", used.as_secs_f64() / IDLE.as_secs_f64() * 100.0),
        "",
        "",
        "0",
    );
    report.row(
        &format!("{what}: resident memory after that"),
        &format!("{:.1} MiB", felix.memory()?),
        "",
        "",
        "",
    );
    drop(felix);
    if filter == Filter::Nftables {
        let floor = floor()?;
        report.row(
            &format!("{what}: the same beside the kernel's own part"),
            &format!("{half:.1} ms"),
            &format!("one rule more in that table: {floor:.1} ms"),
            &format!("{:.1}", half / floor),
            "",
        );
    }
    host::clean()
}

/// The milliseconds that the kernel takes to accept the smallest change of the table that Felix left: it checks the
/// whole table. Changes are as far apart as updates: of those right after each other only the first finds cold caches.
fn floor() -> Result<f64> {
    let mut times = Vec::new();
    let table = nft::Table::new(nft::Family::Ip, "calico");
    let mut client = nft::Client::open()?;
    let add = nft::Change::AddChain { name: "floor".into(), base: None };
    let rule = nft::Rule {
        chain: "floor".into(),
        expressions: vec![nft::Expression::Verdict(nft::Verdict::Return)],
        comment: "".into(),
    };
    let changes = [add, nft::Change::FlushChain("floor".into()), nft::Change::AppendRule(rule)];
    for _ in 0..FLOORS {
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        client.commit(&table, &changes)??;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(times))
}

fn row(report: &mut Report, what: &str, ours: f64, unit: &str, calico: f64, goal: &str) {
    let (ours_text, calico_text) = (format!("{ours:.2} {unit}"), format!("Calico: {calico} {unit}"));
    report.row(what, &ours_text, &calico_text, &format!("{:.2}", ours / calico), goal);
}

/// Milliseconds of each update.
struct Updates {
    times: Vec<f64>,
    writes: Vec<f64>,
    cpu_ms: f64,
}

/// Changes policies in turn and records when the kernel has new rules.
fn update(
    runtime: &Runtime,
    cluster: &Cluster,
    felix: &Felix,
    filter: Filter,
    (policies, local): (usize, usize),
) -> Result<Updates> {
    let changes = listen()?;
    let mut updates = Updates { times: Vec::new(), writes: Vec::new(), cpu_ms: 0.0 };
    let before = felix.cpu()?;
    for round in 0..UPDATES {
        std::thread::sleep(PAUSE);
        while changes.try_recv().is_ok() {}
        // A port different from that of the other packet filter, or nothing would change.
        let port = if filter == Filter::Nftables { 9000 } else { 19_000 } + u16::try_from(round)?;
        let entry = policy(round * 37 % policies, local, port)?;
        let begin = Instant::now();
        runtime.block_on(cluster.client.backend().apply(&entry))?;
        updates.writes.push(begin.elapsed().as_secs_f64() * 1000.0);
        let seen = changes.recv_timeout(Duration::from_secs(30)).context("no rule came into the kernel")?;
        updates.times.push(seen.saturating_duration_since(begin).as_secs_f64() * 1000.0);
    }
    std::thread::sleep(PAUSE);
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    let rounds = UPDATES as f64;
    updates.cpu_ms = (felix.cpu()? - before) * 1000.0 / rounds;
    Ok(updates)
}

/// The times at which nftables was changed. The thread ends with the program or when the receiver is dropped.
fn listen() -> Result<Receiver<Instant>> {
    let mut watch = Watch::open()?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while let Ok(seen) = watch.wait(&[], None) {
            if !seen.is_empty() && sender.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// The value below which this share of all values is.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index of a short list"
    )]
    let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}
