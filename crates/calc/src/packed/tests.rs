//! Any rule is unpacked as it was packed, with names of sets in place of selectors, named ports and services.

use super::{Unpacked, pack, sets, unpack};
use crate::population::PortProtocol;
use crate::rules::SetSpec;
use api::{HTTPMatch, HTTPPath};
use messages::IpSetId;
use model::IpVersion;
use model::feed::{IcmpMatch, OriginalMatches, Port, PortRange, Protocol, Rule, RuleAction, RuleEnd};
use proptest::option::of as maybe;
use proptest::prelude::*;
use selector::Selector;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["", "[a-c]{1,2}", "has\\(a\\)", ".{0,8}"]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..3)
}

fn selector() -> impl Strategy<Value = Selector> {
    let text = prop::sample::select(vec!["has(a)", "a == 'x'", "!(!has(b))", "a == 'x' || !has(c)", "all()"]);
    text.prop_map(|text| Selector::parse(text).unwrap())
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![any::<u8>().prop_map(Protocol::Number), prop::sample::select(Protocol::NAMED.to_vec())]
}

fn port() -> impl Strategy<Value = Port> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(first, last)| Port::Range(PortRange { first, last })),
        "[a-c]{1,2}".prop_map(Port::Named),
    ]
}

fn icmp() -> impl Strategy<Value = IcmpMatch> {
    (any::<u8>(), maybe(any::<u8>())).prop_map(|(icmp_type, code)| IcmpMatch { icmp_type, code })
}

fn end() -> impl Strategy<Value = RuleEnd> {
    let net = prop::sample::select(vec!["10.0.0.0/8", "10.1.2.3/32", "fd00::/64", "0.0.0.0/0"])
        .prop_map(|net| net.parse().unwrap());
    let nets = prop::collection::vec(net, 0..3);
    let original = (text(), text(), text(), texts(), text()).prop_map(|(a, b, c, names, d)| {
        Box::new(OriginalMatches {
            selector: a,
            namespace_selector: b,
            not_selector: c,
            service_account_names: names,
            service_account_selector: d,
        })
    });
    (
        nets.clone(),
        nets,
        maybe(selector()),
        maybe(selector()),
        prop::collection::vec(port(), 0..3),
        prop::collection::vec(port(), 0..3),
        maybe((text(), text())),
        maybe(original),
    )
        .prop_map(|(nets, not_nets, selector, not_selector, ports, not_ports, service, original)| {
            RuleEnd { nets, not_nets, selector, not_selector, ports, not_ports, service, original }
        })
}

fn rule() -> impl Strategy<Value = Rule> {
    let action =
        prop::sample::select(vec![RuleAction::Allow, RuleAction::Deny, RuleAction::Log, RuleAction::Pass]);
    let http = (texts(), texts()).prop_map(|(methods, paths)| {
        let paths = paths.into_iter().map(|exact| HTTPPath { exact, ..HTTPPath::default() }).collect();
        Box::new(HTTPMatch { methods, paths, ..HTTPMatch::default() })
    });
    (
        action,
        maybe(prop::sample::select(vec![IpVersion::V4, IpVersion::V6])),
        (maybe(protocol()), maybe(protocol())),
        (maybe(icmp()), maybe(icmp())),
        (prop_oneof![Just(RuleEnd::default()), end()], prop_oneof![Just(RuleEnd::default()), end()]),
        maybe(http),
        prop::collection::btree_map(text(), text(), 0..3),
    )
        .prop_map(|(action, ip_version, protocols, icmps, ends, http, annotations)| Rule {
            action,
            ip_version,
            protocol: protocols.0,
            not_protocol: protocols.1,
            icmp: icmps.0,
            not_icmp: icmps.1,
            source: ends.0,
            destination: ends.1,
            http,
            annotations,
        })
}

/// The name of a set in these tests: its whole definition.
fn name(set: &SetSpec) -> IpSetId {
    format!("{set:?}").as_str().into()
}

/// What the dataplane should get for one end, built without packing.
fn expected_end(end: &RuleEnd, protocol: PortProtocol, is_destination: bool) -> messages::RuleEnd {
    let positive = match (&end.selector, &end.not_selector) {
        (Some(yes), Some(no)) => Some(yes.and_not(no)),
        (yes, _) => yes.clone(),
    };
    let ranges = |ports: &[Port]| -> Vec<PortRange> {
        ports
            .iter()
            .filter_map(|port| if let Port::Range(range) = port { Some(*range) } else { None })
            .collect()
    };
    let named = |ports: &[Port]| -> Vec<IpSetId> {
        let mut sets = Vec::new();
        for port in ports {
            if let Port::Named(port) = port {
                let selector = positive.clone().unwrap_or_default();
                sets.push(name(&SetSpec::NamedPort { selector, protocol, name: port.clone() }));
            }
        }
        sets
    };
    let mut out = messages::RuleEnd {
        nets: end.nets.clone(),
        not_nets: end.not_nets.clone(),
        ports: ranges(&end.ports),
        not_ports: ranges(&end.not_ports),
        named_port_ip_set_ids: named(&end.ports),
        not_named_port_ip_set_ids: named(&end.not_ports),
        ..messages::RuleEnd::default()
    };
    if (!out.ports.is_empty() || out.named_port_ip_set_ids.is_empty())
        && let Some(selector) = &positive
    {
        out.ip_set_ids.push(name(&SetSpec::Selector(selector.clone())));
    }
    if let (None, Some(selector)) = (&end.selector, &end.not_selector) {
        out.not_ip_set_ids.push(name(&SetSpec::Selector(selector.clone())));
    }
    if let Some((namespace, service)) = &end.service {
        let service = format!("{namespace}/{service}");
        let set = name(&SetSpec::Service { service, with_ports: is_destination });
        if is_destination { out.ip_port_set_ids.push(set) } else { out.ip_set_ids.push(set) }
    }
    if end.original.is_some() || end.service.is_some() {
        let original = end.original.clone().unwrap_or_default();
        let (namespace, service) = end.service.clone().unwrap_or_default();
        out.original = Some(Box::new(messages::OriginalEnd {
            selector: original.selector,
            namespace_selector: original.namespace_selector,
            not_selector: original.not_selector,
            service_account_names: original.service_account_names,
            service_account_selector: original.service_account_selector,
            service: service.into(),
            service_namespace: namespace.into(),
        }));
    }
    out
}

fn expected(rule: &Rule) -> messages::Rule {
    let protocol = rule.protocol.map_or(PortProtocol::Any, PortProtocol::of);
    messages::Rule {
        action: rule.action,
        ip_version: match (rule.ip_version, rule.protocol) {
            (None, Some(Protocol::Icmp)) => Some(IpVersion::V4),
            (None, Some(Protocol::Icmpv6)) => Some(IpVersion::V6),
            (version, _) => version,
        },
        protocol: rule.protocol.map(Into::into),
        not_protocol: rule.not_protocol.map(Into::into),
        icmp: rule.icmp,
        not_icmp: rule.not_icmp,
        source: expected_end(&rule.source, protocol, false),
        destination: expected_end(&rule.destination, protocol, true),
        http: rule.http.clone(),
        annotations: rule.annotations.clone(),
        rule_id: String::new(),
    }
}

proptest! {
    #[test]
    fn rules_come_back(inbound in prop::collection::vec(rule(), 0..3), outbound in prop::collection::vec(rule(), 0..3)) {
        let known = ["has(a)", "namespace"];
        let packed = pack(&known, &["a hint"], &inbound, &outbound);
        let sets = sets(&known, &packed);
        let names: Vec<IpSetId> = sets.iter().map(name).collect();
        let unpacked = Unpacked {
            texts: vec!["a hint".to_owned()],
            inbound: inbound.iter().map(expected).collect(),
            outbound: outbound.iter().map(expected).collect(),
        };
        prop_assert_eq!(unpack(&known, &packed, &names), unpacked);
        let mut once = names.clone();
        once.sort();
        once.dedup();
        prop_assert_eq!(once.len(), names.len(), "each set once");
    }

    #[test]
    fn nonsense_does_not_panic(bytes: Vec<u8>) {
        let sets = sets(&[], &bytes);
        let names: Vec<IpSetId> = sets.iter().map(name).collect();
        let _ = unpack(&[], &bytes, &names);
    }
}

#[test]
fn a_usual_rule_is_small() {
    let text = "pcns.kubernetes.io/metadata.name == \"customer-1\"";
    let selector = Selector::parse(text).unwrap();
    let allow = |end: RuleEnd| Rule { action: RuleAction::Allow, destination: end, ..Rule::default() };
    let same = allow(RuleEnd { selector: Some(selector), ..RuleEnd::default() });
    assert!(pack(&[text], &[], std::slice::from_ref(&same), std::slice::from_ref(&same)).len() <= 16);
    assert_eq!(pack(&[], &[], &[], &[]).len(), 4);
}
