//! The recommended policies decide any recorded flows between labelled ends as they were decided.

use flows::{Action, Counters, EndpointType, FlowKey, Labels, Peer, Reporter, Service, Trace};
use flows_cli::Flow;
use flows_cli::recommend::{Options, recommend};
use proptest::prelude::*;
use std::sync::Arc;

/// Kind, namespace, name and label of an end.
const ENDS: [(EndpointType, &str, &str, &str); 9] = [
    (EndpointType::Workload, "shop", "web-*", "app=web"),
    (EndpointType::Workload, "shop", "db-0", "app=db"),
    (EndpointType::Workload, "load", "web-*", "app=web"),
    (EndpointType::Workload, "load", "job", "run=job"),
    (EndpointType::NetworkSet, "-", "office", "site=office"),
    (EndpointType::NetworkSet, "shop", "partner", "site=partner"),
    (EndpointType::Host, "-", "n1", "node=n1"),
    (EndpointType::Network, "-", "pub", ""),
    (EndpointType::Network, "-", "pvt", ""),
];

fn flow((from, to, port, protocol, is_source, is_allowed): (usize, usize, i64, usize, bool, bool)) -> Flow {
    let peer = |end: usize| {
        let (kind, namespace, name, _) = ENDS[end];
        Peer { kind, namespace: namespace.into(), name: name.into() }
    };
    let labels = |end: usize| -> Labels { [ENDS[end].3].iter().filter(|text| !text.is_empty()).collect() };
    Flow {
        key: FlowKey {
            source: peer(from),
            dest: peer(to),
            dest_port: port,
            service: Service::default(),
            protocol: ["tcp", "udp", "icmp"][protocol].into(),
            reporter: if is_source { Reporter::Src } else { Reporter::Dst },
            action: if is_allowed { Action::Allow } else { Action::Deny },
            trace: Arc::new(Trace::default()),
        },
        start: 0,
        end: 15,
        source_labels: labels(from),
        dest_labels: labels(to),
        counters: Counters { started: 1, ..Counters::default() },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_allowed_stays_allowed_and_what_was_denied_stays_denied(
        flows in prop::collection::vec((0..9_usize, 0..9_usize, 80..83_i64, 0..3_usize, any::<bool>(), prop::bool::weighted(0.7)).prop_map(flow), 1..24)
    ) {
        // An end does not talk to itself over the network.
        let flows: Vec<Flow> = flows.into_iter().filter(|flow| flow.key.source != flow.key.dest).collect();
        let options = Options { namespaces: Vec::new(), tier: "default".to_owned(), order: 1 };
        let made = recommend(&flows, &options);
        prop_assert!(made.differences.is_empty(), "{:#?}\n{:#?}", made.differences, made.policies);
        let judged = flows.iter().filter(|flow| match flow.key.reporter {
            Reporter::Src => flow.key.source.kind == EndpointType::Workload,
            _ => flow.key.dest.kind == EndpointType::Workload,
        });
        prop_assert_eq!(made.allowed + made.denied, judged.count());
    }
}

#[test]
fn flows_denied_at_the_destination_get_no_rule_at_the_source() {
    let (web, db, job) = (0, 1, 3);
    let flows = [
        // The job's connection leaves, and the database denies it.
        flow((job, db, 82, 0, true, true)),
        flow((job, db, 82, 0, false, false)),
        flow((web, db, 82, 0, true, true)),
        flow((web, db, 82, 0, false, true)),
    ];
    let options = Options { namespaces: Vec::new(), tier: "default".to_owned(), order: 1 };
    let made = recommend(&flows, &options);
    let of = |selector: &str| made.policies.iter().find(|policy| policy.selector == selector).unwrap();
    assert_eq!(of("run == 'job'").egress, Some(Vec::new()), "nothing that it sent was of use");
    assert_eq!(of("app == 'web'").egress.as_ref().unwrap().len(), 1);
    assert_eq!(of("app == 'db'").ingress.as_ref().unwrap().len(), 1);
    assert!(made.notes.iter().any(|note| note.contains("was denied at the other end")), "{:?}", made.notes);
    assert_eq!((made.allowed, made.denied, made.differences.len()), (2, 2, 0));
}

#[test]
fn indistinguishable_destinations_decide_themselves() {
    // Both have the same labels, so that one rule covers both; one of them denies the connection.
    let mut other = flow((0, 1, 82, 0, true, true));
    other.key.dest.name = "db-1".into();
    let mut denied = flow((0, 1, 82, 0, false, false));
    denied.key.dest.name = "db-1".into();
    let flows = [flow((0, 1, 82, 0, true, true)), other, denied];
    let options = Options { namespaces: vec!["shop".to_owned()], tier: "default".to_owned(), order: 1 };
    let made = recommend(&flows, &options);
    assert_eq!((made.allowed, made.denied, made.differences.len()), (1, 2, 0), "{:#?}", made.differences);
}
