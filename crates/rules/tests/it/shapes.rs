//! Rules of every shape: each field with its characteristic values, and all pairs of them.

use api::scalars::Protocol;
use api::{HTTPMatch, scalars::IntOrString};
use messages::{IcmpMatch, IpSetId, IpSetMember, PortRange, Rule, RuleEnd};
use model::IpVersion;
use model::feed::RuleAction;
use rules::names;
use rules::tree::SetName;
use std::rc::Rc;

/// The names of one end's fields, and the end.
type EndFields = (&'static [&'static str; 8], fn(&mut Rule) -> &mut RuleEnd);

/// One value of one field.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) field: &'static str,
    pub(crate) apply: Rc<dyn Fn(&mut Rule)>,
}

/// The sets that shapes name, with some members.
pub(crate) fn sets(version: IpVersion) -> Vec<(SetName, Vec<IpSetMember>)> {
    let (address, net) = match version {
        IpVersion::V4 => ("10.0.0.1", "10.1.0.0/16"),
        IpVersion::V6 => ("fd00::1", "fd01::/16"),
    };
    let address = address.parse().expect("an address");
    let mut sets = Vec::new();
    for id in ["s:one", "s:two"] {
        sets.push((names::ip_set(version, id), vec![IpSetMember::Net(net.parse().expect("a network"))]));
    }
    for index in 0..40 {
        let member = IpSetMember::IpAndPort { address, protocol: 6, port: 80 + index };
        sets.push((names::ip_set(version, &format!("n:{index}")), vec![member]));
    }
    sets
}

fn named(count: usize) -> Vec<IpSetId> {
    (0..count).map(|index| format!("n:{index}").into()).collect()
}

fn single(count: u16) -> Vec<PortRange> {
    (0..count).map(|index| PortRange { first: 1000 + 2 * index, last: 1000 + 2 * index }).collect()
}

fn ranges(list: &[(u16, u16)]) -> Vec<PortRange> {
    list.iter().map(|&(first, last)| PortRange { first, last }).collect()
}

fn nets(list: &[&str]) -> Vec<ipnet::IpNet> {
    list.iter().map(|net| net.parse().expect("a network")).collect()
}

/// All values of all fields, and one that changes nothing.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes: Vec<Shape> = Vec::new();
    let mut add = |field, apply: Rc<dyn Fn(&mut Rule)>| shapes.push(Shape { field, apply });
    macro_rules! shape {
        ($field:literal, $rule:ident => $change:expr) => {
            add($field, Rc::new(move |$rule: &mut Rule| $change))
        };
    }
    shape!("nothing", _rule => ());
    for version in [IpVersion::V4, IpVersion::V6] {
        shape!("ipVersion", rule => rule.ip_version = Some(version));
    }
    let protocols = || {
        use Protocol::{Icmp, Icmpv6, Number, Other, Sctp, Tcp, Udp, UdpLite};
        let number = [1, 6, 17, 47, 58, 132, 255, 0].map(Number);
        let strange = Other(IntOrString::from("strange"));
        [Tcp, Udp, Icmp, Icmpv6, Sctp, UdpLite, strange].into_iter().chain(number)
    };
    for protocol in protocols() {
        let other = protocol.clone();
        shape!("protocol", rule => rule.protocol = Some(protocol.clone()));
        shape!("notProtocol", rule => rule.not_protocol = Some(other.clone()));
    }
    for (icmp_type, code) in [(8, None), (8, Some(0)), (3, Some(255)), (0, None), (254, Some(1)), (255, None)]
    {
        shape!("icmp", rule => rule.icmp = Some(IcmpMatch { icmp_type, code }));
        shape!("notICMP", rule => rule.not_icmp = Some(IcmpMatch { icmp_type, code }));
    }
    let ends: [EndFields; 2] = [
        (
            &[
                "source.nets",
                "source.notNets",
                "source.ports",
                "source.notPorts",
                "source.namedPorts",
                "source.notNamedPorts",
                "source.sets",
                "source.notSets",
            ],
            |rule| &mut rule.source,
        ),
        (
            &[
                "destination.nets",
                "destination.notNets",
                "destination.ports",
                "destination.notPorts",
                "destination.namedPorts",
                "destination.notNamedPorts",
                "destination.sets",
                "destination.notSets",
            ],
            |rule| &mut rule.destination,
        ),
    ];
    for (fields, end) in ends {
        for list in [
            &["10.0.0.0/8"][..],
            &["10.0.0.1/32", "11.0.0.0/8", "12.1.2.3/12"],
            &["0.0.0.0/0"],
            &["fd00::/8"],
            &["fd00::1/128", "::/0"],
            &["10.0.0.0/8", "fd00::/8"],
        ] {
            let list = nets(list);
            add(fields[0], Rc::new(move |rule| end(rule).nets = list.clone()));
        }
        for list in [
            &["10.0.0.0/8"][..],
            &["10.0.0.0/8", "12.0.0.0/8"],
            &["fd00::/8"],
            &["fd00::/8", "fe00::1/128"],
            &["0.0.0.0/0"],
        ] {
            let list = nets(list);
            add(fields[1], Rc::new(move |rule| end(rule).not_nets = list.clone()));
        }
        for list in [
            single(1),
            single(40),
            ranges(&[(0, 65535)]),
            ranges(&[(80, 90), (85, 100), (85, 85), (90, 80)]),
            ranges(&[(5, 4)]),
        ] {
            add(fields[2], Rc::new(move |rule| end(rule).ports = list.clone()));
        }
        for list in [single(1), single(40), single(400), ranges(&[(80, 90), (85, 100)])] {
            add(fields[3], Rc::new(move |rule| end(rule).not_ports = list.clone()));
        }
        for count in [1, 3] {
            add(fields[4], Rc::new(move |rule| end(rule).named_port_ip_set_ids = named(count)));
        }
        for count in [1, 40] {
            add(fields[5], Rc::new(move |rule| end(rule).not_named_port_ip_set_ids = named(count)));
        }
        for list in [&["s:one"][..], &["s:one", "s:two"]] {
            add(
                fields[6],
                Rc::new(move |rule| end(rule).ip_set_ids = list.iter().map(|&id| id.into()).collect()),
            );
        }
        add(fields[7], Rc::new(move |rule| end(rule).not_ip_set_ids = vec!["s:two".into()]));
    }
    shape!("services", rule => rule.destination = RuleEnd { ip_port_set_ids: named(1), ..rule.destination.clone() });
    shape!("http", rule => rule.http = Some(Box::new(HTTPMatch::default())));
    shape!("annotations", rule => {
        rule.annotations.insert("why".to_owned(), "because \"of\" \\ that\n`$(x)` ä".to_owned());
    });
    shape!("annotations", rule => {
        rule.annotations.extend((0..60).map(|index| (format!("key{index}"), "x".repeat(500))));
    });
    shapes
}

/// Builds the rule of two shapes.
pub(crate) fn pair(first: &Shape, second: &Shape, action: RuleAction) -> Rule {
    let mut rule = Rule { action, ..Rule::default() };
    (first.apply)(&mut rule);
    (second.apply)(&mut rule);
    rule
}
