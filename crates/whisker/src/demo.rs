//! Made-up flows of a small shop, to try the page without a cluster: allowed, denied, and flows that staged policies
//! would deny.
//!
//! Deterministic: the same time gives the same flows.

use crate::reasons;
use crate::source::{Local, SharedRing};
use daemon::Shutdown;
use flows::{
    Action, Counters, EndpointType, FlowKey, Labels, Peer, PolicyHit, Reporter, RingOptions, Service, Trace,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The length of the history at the start, in seconds.
const HISTORY: i64 = 900;
/// The policies and pods behind the flows.
const CLUSTER: &str = include_str!("demo/cluster.yaml");
/// How often flows arrive.
const BEAT: Duration = Duration::from_millis(500);

/// A recurring connection: source, destination, port, service, how often in a hundred beats, the policies at the
/// source, those at the destination, and the staged ones there.
struct Line {
    from: &'static str,
    to: &'static str,
    port: (&'static str, i64),
    service: &'static str,
    rate: u64,
    egress: &'static [&'static str],
    ingress: &'static [&'static str],
    pending: &'static [&'static str],
}

const OPEN: &[&str] = &["0|__PROFILE__|pro:kns.open|allow|0"];
const DNS: &[&str] = &["0|platform|gnp:allow-dns|allow|0"];

const LINES: &[Line] = &[
    Line {
        from: "-/pub",
        to: "shop/frontend-*",
        port: ("tcp", 8443),
        service: "shop/frontend",
        rate: 90,
        egress: &[],
        ingress: &["0|platform|gnp:baseline|pass|3", "1|default|np:shop/frontend|allow|0"],
        pending: &[],
    },
    Line {
        from: "shop/frontend-*",
        to: "shop/cart-*",
        port: ("tcp", 8080),
        service: "shop/cart",
        rate: 70,
        egress: &["0|platform|gnp:baseline|pass|3", "1|default|np:shop/frontend|allow|1"],
        ingress: &["0|platform|gnp:baseline|pass|3", "1|default|np:shop/cart|allow|0"],
        pending: &[],
    },
    Line {
        from: "shop/frontend-*",
        to: "shop/catalog-*",
        port: ("tcp", 8080),
        service: "shop/catalog",
        rate: 80,
        egress: &["0|platform|gnp:baseline|pass|3", "1|default|np:shop/frontend|allow|1"],
        ingress: &["0|platform|gnp:baseline|pass|3", "1|default|np:shop/catalog|allow|0"],
        pending: &[],
    },
    Line {
        from: "shop/cart-*",
        to: "shop/redis-0",
        port: ("tcp", 6379),
        service: "shop/redis",
        rate: 60,
        egress: OPEN,
        ingress: &["0|platform|gnp:baseline|pass|3", "1|default|np:shop/redis|allow|0"],
        pending: &[],
    },
    Line {
        from: "shop/cart-*",
        to: "payments/api-*",
        port: ("tcp", 8443),
        service: "payments/api",
        rate: 35,
        egress: OPEN,
        ingress: &["0|platform|gnp:baseline|pass|3", "1|default|knp:payments/api|allow|0"],
        pending: &[],
    },
    Line {
        from: "shop/frontend-*",
        to: "payments/ledger-0",
        port: ("tcp", 5432),
        service: "payments/ledger",
        rate: 25,
        egress: OPEN,
        ingress: &[
            "0|security|gnp:quarantine|pass|1",
            "1|platform|gnp:baseline|pass|3",
            "2|default|np:payments/ledger|deny|-1",
        ],
        pending: &[],
    },
    Line {
        from: "payments/api-*",
        to: "payments/ledger-0",
        port: ("tcp", 5432),
        service: "payments/ledger",
        rate: 50,
        egress: OPEN,
        ingress: &[
            "0|security|gnp:quarantine|pass|1",
            "1|platform|gnp:baseline|pass|3",
            "2|default|np:payments/ledger|allow|0",
        ],
        pending: &[],
    },
    Line {
        from: "payments/api-*",
        to: "-/pub",
        port: ("tcp", 443),
        service: "",
        rate: 30,
        egress: &["0|platform|gnp:baseline|pass|3", "1|default|np:payments/egress|allow|0"],
        ingress: &[],
        pending: &[],
    },
    Line {
        from: "shop/catalog-*",
        to: "-/pub",
        port: ("tcp", 443),
        service: "",
        rate: 12,
        egress: OPEN,
        ingress: &[],
        pending: &["0|platform|gnp:baseline|pass|3", "1|default|snp:shop/no-internet|deny|0"],
    },
    Line {
        from: "shop/cart-*",
        to: "-/bank-api",
        port: ("tcp", 443),
        service: "",
        rate: 10,
        egress: &["0|platform|gnp:baseline|deny|1"],
        ingress: &[],
        pending: &[],
    },
    Line {
        from: "ops/prometheus-0",
        to: "shop/cart-*",
        port: ("tcp", 9090),
        service: "",
        rate: 40,
        egress: OPEN,
        ingress: &["0|platform|gnp:monitoring|allow|0"],
        pending: &[],
    },
    Line {
        from: "ops/prometheus-0",
        to: "payments/api-*",
        port: ("tcp", 9090),
        service: "",
        rate: 40,
        egress: OPEN,
        ingress: &["0|platform|gnp:monitoring|allow|0"],
        pending: &["0|platform|gnp:monitoring|pass|0", "1|default|sgnp:payments-only|deny|-1"],
    },
    Line {
        from: "ops/grafana-*",
        to: "ops/prometheus-0",
        port: ("tcp", 9090),
        service: "ops/prometheus",
        rate: 20,
        egress: OPEN,
        ingress: OPEN,
        pending: &[],
    },
    Line {
        from: "ops/debug",
        to: "payments/ledger-0",
        port: ("tcp", 22),
        service: "",
        rate: 8,
        egress: OPEN,
        ingress: &["0|security|gnp:quarantine|deny|0"],
        pending: &[],
    },
    Line {
        from: "shop/frontend-*",
        to: "kube-system/coredns-*",
        port: ("udp", 53),
        service: "kube-system/kube-dns",
        rate: 60,
        egress: DNS,
        ingress: OPEN,
        pending: &[],
    },
    Line {
        from: "payments/api-*",
        to: "kube-system/coredns-*",
        port: ("udp", 53),
        service: "kube-system/kube-dns",
        rate: 30,
        egress: DNS,
        ingress: OPEN,
        pending: &[],
    },
    Line {
        from: "kube-system/coredns-*",
        to: "-/pvt",
        port: ("udp", 53),
        service: "",
        rate: 25,
        egress: OPEN,
        ingress: &[],
        pending: &[],
    },
];

/// Starts generating flows.
#[must_use]
pub(crate) fn start(shutdown: Shutdown) -> Local {
    let ring = SharedRing::new(RingOptions::default());
    let lines: Vec<[Option<FlowKey>; 2]> = LINES.iter().map(keys).collect();
    let now = now();
    for time in now - HISTORY..now {
        beat(&ring, &lines, time, u64::try_from(time).unwrap_or(0));
    }
    let filled = Arc::clone(&ring);
    tokio::spawn(async move {
        let mut number = 0;
        while shutdown.sleep(BEAT).await {
            number += 1;
            beat(&filled, &lines, self::now(), number);
        }
    });
    Local::new(ring, "made-up flows")
}

/// The policies and pods behind the flows.
#[must_use]
pub(crate) fn cluster() -> explain::Cluster {
    let mut cluster = explain::Cluster::new();
    // Errors are ignored: a test parses every object.
    for document in reasons::documents(CLUSTER.as_bytes()).unwrap_or_default() {
        let _ = cluster.add_manifest(document);
    }
    cluster.complete();
    cluster
}

fn now() -> i64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

fn beat(ring: &SharedRing, lines: &[[Option<FlowKey>; 2]], time: i64, number: u64) {
    for (place, (line, keys)) in (1..).zip(LINES.iter().zip(lines)) {
        let dice = mixed(number.wrapping_mul(97).wrapping_add(place));
        if dice % 100 >= line.rate {
            continue;
        }
        for key in keys.iter().flatten() {
            let labels = |peer: &Peer| -> Labels {
                let app = peer.name.trim_end_matches(['*', '-', '0']);
                let is_workload = peer.kind == EndpointType::Workload;
                is_workload.then(|| format!("app={app}")).into_iter().collect()
            };
            let is_denied = key.action == Action::Deny;
            let packets = if is_denied { 1 + dice % 3 } else { 4 + dice % 40 };
            let size = if is_denied { 60 } else { 80 + dice % 900 };
            let counters = Counters {
                packets_in: packets,
                packets_out: if is_denied { 0 } else { packets },
                bytes_in: packets * size,
                bytes_out: if is_denied { 0 } else { packets * (100 + dice % 300) },
                started: 1,
                completed: u64::from(!is_denied),
                live: 1,
            };
            ring.add(key, time, &counters, &labels(&key.source), &labels(&key.dest));
        }
    }
}

/// A pseudo-random number, always the same for the same input.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

/// The keys of the flows that both ends report for a line.
fn keys(line: &Line) -> [Option<FlowKey>; 2] {
    let (source, dest) = (peer(line.from), peer(line.to));
    let (namespace, name) = line.service.split_once('/').unwrap_or(("-", "-"));
    let key = |reporter: Reporter, hits: &[&str], pending: &[&str]| {
        let trace = trace(hits, pending);
        // Without policies everything passes.
        let action = trace.enforced.last().map_or(Action::Allow, |hit| hit.action);
        FlowKey {
            source: source.clone(),
            dest: dest.clone(),
            dest_port: line.port.1,
            service: Service {
                namespace: namespace.into(),
                name: name.into(),
                port_name: "-".into(),
                port: line.port.1,
            },
            protocol: line.port.0.into(),
            reporter,
            action,
            trace: Arc::new(trace),
        }
    };
    let is_workload = |peer: &Peer| peer.kind == EndpointType::Workload;
    let to_workload = is_workload(&dest);
    let from = is_workload(&source)
        .then(|| key(Reporter::Src, line.egress, if to_workload { &[] } else { line.pending }));
    let is_denied = from.as_ref().is_some_and(|key| key.action == Action::Deny);
    let to = (to_workload && !is_denied).then(|| key(Reporter::Dst, line.ingress, line.pending));
    [from, to]
}

fn peer(text: &str) -> Peer {
    let (namespace, name) = text.split_once('/').unwrap_or(("-", text));
    let kind = match (namespace, name) {
        ("-", "pub" | "pvt") => EndpointType::Network,
        ("-", _) => EndpointType::NetworkSet,
        _ => EndpointType::Workload,
    };
    Peer { kind, namespace: namespace.into(), name: name.into() }
}

/// Parses the table's texts, which are Calico's; a test parses them all.
fn trace(enforced: &[&str], pending: &[&str]) -> Trace {
    let hits =
        |texts: &[&str]| -> Vec<PolicyHit> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
    let pending = if pending.is_empty() { enforced } else { pending };
    Trace { enforced: hits(enforced), pending: hits(pending) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_the_table_parses_as_a_decision() {
        for line in LINES {
            for text in line.egress.iter().chain(line.ingress).chain(line.pending) {
                text.parse::<PolicyHit>().unwrap();
            }
        }
    }

    #[test]
    fn every_object_of_the_cluster_can_be_read() {
        let mut cluster = explain::Cluster::new();
        for document in reasons::documents(CLUSTER.as_bytes()).unwrap() {
            cluster.add_manifest(document).unwrap();
        }
        cluster.complete();
        assert_eq!(cluster.problems(), &[] as &[String]);
        let matrix = explain::matrix(&cluster, &explain::MatrixOptions::default()).unwrap();
        assert_eq!(matrix.senders.len(), 8);
    }
}
