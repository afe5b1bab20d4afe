//! Measurements with eBPF programs: the cost of packets between two pods, in turns with plain routing; and how long a
//! change of policy takes to reach the programs.
//!
//! Measurement starts only after programs judge packets: Felix is not ready before that.

use crate::Wanted;
use crate::cluster::{Cluster, HOST, SHAPES, interface, policy};
use crate::daemon::Felix;
use crate::host::{self, Filter, shell};
use crate::packets::{CASES, cluster, take_turns};
use crate::programming::quantile;
use crate::traffic::{Pods, Speed};
use anyhow::{Context as _, Result, ensure};
use bpf::Map;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::Report;
use tokio::runtime::Runtime;

/// The words on the command line.
pub(crate) const PACKETS: &str = "packets-ebpf";
const UPDATES: &str = "updates-ebpf";
/// How often policy is changed.
const CHANGES: usize = if cfg!(debug_assertions) { 5 } else { 100 };
/// Changes come one at a time; the after-effects of one last less than a tenth of a second.
const PAUSE: Duration = Duration::from_millis(250);
/// How long after a start memory is read.
const SETTLED: Duration = Duration::from_secs(1);
pub(crate) const SETTINGS: [(&str, &str); 2] =
    [("BPFENABLED", "true"), ("BPFKUBEPROXYIPTABLESCLEANUPENABLED", "false")];

/// Packets between the two pods of this host, with 0, 100 and 1,000 policies.
pub(crate) fn packets(runtime: &Runtime, pods: &Pods, plain: &Pods, report: &mut Report) -> Result<()> {
    for case in CASES.iter().filter(|case| case.others == 0) {
        let cluster = runtime.block_on(cluster(case))?;
        let mut felix = start(&cluster)?;
        felix.wait_until_ready()?;
        ensure!(pods.reach()?, "programs do not let packets through:\n{}", felix.log());
        let [ours, base] = take_turns([pods, plain]).with_context(|| felix.log())?;
        rows(report, &format!("two pods, {} selecting policies, eBPF", case.policies), ours, base);
        drop(felix);
        clean()?;
    }
    Ok(())
}

fn start(cluster: &Cluster) -> Result<Felix> {
    Felix::start_with(None, HOST, &cluster.etcd.endpoint(), Filter::Nftables, &SETTINGS)
}

/// Detaches programs from interfaces, and removes all maps; the rest of the file system belongs to the kernel.
pub(crate) fn clean() -> Result<()> {
    shell("find /sys/fs/bpf -mindepth 1 -path '/sys/fs/bpf/netns-*' -delete", "")?;
    host::clean()
}

/// A kind of figure, its unit, its accessor, and its goal.
type Row = (&'static str, &'static str, fn(&Speed) -> f64, &'static str);

fn rows(report: &mut Report, what: &str, ours: Speed, plain: Speed) {
    let rows: [Row; 3] = [
        ("throughput", "Gbit/s", |speed| speed.gigabits, "at least 0.95"),
        ("round trip", "µs", |speed| speed.round_trip_us, ""),
        ("new connections/s", "/s", |speed| speed.connections, "at least 0.9"),
    ];
    for (kind, unit, of, goal) in rows {
        report.row(
            &format!("{what}: {kind}"),
            &format!("{:.1} {unit}", of(&ours)),
            &format!("plain routing: {:.1} {unit}", of(&plain)),
            &format!("{:.2}", of(&ours) / of(&plain)),
            goal,
        );
    }
}

/// How long a change of one of 5,000 policies takes until interfaces have new lists of rules, which is when packets
/// meet it.
pub(crate) fn updates(runtime: &Runtime, wanted: &Wanted, report: &mut Report) -> Result<()> {
    let shape = &SHAPES[1];
    if !wanted.has(UPDATES) {
        return Ok(());
    }
    let (policies, local, remote) = shape.for_this_build();
    let cluster = runtime.block_on(Cluster::of(shape))?;
    host::make_uplink()?;
    host::make_interfaces((0..local).map(interface))?;
    let beside = {
        let mut felix = Felix::start(&cluster.etcd.endpoint(), Filter::Nftables)?;
        let seconds = felix.wait_until_ready()?.as_secs_f64();
        std::thread::sleep(SETTLED);
        (seconds, felix.memory()?)
    };
    host::clean()?;
    let mut felix = start(&cluster)?;
    let seconds = felix.wait_until_ready()?.as_secs_f64();
    std::thread::sleep(SETTLED);
    let memory = felix.memory()?;
    let what = format!("{policies} policies, {local} local, {remote} remote, eBPF");
    for (name, unit, ours, theirs, goal) in [
        ("start to programmed", "s", seconds, beside.0, ""),
        ("resident memory", "MiB", memory, beside.1, "about 1"),
    ] {
        report.row(
            &format!("{what}: {name}"),
            &format!("{ours:.2} {unit}"),
            &format!("ours, nft: {theirs:.2} {unit}"),
            &format!("{:.2}", ours / theirs),
            goal,
        );
    }
    let lists = Map::open(&pin("bpfp_lists")?)?;
    let read = || -> Result<Vec<_>> {
        let mut entries = lists.entries()?;
        entries.sort();
        Ok(entries)
    };
    let (mut whole, mut writes) = (Vec::new(), Vec::new());
    let before = felix.cpu()?;
    for round in 0..CHANGES {
        std::thread::sleep(PAUSE);
        let old = read()?;
        let entry = policy(round * 37 % policies, local, 9000 + u16::try_from(round)?)?;
        let begin = Instant::now();
        // Watches while etcd still writes: the change may take effect before etcd's answer.
        let seen = std::thread::scope(|scope| {
            let seen = scope.spawn(|| -> Result<Instant> {
                while read()? == old {
                    ensure!(begin.elapsed() < Duration::from_secs(30), "no change reached the programs");
                    std::thread::sleep(Duration::from_micros(100));
                }
                Ok(Instant::now())
            });
            runtime.block_on(cluster.client.backend().apply(&entry))?;
            writes.push(begin.elapsed().as_secs_f64() * 1000.0);
            seen.join().map_err(|_| anyhow::anyhow!("the watching thread panicked"))?
        })
        .with_context(|| felix.log())?;
        whole.push((seen - begin).as_secs_f64() * 1000.0);
    }
    let rest: Vec<f64> = whole.iter().zip(&writes).map(|(whole, write)| (whole - write).max(0.0)).collect();
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    let cpu = (felix.cpu()? - before) * 1000.0 / CHANGES as f64;
    let write = quantile(&writes, 0.5);
    for (name, values, goal) in
        [("write to effect", &whole, ""), ("etcd's answer to effect", &rest, "at most 2 ms")]
    {
        let (half, most) = (quantile(values, 0.5), quantile(values, 0.99));
        report.row(
            &format!("{what}: {name}, p50"),
            &format!("{half:.2} ms"),
            &format!("etcd's write alone: {write:.2} ms"),
            &format!("{:.2}", half / write),
            goal,
        );
        report.row(&format!("{what}: {name}, p99"), &format!("{most:.2} ms"), "", "", "");
    }
    report.row(&format!("{what}: CPU of one update"), &format!("{cpu:.2} ms"), "", "", "");
    drop(felix);
    clean()?;
    host::remove_interfaces((0..local).map(interface))
}

/// Where a map is pinned.
fn pin(map: &str) -> Result<PathBuf> {
    let found = shell(&format!("find /sys/fs/bpf -name {map}"), "")?;
    Ok(PathBuf::from(found.lines().next().with_context(|| format!("{map} is not pinned"))?))
}
