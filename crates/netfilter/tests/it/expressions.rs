//! Every match and action, programmed by netlink and as text by `nft`: `nft` must show the same rule for both.

use crate::host::Host;
use netfilter::nftables::expressions;
use netlink::netfilter::nft::{self, BaseChain, ChainKind, Change, Client, Hook, KeyType, Set};
use rules::nftables::{Family, comment, hashes, rule_text};
use rules::tree::{
    Action, Conntrack, End, InterfacePattern, IpVersion, Match, NfLogSize, PortRange, Protocol, Rate,
    RateUnit, RejectWith, Rule, Side, Table,
};
use std::fmt::Write as _;
use std::net::IpAddr;

fn ports(list: &[(u16, u16)]) -> std::sync::Arc<[PortRange]> {
    list.iter().map(|&(first, last)| PortRange { first, last }).collect()
}

/// Conditions, each as the list of matches that it needs.
fn conditions(v6: bool) -> Vec<Vec<Match>> {
    let tcp = Match::Protocol { protocol: Protocol::TCP, negated: false };
    let icmp = Match::Protocol {
        protocol: if v6 { Protocol::Number(58) } else { Protocol::Named("icmp", 1) },
        negated: false,
    };
    let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
    let nets: &[&str] = if v6 {
        &["fd00::/8", "fd00::/64", "fd00:1::/61", "fd00::1/128", "::/0"]
    } else {
        &["10.0.0.0/8", "10.1.0.0/17", "192.168.1.0/24", "10.0.0.1/32", "128.0.0.0/1", "0.0.0.0/0"]
    };
    let address: IpAddr = if v6 { "fd00::2" } else { "10.0.0.2" }.parse().expect("an address");
    let mut all = vec![
        vec![],
        vec![Match::Protocol { protocol: Protocol::Number(4), negated: true }],
        vec![Match::Interface { side: Side::In, pattern: InterfacePattern::prefix("cali") }],
        vec![Match::Interface { side: Side::Out, pattern: InterfacePattern::exact("cali0123456789a") }],
        vec![Match::Mark { value: 0, mask: 0x10000, negated: false }],
        vec![Match::Mark { value: 0, mask: 0x30000, negated: true }],
        vec![Match::Mark { value: 0x20000, mask: 0x30000, negated: false }],
        vec![Match::LocalAddress { end: End::Source, limit_interface_out: false, negated: false }],
        vec![Match::LocalAddress { end: End::Destination, limit_interface_out: false, negated: true }],
        vec![Match::ReversePathFailed],
        vec![Match::Limit { rate: Rate { count: 10, unit: RateUnit::Minute }, burst: 0 }],
        vec![Match::Limit { rate: Rate { count: 10, unit: RateUnit::Second }, burst: 7 }],
        vec![Match::Address { end: End::Destination, address }],
        vec![tcp.clone(), Match::DestinationPort(80)],
    ];
    for (state, negated) in [
        (Conntrack::RelatedOrEstablished, false),
        (Conntrack::Invalid, false),
        (Conntrack::New, false),
        (Conntrack::Dnat, false),
    ] {
        all.push(vec![Match::Conntrack { state, negated }]);
    }
    for end in [End::Source, End::Destination] {
        for negated in [false, true] {
            for net in nets {
                all.push(vec![Match::Net { end, net: net.parse().expect("a network"), negated }]);
            }
            all.push(vec![Match::IpSet { end, name: "cali40s:nets".into(), negated }]);
            all.push(vec![Match::IpSet { end, name: "cali40this-host".into(), negated }]);
            all.push(vec![Match::IpPortSet { end, name: "cali40n:ports".into(), negated }]);
            for list in [
                &[(80, 80)][..],
                &[(1000, 2000)],
                // Fewer ranges are expressed without a set, which `nft` shows differently.
                &[(22, 22), (80, 90), (100, 100), (110, 110), (120, 120), (130, 130), (65535, 65535)],
                &[(0, 5), (7, 7), (9, 9), (11, 11), (13, 13), (15, 15), (17, 17)],
                &[(5, 5), (6, 6), (7, 7), (8, 8), (9, 9), (10, 10), (11, 11)],
            ] {
                all.push(vec![tcp.clone(), Match::Ports { end, ports: ports(list), negated }]);
            }
        }
    }
    for code in [None, Some(3)] {
        for negated in [false, true] {
            all.push(vec![icmp.clone(), Match::Icmp { version, icmp_type: 8, code, negated }]);
        }
    }
    all
}

/// Actions, with the matches that they need.
fn actions(v6: bool) -> Vec<(Vec<Match>, Action)> {
    let tcp = || vec![Match::Protocol { protocol: Protocol::TCP, negated: false }];
    let plain = |action| (vec![], action);
    vec![
        plain(Action::Accept),
        plain(Action::Drop),
        plain(Action::Return),
        plain(Action::Jump("cali-to".into())),
        plain(Action::Goto("cali-to".into())),
        plain(Action::Reject(RejectWith::PortUnreachable)),
        (tcp(), Action::Reject(RejectWith::TcpReset)),
        plain(Action::Log { prefix: "calico-packet".into() }),
        plain(Action::NfLog { group: 1, prefix: "API0|np/default/x".into(), size: NfLogSize::Size(80) }),
        plain(Action::SetMark(0x10000)),
        plain(Action::ClearMark(0x30000)),
        plain(Action::SetMaskedMark { value: 0x20000, mask: 0x30000 }),
        plain(Action::SetConnectionMark { value: 5, mask: 0 }),
        plain(Action::SetConnectionMark { value: 5, mask: 0xf }),
        plain(Action::SaveConnectionMark { mask: 0 }),
        plain(Action::SaveConnectionMark { mask: 0xff }),
        plain(Action::RestoreConnectionMark { mask: 0 }),
        plain(Action::RestoreConnectionMark { mask: 0xff }),
        plain(Action::LimitPacketRate { rate: 100, burst: 20, mark: 1 }),
        (tcp(), Action::LimitConnections { count: 5 }),
        plain(Action::LimitConnections { count: 6 }),
        plain(Action::SetDscp(23)),
    ]
    .into_iter()
    .filter(|(_, action)| !(v6 && matches!(action, Action::NoTrack)))
    .collect()
}

fn translations(v6: bool) -> Vec<(&'static str, Vec<Match>, Action)> {
    let tcp = || vec![Match::Protocol { protocol: Protocol::TCP, negated: false }];
    let address: IpAddr = if v6 { "fd00::9" } else { "192.0.2.9" }.parse().expect("an address");
    let masquerade = |ports, random_fully| Action::Masquerade { ports, random_fully };
    let out_of_interface = Match::LocalAddress { end: End::Source, limit_interface_out: true, negated: true };
    vec![
        ("POSTROUTING", vec![], masquerade(None, true)),
        ("POSTROUTING", vec![], masquerade(None, false)),
        ("POSTROUTING", tcp(), masquerade(Some((1024, 65535)), true)),
        ("POSTROUTING", vec![out_of_interface], masquerade(None, true)),
        ("POSTROUTING", vec![], Action::Snat { address, ports: None, random_fully: true }),
        ("POSTROUTING", tcp(), Action::Snat { address, ports: Some((1024, 2048)), random_fully: false }),
        ("PREROUTING", vec![], Action::Dnat { address, port: None }),
        ("PREROUTING", tcp(), Action::Dnat { address, port: Some(8080) }),
    ]
}

/// A chain's name, where it is attached, its layer and its rules.
type TestChain<'a> = (&'a str, Option<(ChainKind, Hook, i32, &'a str)>, Table, Vec<Rule>);

/// Programs the same rules into two namespaces and compares `nft`'s listings.
fn compare(family: Family, chains: &[TestChain<'_>]) {
    let v6 = family == Family::Ip6;
    let ip = family.as_str();
    let table_name = family.table();
    let (by_text, by_netlink) = (Host::new(), Host::new());
    let netlink_family = match family {
        Family::Ip => nft::Family::Ip,
        Family::Ip6 => nft::Family::Ip6,
        Family::Arp => nft::Family::Arp,
    };
    let table = nft::Table::new(netlink_family, table_name);
    let mut text = format!("add table {ip} {table_name}\n");
    let mut changes = vec![Change::AddTable];
    if family != Family::Arp {
        let address = if v6 { "ipv6_addr" } else { "ipv4_addr" };
        let (key, with_port) = if v6 {
            (KeyType::Ipv6, KeyType::Ipv6ProtocolPort)
        } else {
            (KeyType::Ipv4, KeyType::Ipv4ProtocolPort)
        };
        for (name, key, interval, kind) in [
            ("cali40s-nets", key, true, format!("type {address}; flags interval")),
            ("cali40this-host", key, false, format!("type {address}")),
            ("cali40n-ports", with_port, false, format!("type {address} . inet_proto . inet_service")),
        ] {
            let _ = writeln!(text, "add set {ip} {table_name} {name} {{ {kind}; }}");
            changes.push(Change::AddSet(Set { name: name.into(), key, interval, verdicts: false }));
        }
    }
    let map = "filter-cali-dispatch";
    let _ = writeln!(text, "add map {ip} {table_name} {map} {{ type ifname : verdict; }}");
    let set = Set { name: map.into(), key: KeyType::InterfaceName, interval: false, verdicts: true };
    changes.push(Change::AddSet(set));
    for (name, base, ..) in chains {
        let attached = base.map(|(kind, _, priority, hook)| {
            format!("{{ type {} hook {hook} priority {priority}; }}", kind.as_str())
        });
        let _ = writeln!(text, "add chain {ip} {table_name} {name} {}", attached.unwrap_or_default());
        let base = base.map(|(kind, hook, priority, _)| BaseChain { kind, hook, priority });
        changes.push(Change::AddChain { name: (*name).into(), base });
    }
    for (name, _, layer, rules) in chains {
        for (rule, hash) in rules.iter().zip(hashes(*layer, family, name, rules)) {
            let comment = comment(rule, hash);
            let body = rule_text(*layer, family, rule);
            let _ = writeln!(text, "add rule {ip} {table_name} {name} {body} comment \"{comment}\"");
            changes.push(Change::AppendRule(nft::Rule {
                chain: (*name).into(),
                expressions: expressions(*layer, family, rule),
                comment: comment.into(),
            }));
        }
    }
    by_text.feed("nft -f -", &text);
    by_netlink.run(|| {
        let mut client = Client::open().expect("a socket");
        let outcome = client.commit(&table, &changes).expect("the kernel answers");
        if let Err(refused) = outcome {
            let faults: Vec<_> =
                refused.refused.iter().map(|(index, why)| (&changes[*index], why.to_string())).collect();
            panic!("refused: {:?} {faults:#?}", refused.whole);
        }
    });
    let (theirs, ours) = (by_text.ruleset(), by_netlink.ruleset());
    assert_eq!(ours.chains, theirs.chains);
    assert_eq!(ours.sets, theirs.sets);
    for (chain, rules) in &theirs.rules {
        for (index, (their, our)) in rules.iter().zip(&ours.rules[chain]).enumerate() {
            assert_eq!(our, their, "{chain} rule {index}");
        }
        assert_eq!(rules.len(), ours.rules[chain].len(), "{chain}");
    }
    // The plain listing has details that the other form lacks.
    let plain = |host: &Host| host.shell("nft -s list ruleset");
    assert_eq!(plain(&by_netlink), plain(&by_text));
}

fn all_of(family: Family) {
    let v6 = family == Family::Ip6;
    let rule = |matches: Vec<Match>, action: Option<Action>| Rule {
        matches,
        action,
        comments: vec!["a note".into()],
    };
    let mut filter: Vec<Rule> = conditions(v6)
        .into_iter()
        .flat_map(|matches| [rule(matches.clone(), Some(Action::Return)), rule(matches, None)])
        .collect();
    filter.extend(actions(v6).into_iter().map(|(matches, action)| rule(matches, Some(action))));
    filter.push(rule(vec![Match::InterfaceMap { side: Side::In, map: "cali-dispatch".into() }], None));
    filter.push(rule(vec![Match::InterfaceMap { side: Side::Out, map: "cali-dispatch".into() }], None));
    let raw = vec![rule(vec![], Some(Action::NoTrack))];
    let nat = |wanted: &str| {
        let all = translations(v6).into_iter().filter(|(chain, ..)| *chain == wanted);
        all.map(|(_, matches, action)| rule(matches, Some(action))).collect::<Vec<_>>()
    };
    compare(
        family,
        &[
            ("filter-cali-to", None, Table::Filter, vec![]),
            ("filter-cali-all", None, Table::Filter, filter),
            (
                "raw-PREROUTING",
                Some((ChainKind::Filter, Hook::Prerouting, -300, "prerouting")),
                Table::Raw,
                raw,
            ),
            (
                "nat-PREROUTING",
                Some((ChainKind::Nat, Hook::Prerouting, -100, "prerouting")),
                Table::Nat,
                nat("PREROUTING"),
            ),
            (
                "nat-POSTROUTING",
                Some((ChainKind::Nat, Hook::Postrouting, 110, "postrouting")),
                Table::Nat,
                nat("POSTROUTING"),
            ),
            ("mangle-OUTPUT", Some((ChainKind::Route, Hook::Output, -150, "output")), Table::Mangle, vec![]),
        ],
    );
}

#[test]
fn nft_sees_no_difference_in_ipv4() {
    all_of(Family::Ip);
}

#[test]
fn nft_sees_no_difference_in_ipv6() {
    all_of(Family::Ip6);
}

#[test]
fn nft_sees_no_difference_in_arp() {
    let rules = vec![Rule {
        matches: vec![
            Match::Interface { side: Side::Out, pattern: InterfacePattern::exact("cali1") },
            Match::ArpReply,
            Match::ArpSource([10, 66, 1, 1].into()),
        ],
        action: Some(Action::Drop),
        comments: vec![],
    }];
    compare(
        Family::Arp,
        &[("filter-OUTPUT", Some((ChainKind::Filter, Hook::ArpOutput, 0, "output")), Table::Filter, rules)],
    );
}

/// `nft` would take the text to mean that no other bit of the status is set, which holds for no tracked packet.
#[test]
fn not_translated_tests_only_that_bit() {
    let host = Host::new();
    let table = nft::Table::new(nft::Family::Ip, "calico");
    let matches = vec![Match::Conntrack { state: Conntrack::Dnat, negated: true }];
    let rule = Rule { matches, action: Some(Action::Return), comments: vec![] };
    host.run(|| {
        let mut client = Client::open().expect("a socket");
        let changes = [
            Change::AddTable,
            Change::AddChain { name: "c".into(), base: None },
            Change::AppendRule(nft::Rule {
                chain: "c".into(),
                expressions: expressions(Table::Filter, Family::Ip, &rule),
                comment: "x".into(),
            }),
        ];
        assert_eq!(client.commit(&table, &changes), Ok(Ok(())));
    });
    let listed = host.shell("nft -s list chain ip calico c");
    assert!(listed.contains("ct status ! dnat counter return"), "{listed}");
}
