//! Cases that no listing shows: conditions that cannot match, and overlapping ranges.

use super::{disjoint, expressions};
use netlink::netfilter::nft::{CompareOperator, Data, Expression, Verdict};
use rules::nftables::Family;
use rules::tree::{Action, End, InterfacePattern, Match, PortRange, Rule, Side, Table};

fn of(family: Family, matches: Vec<Match>) -> Vec<Expression> {
    expressions(Table::Filter, family, &Rule { matches, action: None, comments: vec![] })
}

fn ports(list: &[(u16, u16)]) -> Vec<PortRange> {
    list.iter().map(|&(first, last)| PortRange { first, last }).collect()
}

#[test]
fn overlapping_ranges_are_merged() {
    assert_eq!(disjoint(&ports(&[(80, 90), (1, 1), (85, 100), (100, 101), (3, 2)])), [(1, 1), (80, 101)]);
    assert_eq!(disjoint(&ports(&[(0, 65535), (7, 7)])), [(0, 65535)]);
    // Adjacent ranges stay separate, as specified.
    assert_eq!(disjoint(&ports(&[(5, 5), (6, 6)])), [(5, 5), (6, 6)]);
}

/// Whether expressions about one loaded port match it.
fn passes(port: u16, expressions: &[Expression]) -> bool {
    let port = Data::new(&port.to_be_bytes());
    expressions.iter().all(|one| match one {
        Expression::Payload { offset: 2, length: 2, .. } | Expression::Verdict(Verdict::Continue) => true,
        Expression::Compare { operator: CompareOperator::Equal, data, .. } => port == *data,
        Expression::Compare { operator: CompareOperator::NotEqual, data, .. } => port != *data,
        Expression::Compare { operator: CompareOperator::AtLeast, data, .. } => {
            port.as_bytes() >= data.as_bytes()
        }
        Expression::Compare { operator: CompareOperator::AtMost, data, .. } => {
            port.as_bytes() <= data.as_bytes()
        }
        Expression::Range { negated, from, to, .. } => {
            (from.as_bytes()..=to.as_bytes()).contains(&port.as_bytes()) != *negated
        }
        other => panic!("{other:?}"),
    })
}

#[test]
fn few_ports_need_no_set() {
    for list in [
        &[(80, 80)][..],
        &[(80, 443)],
        &[(80, 80), (443, 443), (8000, 8000)],
        &[(22, 22), (80, 90), (65535, 65535)],
        &[(0, 5), (7, 7)],
        &[(5, 5), (6, 6), (8, 9)],
        &[(1, 1), (3, 3), (5, 5), (7, 7), (9, 9), (65000, 65535)],
    ] {
        for negated in [false, true] {
            let end = End::Destination;
            let all = of(Family::Ip, vec![Match::Ports { end, ports: ports(list).into(), negated }]);
            for port in 0..=u16::MAX {
                let within = list.iter().any(|(first, last)| (*first..=*last).contains(&port));
                assert_eq!(passes(port, &all), within != negated, "{port} in {list:?}, negated: {negated}");
            }
        }
    }
    let seven = [(1, 1), (3, 3), (5, 5), (7, 7), (9, 9), (11, 11), (13, 13)];
    let all =
        of(Family::Ip, vec![Match::Ports { end: End::Source, ports: ports(&seven).into(), negated: true }]);
    assert!(matches!(all.last(), Some(Expression::LookupAnonymous { negated: true, .. })), "{all:?}");
}

#[test]
fn impossible_conditions_match_nothing() {
    let never = |matches| {
        let all = of(Family::Ip, matches);
        matches!(all.last(), Some(Expression::Compare { operator: CompareOperator::NotEqual, data, .. }) if *data == Data::host_u32(0))
            && matches!(all[all.len() - 2], Expression::Bitwise { mask, .. } if mask == Data::host_u32(0))
    };
    assert!(never(vec![Match::Ipvs { negated: false }]));
    assert!(never(vec![Match::Ports { end: End::Source, ports: ports(&[]).into(), negated: false }]));
    assert!(never(vec![Match::Net {
        end: End::Source,
        net: "fd00::/8".parse().expect("net"),
        negated: false
    }]));
    let long = InterfacePattern::exact("a-name-of-sixteen");
    assert!(never(vec![Match::Interface { side: Side::In, pattern: long }]));
    // A condition that always matches needs no expressions: only the verdict remains.
    let always = of(
        Family::Ip,
        vec![Match::Net { end: End::Source, net: "fd00::/8".parse().expect("net"), negated: true }],
    );
    assert_eq!(always, [Expression::Verdict(Verdict::Continue)]);
    let always =
        of(Family::Ip, vec![Match::Interface { side: Side::In, pattern: InterfacePattern::prefix("") }]);
    assert_eq!(always, [Expression::Verdict(Verdict::Continue)]);
}

#[test]
fn log_prefixes_are_cut_at_character_boundaries() {
    let rule = Rule {
        matches: vec![],
        action: Some(Action::Log { prefix: "ü".repeat(100).into() }),
        comments: vec![],
    };
    let all = expressions(Table::Filter, Family::Ip, &rule);
    let Some(Expression::Log { prefix, .. }) = all.last() else { panic!("{all:?}") };
    assert_eq!(prefix.len(), 126);
}
