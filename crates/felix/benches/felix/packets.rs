//! The cost of packets between two pods: plain routing on a host without Felix, and a host with Felix and some
//! policies.
//!
//! All hosts exist at the same time and take turns, so that noise on the machine affects all of them. Measurement
//! starts only after all chains are in the kernel.

use crate::Wanted;
use crate::cluster::{Cluster, HOST, endpoint, policy, policy_of};
use crate::daemon::Felix;
use crate::ebpf;
use crate::host::{self, Filter, shell};
use crate::traffic::{Pods, Speed, on};
use crate::two_hosts;
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use model::KvPair;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use testkit::{Report, median};
use tokio::runtime::Runtime;

const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 5 };
/// The number of slices of small packets, for each kind and host.
const SLICES: usize = if cfg!(debug_assertions) { 5 } else { 500 };
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
const INTERFACES: [&str; 2] = ["calibenchc", "calibenchs"];
/// The number of endpoints of the host, and policies for them, that do not concern the two pods.
const OTHERS: usize = if cfg!(debug_assertions) { 20 } else { 1000 };

/// Policies that select the server and do not match, before one that does; others on the host; and the figures of
/// Calico's Felix on one host without others.
pub(crate) struct Case {
    pub(crate) policies: usize,
    pub(crate) others: usize,
    nftables: Speed,
    iptables: Speed,
}

const fn speed(gigabits: f64, round_trip_us: f64, connections: f64) -> Speed {
    Speed { gigabits, round_trip_us, connections }
}

/// Plain routing where Calico's figures were taken. Its methods of measurement are not known in detail, so ratios are
/// compared.
const CALICOS_PLAIN: Speed = speed(13.5, 7.0, 10_900.0);

/// Throughput and round trip were measured without policies, which do not affect established connections.
pub(crate) const CASES: [Case; 4] = [
    Case { policies: 0, others: 0, nftables: speed(9.5, 14.0, 7700.0), iptables: speed(8.8, 15.0, 6700.0) },
    Case {
        policies: 0,
        others: OTHERS,
        nftables: speed(9.5, 14.0, 7700.0),
        iptables: speed(8.8, 15.0, 6700.0),
    },
    Case { policies: 100, others: 0, nftables: speed(9.5, 14.0, 7000.0), iptables: speed(8.8, 15.0, 4700.0) },
    Case {
        policies: 1000,
        others: 0,
        nftables: speed(9.5, 14.0, 4100.0),
        iptables: speed(8.8, 15.0, 2000.0),
    },
];

/// How policies are programmed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Chains,
    Compiled,
}

impl Mode {
    const fn word(self) -> &'static str {
        match self {
            Self::Chains => "Chains",
            Self::Compiled => "Compiled",
        }
    }

    /// The word on the command line.
    fn name(self, filter: Filter) -> String {
        match self {
            Self::Chains => format!("packets-{}", filter.name()),
            Self::Compiled => format!("packets-compiled-{}", filter.name()),
        }
    }
}

/// Connection tracking and hooks for NAT: the cost of any stateful packet filter, whatever its rules.
const TRACKING: &str = "table ip floor {
    chain forward { type filter hook forward priority filter; ct state established,related accept; }
    chain before { type nat hook prerouting priority dstnat; }
    chain after { type nat hook postrouting priority srcnat; }
}";

pub(crate) fn measure(runtime: &Runtime, wanted: &Wanted, report: &mut Report) -> Result<()> {
    let modes =
        Filter::BOTH.into_iter().flat_map(|filter| [Mode::Chains, Mode::Compiled].map(|mode| (filter, mode)));
    let modes: Vec<(Filter, Mode)> = modes.filter(|(filter, mode)| wanted.has(&mode.name(*filter))).collect();
    if modes.is_empty() && !wanted.has(ebpf::PACKETS) {
        return Ok(());
    }
    host::make_uplink()?;
    let plain = without_felix("plain")?;
    let tracked = without_felix("tracked")?;
    shell("ip netns exec tracked nft -f -", TRACKING)?;
    let pods = Pods::make("ours", [None; 2], INTERFACES, [CLIENT, SERVER])?;
    expire_quickly(&[None, Some("tracked")])?;
    let far = two_hosts::Ground::make()?;
    let [floor, base] = take_turns([&tracked, &plain])?;
    rows(report, "two pods, connections tracked and no rules", floor, base, None);
    if wanted.has(ebpf::PACKETS) {
        ebpf::packets(runtime, &pods, &plain, report)?;
    }
    for (filter, mode) in modes {
        for case in &CASES {
            let cluster = runtime.block_on(cluster(case))?;
            let settings = [("NFTABLESPOLICYMODE", mode.word()), ("IPTABLESPOLICYMODE", mode.word())];
            let mut felix = Felix::start_with(None, HOST, &cluster.etcd.endpoint(), filter, &settings)?;
            felix.wait_until_ready()?;
            wait_until_there(case, filter, mode, &pods).with_context(|| felix.log())?;
            let [ours, base] = take_turns([&pods, &plain]).with_context(|| felix.log())?;
            let mut what = format!("two pods, {} selecting policies", case.policies);
            if case.others > 0 {
                what.push_str(&format!(", {} other endpoints and policies", case.others));
            }
            if mode == Mode::Compiled {
                what.push_str(", compiled");
            }
            rows(report, &format!("{what}, {}", filter.name()), ours, base, Some((filter, case)));
            drop(felix);
            host::clean()?;
        }
        if mode == Mode::Chains {
            let [ours, base] = far.measure(runtime, filter)?;
            rows(report, &format!("two pods on two hosts, no policy, {}", filter.name()), ours, base, None);
        }
    }
    Ok(())
}

/// Keeps the connection tables of these hosts from filling up with connections of earlier rounds.
pub(crate) fn expire_quickly(hosts: &[Option<&str>]) -> Result<()> {
    for timeout in ["time_wait", "close"] {
        let set = format!("echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_{timeout}");
        for host in hosts {
            shell(&on(*host, &format!("sh -c '{set}'")), "")?;
        }
    }
    Ok(())
}

/// Two pods on a host that only routes.
pub(crate) fn without_felix(name: &str) -> Result<Pods> {
    shell(&format!("ip netns add {name}; ip -n {name} link set lo up"), "")?;
    let interfaces = [format!("{name}c"), format!("{name}s")];
    let pods = Pods::make(
        name,
        [Some(name); 2],
        [interfaces[0].as_str(), interfaces[1].as_str()],
        [CLIENT, SERVER],
    )?;
    for (interface, address) in interfaces.iter().zip([CLIENT, SERVER]) {
        shell(&format!("ip -n {name} route add {address}/32 dev {interface}"), "")?;
    }
    ensure!(pods.reach()?, "plain routing does not work");
    Ok(pods)
}

/// The two pods, policies that select the server, and others.
pub(crate) async fn cluster(case: &Case) -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    let pods = [("client", INTERFACES[0], CLIENT), ("server", INTERFACES[1], SERVER)];
    let pods = pods.map(|(name, interface, address)| pod(HOST, name, interface, address));
    cluster.write(pods.into_iter().collect::<Result<_>>()?).await?;
    let others = (0..case.others).map(|number| endpoint(number, case.others));
    cluster.write(others.collect::<Result<_>>()?).await?;
    let others = (0..case.others).map(|number| policy(number, case.others, 8080));
    cluster.write(others.collect::<Result<_>>()?).await?;
    let policies = (0..case.policies).map(|number| {
        let rule = match number + 1 == case.policies {
            // When compiled, this is not a lookup, and therefore tested after all others, too.
            true => json!([{"action": "Allow", "protocol": "TCP", "source": {"ports": ["1024:65535"]}}]),
            false => json!([{"action": "Allow", "protocol": "TCP",
                "source": {"nets": [format!("10.{}.{}.0/24", number / 256, number % 256)]},
                "destination": {"ports": [80]}}]),
        };
        policy_of(&format!("policy-{number}"), number, "role == 'server'", &rule)
    });
    cluster.write(policies.collect::<Result<_>>()?).await?;
    Ok(cluster)
}

/// A pod of a host.
pub(crate) fn pod(host: &str, name: &str, interface: &str, address: Ipv4Addr) -> Result<KvPair> {
    let object = json!({
        "metadata": {"name": format!("{host}-k8s-{name}-eth0"), "namespace": "shop",
            "labels": {"role": name, "projectcalico.org/orchestrator": "k8s", "projectcalico.org/namespace": "shop"}},
        "spec": {"orchestrator": "k8s", "node": host, "pod": name, "endpoint": "eth0", "interfaceName": interface,
            "profiles": ["kns.shop"], "ipNetworks": [format!("{address}/32")]},
    });
    Ok(KvPair::resource(Resource::from_value(Kind::WorkloadEndpoint, object)?))
}

/// Waits until everything is in the kernel, and the pods reach each other.
fn wait_until_there(case: &Case, filter: Filter, mode: Mode, pods: &Pods) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mark = match filter {
        Filter::Nftables => "chain filter-cali-tw-",
        Filter::Iptables => "chain cali-tw-",
    };
    loop {
        let endpoints = shell("nft list chains ip", "")?.matches(mark).count();
        let policies = filter.policy_chains()?;
        let wanted = if mode == Mode::Chains { case.policies + case.others } else { 0 };
        if endpoints == 2 + case.others && policies >= wanted && pods.reach()? {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{endpoints} endpoints and {policies} policies are there, and pods may not reach each other"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Measures hosts in turns, slice by slice, so that noise on the machine affects all of them.
pub(crate) fn take_turns<const HOSTS: usize>(hosts: [&Pods; HOSTS]) -> Result<[Speed; HOSTS]> {
    let mut seen = [const { Vec::new() }; HOSTS];
    for _ in 0..ROUNDS {
        for (pods, seen) in hosts.iter().zip(&mut seen) {
            seen.push(pods.throughput()?);
        }
    }
    let gigabits = seen.map(median);
    let mut probes = Vec::new();
    for pods in hosts {
        probes.push((pods.probe()?, Vec::new(), Vec::new()));
    }
    for _ in 0..SLICES {
        for (probe, round_trips, connections) in &mut probes {
            round_trips.push(probe.round_trip()?);
            connections.push(probe.connections()?);
        }
    }
    let mut speeds = gigabits.map(|gigabits| Speed { gigabits, ..Speed::default() });
    for (speed, (_, round_trips, connections)) in speeds.iter_mut().zip(probes) {
        speed.round_trip_us = undisturbed(round_trips) * 1e6;
        speed.connections = 1.0 / undisturbed(connections);
    }
    Ok(speeds)
}

/// The time of an undisturbed slice: nine in ten took longer. Without disturbance all take nearly the same time.
pub(crate) fn undisturbed(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 10).copied().unwrap_or(f64::NAN)
}

fn rows(report: &mut Report, what: &str, ours: Speed, plain: Speed, calico: Option<(Filter, &Case)>) {
    let mut row = |kind: &str, unit: &str, of: fn(&Speed) -> f64, goal: fn(Filter, &Case, f64) -> String| {
        let mut peer = format!("plain routing: {:.1} {unit}", of(&plain));
        let mut wanted = String::new();
        if let Some((filter, case)) = calico {
            let theirs = match filter {
                Filter::Nftables => of(&case.nftables),
                Filter::Iptables => of(&case.iptables),
            };
            let base = of(&CALICOS_PLAIN);
            peer.push_str(&format!(" (Calico: {theirs} of {base} {unit}, {:.2})", theirs / base));
            wanted = goal(filter, case, theirs / base);
        }
        report.row(
            &format!("{what}: {kind}"),
            &format!("{:.1} {unit}", of(&ours)),
            &peer,
            &format!("{:.2}", of(&ours) / of(&plain)),
            &wanted,
        );
    };
    row("throughput", "Gbit/s", |speed| speed.gigabits, |_, _, calico| format!("at least {calico:.2}"));
    row("round trip", "µs", |speed| speed.round_trip_us, |_, _, calico| format!("at most {calico:.2}"));
    row(
        "new connections/s",
        "/s",
        |speed| speed.connections,
        |filter, case, calico| match (filter, case) {
            (Filter::Nftables, Case { policies: 0, .. }) => "at least 0.85".to_owned(),
            _ => format!("at least {calico:.2}"),
        },
    );
}
