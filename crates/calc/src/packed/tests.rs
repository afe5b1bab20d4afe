//! Any rule comes back as it was.

use super::{pack, unpack};
use api::scalars::{IntOrString, Port, Protocol};
use api::{HTTPMatch, HTTPPath, ICMPFields};
use model::IpVersion;
use model::feed::{OriginalMatches, Rule, RuleAction, RuleEnd};
use proptest::option::of as maybe;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["", "[a-c]{1,2}", "has\\(a\\)", ".{0,8}"]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..3)
}

fn int_or_string() -> impl Strategy<Value = IntOrString> {
    prop_oneof![(i64::MIN / 4..i64::MAX / 4).prop_map(IntOrString::Int), text().prop_map(IntOrString::String)]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        any::<u8>().prop_map(Protocol::Number),
        prop::sample::select(super::NAMED.to_vec()),
        int_or_string().prop_map(Protocol::Other),
    ]
}

fn port() -> impl Strategy<Value = Port> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(min, max)| Port::Range { min, max }),
        text().prop_map(Port::Named),
        int_or_string().prop_map(Port::Other),
    ]
}

fn icmp() -> impl Strategy<Value = ICMPFields> {
    (maybe(-3i64..300), maybe(-3i64..300)).prop_map(|(icmp_type, code)| ICMPFields {
        icmp_type,
        code,
        ..ICMPFields::default()
    })
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
        text(),
        text(),
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

proptest! {
    #[test]
    fn rules_come_back(inbound in prop::collection::vec(rule(), 0..3), outbound in prop::collection::vec(rule(), 0..3)) {
        let known = ["has(a)", "namespace"];
        let packed = pack(&known, &["a hint"], &inbound, &outbound);
        prop_assert_eq!(unpack(&known, &packed), Some((vec!["a hint".to_owned()], inbound, outbound)));
    }

    #[test]
    fn nonsense_is_refused(bytes: Vec<u8>) {
        let _ = unpack(&[], &bytes);
    }
}

#[test]
fn a_usual_rule_is_small() {
    let selector = "pcns.kubernetes.io/metadata.name == 'customer-1'";
    let allow = |end: RuleEnd| Rule { action: RuleAction::Allow, destination: end, ..Rule::default() };
    let same = allow(RuleEnd { selector: selector.into(), ..RuleEnd::default() });
    assert!(pack(&[selector], &[], std::slice::from_ref(&same), std::slice::from_ref(&same)).len() <= 12);
    assert_eq!(pack(&[], &[], &[], &[]).len(), 3);
}
