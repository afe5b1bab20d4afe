//! The cost of flow logs on a node: reading the packets that rules report, and evaluating staged policies.

use anyhow::{Result, ensure};
use api::Kind;
use flows::Direction;
use flows::collector::Tuple;
use flows::pending::{Evaluator, LocalEndpoint};
use messages::{
    PolicyId, PortRange, Rule, RuleEnd, TierInfo, ToDataplane, WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use netlink::netfilter::nflog::Nflog;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::Report;
use testkit::network::Namespace;

const RULES: &str = r#"
    table inet bench {
        chain output {
            type filter hook output priority 0;
            udp dport 1024-65535 log prefix "DPI|default" snaplen 80 group 1 drop
        }
    }
"#;
/// The number of denied packets per second in a flood.
const FLOOD: u32 = 50_000;
/// The duration of each measurement.
const TIME: Duration = Duration::from_secs(5);

/// Reads reported packets as fast as they arrive, and those of a flood.
pub(crate) fn nflog(report: &mut Report) -> Result<()> {
    let namespace = Namespace::new(&format!("gb{}", std::process::id()))?;
    namespace.batch("link set lo up")?;
    namespace.feed("nft -f -", RULES)?;
    for pace in [None, Some(FLOOD)] {
        let mut reader = namespace.run(|| Nflog::open(1))??;
        let socket = namespace.run(|| UdpSocket::bind("127.0.0.1:0"))??;
        let is_over = AtomicBool::new(false);
        let (busy, counts, sent) = std::thread::scope(|scope| -> Result<_> {
            let reading = scope.spawn(|| -> Result<_> {
                let begin = crate::hour::processor_time()?;
                let mut connections: HashMap<netlink::netfilter::conntrack::Tuple, u64> = HashMap::new();
                while !is_over.load(Ordering::Relaxed) {
                    reader.wait(Duration::from_millis(100), |packet| {
                        // Grouped by connection, as the collector does.
                        *connections.entry(packet.start.tuple).or_default() += u64::from(packet.start.length);
                    })?;
                }
                Ok((crate::hour::processor_time()?.saturating_sub(begin), reader.counts()))
            });
            let (begin, mut sent) = (Instant::now(), 0_u32);
            while begin.elapsed() < TIME {
                if let Some(pace) = pace
                    && f64::from(sent) > begin.elapsed().as_secs_f64() * f64::from(pace)
                {
                    std::thread::sleep(Duration::from_micros(200));
                    continue;
                }
                for _ in 0..16 {
                    let port = 1024 + u16::try_from(sent % 2000).unwrap_or(0);
                    // The sender gets an error for packets that are dropped on their way out.
                    let _ = socket.send_to(&[7; 40], (Ipv4Addr::LOCALHOST, port));
                    sent += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(500));
            is_over.store(true, Ordering::Relaxed);
            let (busy, counts) =
                reading.join().map_err(|_| anyhow::anyhow!("the reading thread panicked"))??;
            Ok((busy, counts, sent))
        })?;
        ensure!(counts.packets > 0, "no packet was reported");
        let rate = f64::from(sent) / TIME.as_secs_f64();
        let lost = counts.lost as f64 / (counts.lost + counts.packets) as f64 * 100.0;
        match pace {
            None => report.row(
                "NFLOG: packets read per second of a processor, put together by connection",
                &format!("{:.0}", counts.packets as f64 / busy.as_secs_f64()),
                &format!("sent: {rate:.0}/s; lost: {lost:.1} %, all counted"),
                "-",
                "-",
            ),
            Some(_) => report.row(
                &format!("NFLOG: a flood of {rate:.0} denied packets/s: lost"),
                &format!("{lost:.2} %"),
                &format!("processor: {:.0} %", busy.as_secs_f64() / TIME.as_secs_f64() * 100.0),
                "-",
                "-",
            ),
        }
    }
    Ok(())
}

/// Evaluates 294 policies with 68 rules each, none of which decides.
pub(crate) fn pending(report: &mut Report) -> Result<()> {
    let mut evaluator = Evaluator::default();
    let mut policies = Vec::new();
    for number in 0..294_u16 {
        let net = |place: u16| format!("10.{}.{place}.0/24", number % 200).parse();
        let rule = |place: u16, net| Rule {
            action: RuleAction::Allow,
            protocol: Some(api::scalars::Protocol::from_name("TCP")),
            source: RuleEnd { nets: vec![net], ..RuleEnd::default() },
            destination: RuleEnd {
                ports: vec![PortRange { first: 8000 + place, last: 8000 + place }],
                ..RuleEnd::default()
            },
            ..Rule::default()
        };
        let rules = (0..68).map(|place| anyhow::Ok(rule(place, net(place)?))).collect::<Result<Vec<_>>>()?;
        let id: PolicyId = Arc::new(PolicyKey {
            kind: Kind::StagedGlobalNetworkPolicy,
            namespace: String::new(),
            name: format!("policy-{number}"),
        });
        let policy = messages::Policy { tier: "default".into(), inbound_rules: rules, ..Default::default() };
        evaluator.take(&ToDataplane::PolicyUpdate(Arc::clone(&id), Arc::new(policy)));
        policies.push(id);
    }
    let id =
        WorkloadEndpointId { orchestrator: "k8s".into(), workload: "ns/pod".into(), endpoint: "eth0".into() };
    let tier = TierInfo { name: "default".into(), ingress_policies: policies, ..TierInfo::default() };
    let profile_ids = vec!["kns.ns".into()];
    let endpoint = WorkloadEndpoint { tiers: vec![tier], profile_ids, ..WorkloadEndpoint::default() };
    evaluator.take(&ToDataplane::WorkloadEndpointUpdate(id.clone(), Box::new(endpoint)));
    let id = LocalEndpoint::Workload(id);
    let tuple = |number: u32| Tuple {
        source: IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + number)),
        dest: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        protocol: 6,
        source_port: 40_000,
        dest_port: 8000 + u16::try_from(number % 68).unwrap_or(0),
    };
    for (name, cycle, goal) in
        [("each for the first time", u32::MAX, "at least 10000"), ("seen before", 1000, "at least 1000000")]
    {
        let (begin, time, mut count) = (Instant::now(), crate::hour::processor_time()?, 0_u32);
        while begin.elapsed() < TIME {
            for _ in 0..100 {
                let found = evaluator.evaluate(&id, Direction::Ingress, &tuple(count % cycle));
                ensure!(found.is_some(), "a decision");
                count += 1;
            }
        }
        let busy = crate::hour::processor_time()?.saturating_sub(time);
        report.row(
            &format!("pending policies of a connection, 294 x 68 rules, {name}: evaluations per second of a processor"),
            &format!("{:.0}", f64::from(count) / busy.as_secs_f64()),
            "Calico: 250 (its own figure, 4 ms each)",
            &format!("{:.0}x", f64::from(count) / busy.as_secs_f64() / 250.0),
            goal,
        );
    }
    Ok(())
}
