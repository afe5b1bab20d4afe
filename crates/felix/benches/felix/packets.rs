//! What packets between two pods pay: plain routing on a host without Felix, and a host with Felix and some policies.
//!
//! Both hosts are there at once and take turns, so that a noisy machine is noisy for both.

use crate::Wanted;
use crate::cluster::{Cluster, HOST, policy_of};
use crate::daemon::Felix;
use crate::host::{self, Filter, shell};
use crate::traffic::{Pods, Speed};
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use model::KvPair;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use testkit::{Report, median};
use tokio::runtime::Runtime;

const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 5 };
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
const INTERFACES: [&str; 2] = ["calibenchc", "calibenchs"];

/// Policies that select the server and do not match, before one that does; and what Calico's Felix got on one host.
struct Case {
    policies: usize,
    nftables: Speed,
    iptables: Speed,
}

const fn speed(gigabits: f64, round_trip_us: f64, connections: f64) -> Speed {
    Speed { gigabits, round_trip_us, connections }
}

/// Throughput and round trip were taken without policies; established connections do not see them.
const CASES: [Case; 3] = [
    Case { policies: 0, nftables: speed(9.5, 14.0, 7700.0), iptables: speed(8.8, 15.0, 6700.0) },
    Case { policies: 100, nftables: speed(9.5, 14.0, 7000.0), iptables: speed(8.8, 15.0, 4700.0) },
    Case { policies: 1000, nftables: speed(9.5, 14.0, 4100.0), iptables: speed(8.8, 15.0, 2000.0) },
];

pub(crate) fn measure(runtime: &Runtime, wanted: &Wanted, report: &mut Report) -> Result<()> {
    let names = Filter::BOTH.map(|filter| format!("packets-{}", filter.name()));
    if !names.iter().any(|name| wanted.has(name)) {
        return Ok(());
    }
    host::make_uplink()?;
    shell("ip netns add plain; ip -n plain link set lo up", "")?;
    let plain = Pods::make("plain", Some("plain"), ["plainc", "plains"], [CLIENT, SERVER])?;
    for (interface, address) in ["plainc", "plains"].iter().zip([CLIENT, SERVER]) {
        shell(&format!("ip -n plain route add {address}/32 dev {interface}"), "")?;
    }
    ensure!(plain.reach()?, "plain routing does not work");
    let pods = Pods::make("ours", None, INTERFACES, [CLIENT, SERVER])?;
    for timeout in ["time_wait", "close"] {
        // So that the table of connections does not fill up with those of earlier rounds.
        shell(&format!("echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_{timeout}"), "")?;
    }
    for (filter, name) in Filter::BOTH.into_iter().zip(names) {
        for case in CASES.iter().filter(|_| wanted.has(&name)) {
            let cluster = runtime.block_on(cluster(case))?;
            let mut felix = Felix::start(&cluster.etcd.endpoint(), filter)?;
            felix.wait_until_ready()?;
            let (ours, base) = take_turns(&pods, &plain).with_context(|| felix.log())?;
            rows(report, filter, case, ours, base);
            drop(felix);
            host::clean()?;
        }
    }
    Ok(())
}

/// The two pods, and policies that select the server.
async fn cluster(case: &Case) -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    let pods = [("client", INTERFACES[0], CLIENT), ("server", INTERFACES[1], SERVER)].map(|(pod, interface, address)| {
        let object = json!({
            "metadata": {"name": format!("{HOST}-k8s-{pod}-eth0"), "namespace": "shop",
                "labels": {"role": pod, "projectcalico.org/orchestrator": "k8s", "projectcalico.org/namespace": "shop"}},
            "spec": {"orchestrator": "k8s", "node": HOST, "pod": pod, "endpoint": "eth0", "interfaceName": interface,
                "profiles": ["kns.shop"], "ipNetworks": [format!("{address}/32")]},
        });
        Ok(KvPair::resource(Resource::from_value(Kind::WorkloadEndpoint, object)?))
    });
    cluster.write(pods.into_iter().collect::<Result<_>>()?).await?;
    let policies = (0..case.policies).map(|number| {
        let rule = match number + 1 == case.policies {
            true => json!([{"action": "Allow", "protocol": "TCP"}]),
            false => json!([{"action": "Allow", "protocol": "TCP",
                "source": {"nets": [format!("10.{}.{}.0/24", number / 256, number % 256)]},
                "destination": {"ports": [80]}}]),
        };
        policy_of(&format!("policy-{number}"), number, "role == 'server'", &rule)
    });
    cluster.write(policies.collect::<Result<_>>()?).await?;
    Ok(cluster)
}

fn take_turns(ours: &Pods, plain: &Pods) -> Result<(Speed, Speed)> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !ours.reach()? {
        ensure!(Instant::now() < deadline, "the pods do not reach each other");
    }
    let (mut own, mut base) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(ours.measure()?);
        base.push(plain.measure()?);
    }
    Ok((middle(&own), middle(&base)))
}

fn middle(speeds: &[Speed]) -> Speed {
    let of = |value: fn(&Speed) -> f64| median(speeds.iter().map(value).collect());
    Speed {
        gigabits: of(|speed| speed.gigabits),
        round_trip_us: of(|speed| speed.round_trip_us),
        connections: of(|speed| speed.connections),
    }
}

fn rows(report: &mut Report, filter: Filter, case: &Case, ours: Speed, plain: Speed) {
    let calico = match filter {
        Filter::Nftables => case.nftables,
        Filter::Iptables => case.iptables,
    };
    let what = format!("two pods, {} selecting policies, {}", case.policies, filter.name());
    let mut row = |kind: &str, unit: &str, of: fn(&Speed) -> f64, goal: &str| {
        report.row(
            &format!("{what}: {kind}"),
            &format!("{:.1} {unit}", of(&ours)),
            &format!("plain routing: {:.1} {unit} (Calico: {} {unit})", of(&plain), of(&calico)),
            &format!("{:.2}", of(&ours) / of(&plain)),
            goal,
        );
    };
    row("throughput", "Gbit/s", |speed| speed.gigabits, "");
    row("round trip", "µs", |speed| speed.round_trip_us, "");
    let goal = match (filter, case.policies) {
        (Filter::Nftables, 0) => "at least 0.85",
        _ => "not behind Calico",
    };
    row("new connections/s", "/s", |speed| speed.connections, goal);
}
