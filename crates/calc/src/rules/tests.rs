//! Ids of rules as Calico's own code computes them, and the sets of rules.

use super::{SetList, SetRegistry, fill_in_rule_ids};
use crate::population::PortProtocol;
use api::scalars::Protocol;
use api::{HTTPMatch, HTTPPath};
use messages::{IcmpMatch, IpSetId, OriginalEnd, PortRange, Rule, RuleEnd};
use model::IpVersion;
use model::feed::{self, Port, RuleAction};
use selector::Selector;
use std::collections::BTreeMap;

fn texts(texts: &[&str]) -> Vec<IpSetId> {
    texts.iter().map(|text| IpSetId::from(*text)).collect()
}

fn ports(ports: &[(u16, u16)]) -> Vec<PortRange> {
    ports.iter().map(|(first, last)| PortRange { first: *first, last: *last }).collect()
}

fn nets(nets: &[&str]) -> Vec<ipnet::IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

/// Each field of the message once, in rules whose ids Calico's code computed from the same content.
#[test]
fn ids_are_those_of_calico() {
    let mut rules = [
        Rule { action: RuleAction::Allow, ..Rule::default() },
        Rule {
            action: RuleAction::Deny,
            ip_version: Some(IpVersion::V6),
            protocol: Some(Protocol::Tcp),
            source: RuleEnd {
                nets: nets(&["10.0.0.0/8", "fd00::/64"]),
                ports: ports(&[(0, 5), (80, 80)]),
                ip_set_ids: texts(&["s:a", "s:b"]),
                named_port_ip_set_ids: texts(&["n:a"]),
                ..RuleEnd::default()
            },
            destination: RuleEnd {
                nets: nets(&["1.2.3.4/32"]),
                ports: ports(&[(443, 443)]),
                ip_set_ids: texts(&["s:c"]),
                named_port_ip_set_ids: texts(&["n:b"]),
                ip_port_set_ids: texts(&["svc:x"]),
                ..RuleEnd::default()
            },
            ..Rule::default()
        },
        Rule {
            action: RuleAction::Pass,
            protocol: Some(Protocol::Number(132)),
            not_protocol: Some(Protocol::Number(0)),
            source: RuleEnd {
                not_nets: nets(&["10.0.0.0/8"]),
                not_ports: ports(&[(1, 2)]),
                not_ip_set_ids: texts(&["s:d"]),
                not_named_port_ip_set_ids: texts(&["n:c"]),
                ..RuleEnd::default()
            },
            destination: RuleEnd {
                not_nets: nets(&["10.0.0.0/9"]),
                not_ports: ports(&[(3, 4)]),
                not_ip_set_ids: texts(&["s:e"]),
                not_named_port_ip_set_ids: texts(&["n:d"]),
                ..RuleEnd::default()
            },
            ..Rule::default()
        },
        Rule {
            action: RuleAction::Log,
            ip_version: Some(IpVersion::V4),
            protocol: Some(Protocol::Icmp),
            icmp: Some(IcmpMatch { icmp_type: 0, code: None }),
            not_icmp: Some(IcmpMatch { icmp_type: 8, code: Some(0) }),
            ..Rule::default()
        },
        Rule {
            action: RuleAction::Allow,
            icmp: Some(IcmpMatch { icmp_type: 0, code: Some(3) }),
            not_icmp: Some(IcmpMatch { icmp_type: 200, code: None }),
            source: RuleEnd { ip_set_ids: texts(&["s:z"]), ..RuleEnd::default() },
            ..Rule::default()
        },
        originals(),
    ];
    fill_in_rule_ids(&mut rules, "pol-in-default/p");
    assert_eq!(
        rules.map(|rule| rule.rule_id),
        [
            "2unLv5IDty4lZXwt",
            "6t7tAFRtVEvxfkMl",
            "vNOQ72KLNfe1O32t",
            "2zBAVtkAhI8L0Eri",
            "nMUS57JMcY2_X_ik",
            "hSi5FNFT6OSvnkDl",
        ]
    );
}

fn originals() -> Rule {
    let end = |[selector, namespace_selector, not_selector, service, service_namespace]: [&str; 5],
               service_account_selector: &str,
               names: &[&str]| RuleEnd {
        original: Some(Box::new(OriginalEnd {
            selector: selector.into(),
            namespace_selector: namespace_selector.into(),
            not_selector: not_selector.into(),
            service_account_names: names.iter().map(|name| (*name).to_owned()).collect(),
            service_account_selector: service_account_selector.into(),
            service: service.into(),
            service_namespace: service_namespace.into(),
        })),
        ..RuleEnd::default()
    };
    let path = |exact: &str, prefix: &str| HTTPPath {
        exact: exact.into(),
        prefix: prefix.into(),
        ..HTTPPath::default()
    };
    Rule {
        action: RuleAction::Allow,
        source: end(["a", "c", "e", "g", "h"], "k", &["l", "m"]),
        destination: end(["b", "d", "f", "i", "j"], "", &["n"]),
        http: Some(Box::new(HTTPMatch {
            methods: vec!["GET".into()],
            paths: vec![path("/x", ""), path("", "/y")],
            ..HTTPMatch::default()
        })),
        annotations: BTreeMap::from([("o".into(), "p".into())]),
        ..Rule::default()
    }
}

#[test]
fn sets_are_shared_and_given_back() {
    let mut registry = SetRegistry::default();
    let end = |selector: &str, ports: Vec<Port>| feed::RuleEnd {
        selector: Some(Selector::parse(selector).unwrap()),
        ports,
        ..feed::RuleEnd::default()
    };
    let sets = |ends: &[feed::RuleEnd]| {
        let mut list = SetList::default();
        let ends: Vec<_> = ends.iter().map(|end| list.add_end(end, PortProtocol::Any, false)).collect();
        (list.into_specs(), ends)
    };
    let (first, ends) = sets(&[
        end("has(a)", vec![]),
        end("has( a )", vec![]),
        end("has(a)", vec![Port::Named("http".into())]),
    ]);
    assert_eq!(ends[0], ends[1], "two writings of one selector are one set");
    assert!(ends[2].addresses.is_empty(), "the set of the port has the selector in it");
    let first = registry.acquire_all(first);
    let second = registry.acquire_all(sets(&[end("has(a)", vec![])]).0);
    assert_eq!((first.len(), second.len()), (2, 1));
    assert_eq!(registry.take_new().len(), 2);
    for set in &first {
        registry.release(*set);
    }
    assert_eq!(registry.take_idle().len(), 1, "the second still uses one");
    registry.release(second[0]);
    // It is used again before it was removed.
    let third = registry.acquire_all(sets(&[end("has(a)", vec![])]).0);
    assert!(registry.take_idle().is_empty() && registry.take_new().is_empty());
    registry.release(third[0]);
    assert_eq!((registry.take_idle().len(), registry.len()), (1, 0));
}

#[test]
fn many_sets_are_found_again_and_keep_their_order() {
    let mut list = SetList::default();
    let end = |number: usize| feed::RuleEnd {
        selector: Some(Selector::parse(&format!("app == 'a{number}'")).unwrap()),
        ..feed::RuleEnd::default()
    };
    for _ in 0..2 {
        for number in 0..40 {
            let sets = list.add_end(&end(number), PortProtocol::Any, false);
            assert_eq!(sets.addresses, [number]);
        }
    }
    assert_eq!(list.into_specs().len(), 40);
}
