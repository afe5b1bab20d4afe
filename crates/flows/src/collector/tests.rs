//! Scenarios, and a property: in any order of events, every byte that the kernel counted is in exactly one flow per
//! end.

use super::*;
use crate::key::{Action, Direction, FlowKey, Reporter, Service, Text};
use crate::labels::Labels;
use crate::nflog::{Owner, Prefix};
use crate::trace::PolicyHit;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// 10.0.0.x are local pods, 10.0.1.x pods elsewhere, 10.9.0.1 is a host, and 10.96.0.1 is a service.
struct Small;

fn labels(texts: &[&str]) -> Labels {
    texts.iter().collect()
}

impl World for Small {
    fn end(&self, address: IpAddr, other_namespace: &str) -> Option<End> {
        let text = address.to_string();
        let (network, host) = text.rsplit_once('.')?;
        let pod = |is_local| End {
            kind: EndKind::Workload {
                namespace: "shop".into(),
                name: format!("web-{host}").into(),
                generate_name: if host == "9" { "".into() } else { "web-".into() },
            },
            is_local,
            labels: labels(&["app=web", &format!("pod={host}"), "projectcalico.org/namespace=shop"]),
        };
        let set = |namespace: &str, name: &str| End {
            kind: EndKind::NetworkSet { namespace: namespace.into(), name: name.into() },
            is_local: false,
            labels: Labels::default(),
        };
        match network {
            "10.0.0" => Some(pod(true)),
            "10.0.1" => Some(pod(false)),
            "10.9.0" => Some(End {
                kind: EndKind::Host { host: "node-1".into() },
                is_local: true,
                labels: Labels::default(),
            }),
            "8.8.8" if other_namespace == "shop" => Some(set("shop", "resolvers")),
            "8.8.8" => Some(set("", "all-resolvers")),
            _ => None,
        }
    }

    fn service(&self, address: IpAddr, port: u16, _: u8) -> Option<Service> {
        (address.to_string() == "10.96.0.1").then(|| Service {
            namespace: "shop".into(),
            name: "web".into(),
            port_name: "http".into(),
            port: i64::from(port),
        })
    }

    fn decision(&self, prefix: &Prefix, _: &End) -> Option<PolicyHit> {
        let action = prefix.action.as_str().to_lowercase();
        let text = match &prefix.owner {
            Owner::Policy { id, rule } => {
                format!("9|default|gnp:{}|{action}|{rule}", id.strip_prefix("gnp/")?)
            }
            Owner::Profile { name, rule } => format!("9|__PROFILE__|pro:{name}|{action}|{rule}"),
            Owner::EndOfTier(tier) => format!("9|{tier}|gnp:last|{action}|-1"),
            Owner::NoProfile => "9|__PROFILE__|pro:__NO_MATCH__|deny|-1".to_owned(),
        };
        text.parse().ok()
    }
}

fn tuple(source: &str, dest: &str, dest_port: u16) -> Tuple {
    Tuple {
        source: source.parse().unwrap(),
        dest: dest.parse().unwrap(),
        protocol: 6,
        source_port: 40_000,
        dest_port,
    }
}

fn logged(text: &str, packets: u64) -> (Prefix, Traffic) {
    (Prefix::parse(text).unwrap(), Traffic { packets, bytes: packets * 60 })
}

fn totals(original: u64, reply: u64) -> CountedTraffic {
    let traffic = |packets| Traffic { packets, bytes: packets * 100 };
    CountedTraffic { original: traffic(original), reply: traffic(reply) }
}

/// One line per flow: ends, service, reporter, action, enforced and pending policies, figures.
fn shown(flows: &[CollectedFlow]) -> Vec<String> {
    let hits = |hits: &[PolicyHit]| hits.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let line = |flow: &CollectedFlow| {
        let FlowKey { source, dest, service, reporter, action, trace, .. } = &flow.key;
        let count = &flow.counters;
        format!(
            "{}/{} > {}/{}:{} {} {} {} [{}] [{}] in {}/{} out {}/{} {}+{}-{}",
            source.namespace,
            source.name,
            dest.namespace,
            dest.name,
            flow.key.dest_port,
            service.name,
            reporter.as_str(),
            action.as_str(),
            hits(&trace.enforced),
            hits(&trace.pending),
            count.packets_in,
            count.bytes_in,
            count.packets_out,
            count.bytes_out,
            count.live,
            count.started,
            count.completed,
        )
    };
    flows.iter().map(line).collect()
}

#[test]
fn a_connection_through_a_service_from_its_verdict_to_its_end() {
    let mut table = Connections::new(10, 0);
    let web = tuple("10.0.0.1", "10.0.1.2", 8080);
    let service = Some(("10.96.0.1".parse().unwrap(), 80));
    // The kernel's counters arrive first and wait.
    table.counted(&Small, web, service, totals(3, 2), false, 7);
    assert_eq!(shown(&table.flush(15)), [""; 0]);
    table.counted(&Small, web, service, totals(3, 2), false, 15);
    table.verdict(&Small, web, service, &[logged("PPE0|gnp/first", 1), logged("APE2|gnp/second", 1)], 15);
    let expected = "shop/web-* > shop/web-*:8080 web Src Allow \
                    [0|default|gnp:first|pass|0,1|default|gnp:second|allow|2] [] in 2/200 out 3/300 1+1-0";
    let flows = table.flush(20);
    assert_eq!(shown(&flows), [expected]);
    assert_eq!((flows[0].start, flows[0].end), (15, 20));
    assert_eq!(flows[0].source_labels, labels(&["app=web", "pod=1"]), "Calico's own labels are left out");
    // Idle, but still there.
    table.counted(&Small, web, service, totals(3, 2), false, 25);
    assert!(shown(&table.flush(30))[0].ends_with("in 0/0 out 0/0 1+0-0"));
    // It ends, and the kernel lists it a little longer.
    table.counted(&Small, web, service, totals(10, 8), true, 35);
    table.tick(37);
    table.counted(&Small, web, service, totals(10, 8), true, 40);
    assert!(shown(&table.flush(45))[0].ends_with("in 6/600 out 7/700 1+0-1"));
    table.counted(&Small, web, service, totals(10, 8), true, 46);
    assert_eq!(shown(&table.flush(60)), [""; 0]);
    assert_eq!((table.len(), table.counts()), (0, CollectorCounts::default()));
}

#[test]
fn service_and_direct_connections_from_one_port_are_separate() {
    let (mut table, web) = (Connections::new(10, 0), tuple("10.0.0.1", "10.0.1.2", 8080));
    let service = Some(("10.96.0.1".parse().unwrap(), 80));
    // The direct connection is older than this collector: nothing was ever reported of it.
    table.counted(&Small, web, None, totals(9, 9), true, 0);
    table.verdict(&Small, web, service, &[logged("APE0|gnp/a", 1)], 1);
    table.pending(web, service, Reporter::Src, vec!["0|default|sgnp:tried|deny|0".parse().unwrap()]);
    // The kernel lists them in any order, again and again.
    for now in 1..8 {
        table.counted(&Small, web, None, totals(9, 9), true, now);
        table.counted(&Small, web, service, totals(4, 3), now > 3, now);
        table.counted(&Small, web, None, totals(9, 9), true, now);
        table.tick(now);
    }
    let flows = shown(&table.flush(9));
    assert_eq!(flows.len(), 1, "{flows:?}");
    assert!(flows[0].contains(" web Src Allow [0|default|gnp:a|allow|0] [0|default|sgnp:tried|deny|0]"));
    assert!(flows[0].ends_with("in 3/300 out 4/400 1+1-1"), "{flows:?}");
    assert_eq!(table.counts().unexplained, 1, "the direct one");
}

#[test]
fn without_original_destinations_a_tuple_is_one_connection() {
    let (mut table, web) = (Connections::new(10, 0), tuple("10.0.0.1", "10.0.1.2", 8080));
    table.cannot_tell_apart();
    table.verdict(&Small, web, None, &[logged("APE0|gnp/a", 1)], 0);
    table.counted(&Small, web, Some(("10.96.0.1".parse().unwrap(), 80)), totals(4, 3), true, 1);
    let flows = shown(&table.flush(4));
    assert!(flows.len() == 1 && flows[0].ends_with("in 3/300 out 4/400 1+1-1"), "{flows:?}");
}

#[test]
fn denied_packets_are_counted_by_reports_and_leave_nothing_behind() {
    let mut table = Connections::new(10, 0);
    let out = tuple("10.0.0.9", "8.8.8.8", 53);
    for now in 0..3 {
        table.verdict(&Small, out, None, &[logged("DPE|default", 2)], now);
    }
    let expected =
        "shop/web-9 > shop/resolvers:53 - Src Deny [0|default|gnp:last|deny|-1] [] in 0/0 out 6/360 1+1-0";
    assert_eq!(shown(&table.flush(5)), [expected]);
    // Another rule decides now: the old flow does not appear again.
    table.verdict(&Small, out, None, &[logged("DPE3|gnp/other", 1)], 6);
    let flows = shown(&table.flush(10));
    assert_eq!(flows.len(), 1);
    assert!(flows[0].contains("[0|default|gnp:other|deny|3]") && flows[0].contains("out 1/60 "), "{flows:?}");
    assert!(shown(&table.flush(20))[0].ends_with("in 0/0 out 0/0 1+0-1"), "its end");
    assert_eq!(shown(&table.flush(30)), [""; 0]);
}

#[test]
fn both_local_ends_and_hosts_report() {
    let mut table = Connections::new(10, 0);
    let local = tuple("10.0.0.1", "10.0.0.2", 80);
    table.verdict(&Small, local, None, &[logged("ARE0|kns.shop", 1), logged("DPI1|gnp/closed", 1)], 0);
    let host = tuple("203.0.113.7", "10.9.0.1", 22);
    table.verdict(&Small, host, None, &[logged("API0|gnp/ssh", 1)], 0);
    assert_eq!(
        shown(&table.flush(5)),
        [
            "shop/web-* > shop/web-*:80 - Src Allow [0|__PROFILE__|pro:kns.shop|allow|0] [] in 0/0 out 1/60 1+1-0",
            "shop/web-* > shop/web-*:80 - Dst Deny [0|default|gnp:closed|deny|1] [] in 1/60 out 0/0 1+1-0",
            "-/pub > -/node-1:22 - Dst Allow [0|default|gnp:ssh|allow|0] [] in 1/60 out 0/0 1+1-0",
        ]
    );
}

#[test]
fn like_connections_become_one_flow_with_their_common_labels() {
    let mut table = Connections::new(10, 0);
    for pod in 1..4 {
        let tuple = tuple(&format!("10.0.0.{pod}"), "192.168.7.7", 443);
        table.verdict(&Small, tuple, None, &[logged("APE0|gnp/out", 1)], 0);
        table.pending(tuple, None, Reporter::Src, vec!["7|default|sgnp:tried|deny|0".parse().unwrap()]);
    }
    let flows = table.flush(5);
    assert_eq!(
        shown(&flows),
        ["shop/web-* > -/pvt:443 - Src Allow [0|default|gnp:out|allow|0] [0|default|sgnp:tried|deny|0] \
          in 0/0 out 3/180 3+3-0"]
    );
    assert_eq!(flows[0].source_labels, labels(&["app=web"]));
}

#[test]
fn connections_without_room_or_verdict_are_counted() {
    let mut table = Connections::new(1, 0);
    table.counted(&Small, tuple("10.0.0.1", "1.1.1.1", 1), None, totals(1, 1), false, 0);
    table.counted(&Small, tuple("10.0.0.1", "1.1.1.1", 2), None, totals(1, 1), false, 0);
    table.counted(&Small, tuple("4.4.4.4", "1.1.1.1", 2), None, totals(1, 1), false, 0);
    assert_eq!(
        (table.len(), table.is_empty(), table.counts().full),
        (1, false, 1),
        "not ours is not counted"
    );
    table.tick(20);
    assert_eq!(table.counts(), CollectorCounts { full: 1, unexplained: 1 });
}

#[derive(Clone, Debug)]
enum Event {
    /// A verdict: the number of the connection, and that of the rule.
    Verdict(usize, usize),
    /// The kernel's counters grew.
    Count(usize, u64, u64),
    Tick(i64),
    Flush(i64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..3usize, 0..2usize).prop_map(|(which, rule)| Event::Verdict(which, rule)),
        (0..3usize, 0..20u64, 0..20u64).prop_map(|(which, out, back)| Event::Count(which, out, back)),
        (0..4i64).prop_map(Event::Tick),
        (0..6i64).prop_map(Event::Flush),
    ];
    prop::collection::vec(event, 0..40)
}

proptest! {
    #[test]
    fn every_byte_is_in_exactly_one_flow(events in events()) {
        let mut table = Connections::new(10, 0);
        let tuples: Vec<Tuple> = (1..4u16).map(|port| tuple("10.0.0.1", "10.0.1.1", port)).collect();
        let mut kernel = [totals(0, 0); 3];
        let mut flows = Vec::new();
        let mut now = 0;
        // Every connection is allowed at first, so that there is a flow for its counters.
        for tuple in &tuples {
            table.verdict(&Small, *tuple, None, &[logged("APE0|gnp/a", 1)], now);
        }
        for (which, traffic) in kernel.iter_mut().enumerate() {
            *traffic = totals(1, 0);
            table.counted(&Small, tuples[which], None, *traffic, false, now);
        }
        for event in events {
            match event {
                Event::Verdict(which, rule) => {
                    let text = format!("APE{rule}|gnp/a");
                    table.verdict(&Small, tuples[which], None, &[logged(&text, 1)], now);
                }
                Event::Count(which, out, back) => {
                    let known = kernel[which];
                    kernel[which] = totals(known.original.packets + out, known.reply.packets + back);
                    table.counted(&Small, tuples[which], None, kernel[which], false, now);
                }
                Event::Tick(later) => {
                    now += later;
                    table.tick(now);
                }
                Event::Flush(later) => {
                    now += later;
                    flows.extend(table.flush(now));
                }
            }
            // The kernel lists every connection often enough.
            for (which, tuple) in tuples.iter().enumerate() {
                table.counted(&Small, *tuple, None, kernel[which], false, now);
            }
        }
        flows.extend(table.flush(now + 1));
        for (port, traffic) in (1i64..).zip(kernel) {
            let mine = || flows.iter().filter(|flow| flow.key.dest_port == port).map(|flow| flow.counters);
            prop_assert_eq!(mine().map(|count| count.packets_out).sum::<u64>(), traffic.original.packets);
            prop_assert_eq!(mine().map(|count| count.bytes_in).sum::<u64>(), traffic.reply.bytes);
            prop_assert_eq!(mine().map(|count| count.started).sum::<u64>(), 1);
        }
        let times: BTreeSet<(i64, i64)> = flows.iter().map(|flow| (flow.start, flow.end)).collect();
        prop_assert!(times.iter().zip(times.iter().skip(1)).all(|(one, next)| one.1 <= next.0), "{times:?}");
    }
}

#[test]
fn texts_of_protocols_and_letters() {
    let mut table = Connections::new(300, 0);
    for protocol in [1, 4, 6, 17, 47, 50, 58, 132] {
        let tuple = Tuple { protocol, ..tuple("10.0.0.1", "fd00::1", 1) };
        table.verdict(&Small, tuple, None, &[logged("APE0|gnp/a", 1)], 0);
    }
    let flows = table.flush(1);
    let texts: BTreeSet<Text> = flows.iter().map(|flow| flow.key.protocol.clone()).collect();
    let expected = ["icmp", "ipip", "tcp", "udp", "47", "esp", "icmp6", "sctp"].map(Text::from);
    assert_eq!(texts, BTreeSet::from(expected));
    assert!(flows.iter().all(|flow| &*flow.key.dest.name == "pub"), "IPv6 counts as public");
    assert!(flows.iter().all(|flow| flow.key.action == Action::Allow));
    assert_eq!(Reporter::Src.direction(), Direction::Egress);
}
