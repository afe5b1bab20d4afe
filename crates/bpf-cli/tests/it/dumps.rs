//! The output of the other dumps: Calico's format, in a stable order.

use crate::given::{Given, entry};
use bpf::Layout as _;
use bpf::layout::network::{CounterKey, Counters, Profile, ProfileKey, Route, RouteKey};
use bpf::layout::{V4, V6};
use bpf_policy::layout::{
    Action, Bytes as _, ListId, Lists, ListsKey, Row, RuleEntry, RuleKey, Segment, SegmentKey,
};
use serde_json::json;

#[test]
fn routes_dump() {
    let route = |net: &str, flags: u32, hop: [u8; 4]| {
        let net: ipnet::Ipv4Net = net.parse().expect("a network");
        let key = RouteKey::<V4> { bits: net.prefix_len().into(), address: net.addr().octets() };
        entry(key, Route::<V4> { flags, next_hop: hop })
    };
    let mut given = Given::default()
        .with(
            "cali_v4_routes",
            [
                route("172.17.0.7/32", 0x10, [0; 4]),
                route("10.65.0.0/16", 0x3, [0; 4]),
                route("10.65.0.2/32", 0xf, 12_u32.to_ne_bytes()),
                route("10.65.1.0/26", 0x467, [172, 17, 0, 7]),
                route("10.65.0.0/26", 0x887, [172, 17, 0, 8]),
                route("10.96.0.0/12", 0x100, [0; 4]),
                route("10.97.0.0/16", 0x200, [0; 4]),
                route("100.65.0.1/32", 0x18, [0; 4]),
            ],
        )
        .with(
            "cali_v6_routes",
            [entry(
                RouteKey::<V6> { bits: 122, address: [0xfd; 16] },
                Route::<V6> { flags: 0x4, next_hop: [0xfe; 16] },
            )],
        );
    let expected = [
        "   10.65.0.0/16: remote in-pool nat-out",
        "   10.65.0.0/26: remote workload in-pool nat-out no-dsr skip-ingress-redir nh 172.17.0.8",
        "   10.65.0.2/32: local workload in-pool nat-out idx 12",
        "   10.65.1.0/26: remote workload in-pool nat-out same-subnet tunneled nh 172.17.0.7",
        "   10.96.0.0/12: blackhole-drop",
        "   10.97.0.0/16: blackhole-reject",
        "  100.65.0.1/32: local host",
        "  172.17.0.7/32: remote host",
    ];
    assert_eq!(given.prints("routes dump").lines().collect::<Vec<_>>(), expected);
    let json = given.json("routes dump -j");
    assert_eq!(
        json[3],
        json!({"dest": "10.65.1.0/26", "flags": ["remote", "workload", "in-pool", "nat-out", "same-subnet", "tunneled", "vxlan"], "next_hop": "172.17.0.7"})
    );
    assert_eq!((&json[2]["ifindex"], &json[4]["flags"]), (&json!(12), &json!(["blackhole-drop"])));
    let six = "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd/122: remote workload nh fefe:fefe:fefe:fefe:fefe:fefe:fefe:fefe\n";
    assert_eq!(given.prints("-6 routes dump"), six);
}

#[test]
fn sets_neighbours_and_devices() {
    let member = |prefix: u32, set: u64, address: [u8; 4], port: u16, protocol: u8| {
        let mut key = prefix.to_ne_bytes().to_vec();
        key.extend(set.to_be_bytes());
        key.extend(address);
        key.extend(port.to_ne_bytes());
        key.extend([protocol, 0]);
        (key, vec![0; 4])
    };
    let mut device = vec![0; 52];
    device[0] = 0b111;
    device[4..9].copy_from_slice(b"cali1");
    for (place, byte) in device[20..].iter_mut().enumerate() {
        *byte = if place < 4 {
            0xff
        } else if place % 4 == 0 {
            u8::try_from(place / 4).expect("small")
        } else {
            0
        };
    }
    let mut host = vec![0; 52];
    host[4..8].copy_from_slice(b"eth0");
    let mut given = Given::default()
        .with(
            "cali_v4_ip_sets",
            [
                member(88, 0xab, [10, 0, 1, 0], 0, 0),
                member(128, 2, [10, 0, 0, 1], 80, 6),
                member(96, 0xab, [10, 0, 0, 7], 0, 0),
            ],
        )
        .with("cali_v6_ip_sets", [])
        .with("cali_v4_arp2", [(vec![10, 0, 0, 1, 7, 0, 0, 0], (1..13).collect())])
        .with("cali_iface4", [(7_u32.to_ne_bytes().to_vec(), device), (2_u32.to_ne_bytes().to_vec(), host)]);
    let sets = "IP set 0x2\n   10.0.0.1:80 (proto 6)\n\nIP set 0xab\n   10.0.0.7/32\n   10.0.1.0/24\n\n";
    assert_eq!(given.prints("ipsets dump"), sets);
    assert_eq!(given.prints("ipsets dump -6"), "No IP sets found.\n");
    assert_eq!(
        given.json("ipsets dump -j")[1],
        json!({"set_id": "0xab", "members": ["10.0.0.7/32", "10.0.1.0/24"]})
    );
    assert_eq!(
        given.prints("arp dump"),
        "dev    7:        10.0.0.1 : 01:02:03:04:05:06 -> 07:08:09:0a:0b:0c\n"
    );
    assert_eq!(given.json("arp dump -j")[0]["dst_mac"], "07:08:09:0a:0b:0c");
    let states = "    2 : {flags: host, XDPPolicyV4: 0, IngressPolicyV4: 0, EgressPolicyV4: 0, XDPPolicyV6: 0, IngressPolicyV6: 0, EgressPolicyV6: 0, IngressFilter: 0, EgressFilter: 0, name: eth0}
    7 : {flags: workload,v4Ready,v6Ready, XDPPolicyV4: -1, IngressPolicyV4: 1, EgressPolicyV4: 2, XDPPolicyV6: 3, IngressPolicyV6: 4, EgressPolicyV6: 5, IngressFilter: 6, EgressFilter: 7, name: cali1}
";
    assert_eq!(given.prints("ifstate dump"), states);
    let json = given.json("ifstate dump -j");
    assert_eq!(
        (&json[1]["flags"], &json[1]["egress_policy_v6"]),
        (&json!(["workload", "v4Ready", "v6Ready"]), &json!(5))
    );
}

#[test]
fn counters_are_sums_of_all_bits_of_all_processors() {
    let key = |hook| CounterKey { device: 3, hook }.bytes();
    let mut counted = [0; 27];
    (counted[0], counted[4]) = (1 << 40, 5);
    let two = [Counters(counted).bytes(), Counters(counted).bytes()].concat();
    let mut given = Given::default().with("cali_counters6", [(key(0), two), (key(1), vec![0; 432])]);
    given.devices = vec![(3, "eth0".to_owned()), (4, "eth1".to_owned())];
    let text = given.prints("counters dump --iface eth0");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 26 + 5);
    assert_eq!(
        lines[0],
        "+----------+------------------------------------------------+---------------+--------+-----+"
    );
    assert_eq!(
        lines[1],
        "| CATEGORY | TYPE                                           |       INGRESS | EGRESS | XDP |"
    );
    assert_eq!(
        lines[3],
        "| Accepted | by another program                             |             0 |      0 | N/A |"
    );
    assert_eq!(
        lines[4],
        "|          | by failsafe                                    |             0 |      0 | N/A |"
    );
    assert_eq!(
        lines[10],
        "|          | by policy                                      |            10 |      0 | N/A |"
    );
    assert_eq!(
        lines[28],
        "| Total    | packets                                        | 2199023255552 |      0 | N/A |"
    );
    assert_eq!(lines[30], "dumped eth0 counters.");
    assert_eq!(given.prints("counters dump").lines().count(), 62);
    let json = given.json("counters dump -j --iface eth0");
    assert_eq!(
        json["counters"][25],
        json!({"category": "Total", "type": "packets", "ingress": 1_u64 << 41, "egress": 0, "xdp": null})
    );
    assert_eq!(given.run("counters dump --iface eth9"), Err("no such interface: eth9".to_owned()));
    given.prints("counters flush --iface eth0");
    assert_eq!(given.maps["cali_counters6"][&key(0)], vec![0; 432]);
    assert_eq!(given.maps["cali_counters6"].len(), 2, "missing counters are not created");
}

#[test]
fn profiling_shows_averages_since_the_last_query() {
    let timed = |device, kind, all: &[(u64, u64)]| {
        let value: Vec<u8> = all
            .iter()
            .flat_map(|(time, samples)| Profile { time: *time, samples: *samples }.bytes())
            .collect();
        (ProfileKey { device, kind }.bytes(), value)
    };
    let mut given = Given::default().with(
        "cali_profiling2",
        [
            timed(3, 0, &[(1000, 1), (2001, 2)]),
            timed(3, 3, &[(500_000, 1000), (0, 0)]),
            timed(7, 2, &[(0, 0), (123, 2)]),
            // A device that is gone, and a kind that a newer program may write.
            timed(9, 0, &[(1, 1), (1, 1)]),
            timed(3, 8, &[(1, 1), (1, 1)]),
        ],
    );
    given.devices = vec![(7, "cali1".to_owned()), (3, "eth0".to_owned()), (4, "eth1".to_owned())];
    let mut again = given.clone();
    let expected = "\
+-------+-------------+-----+-------------+-----+------------+-----+------------+------+
| IFACE | INGRESS NEW | #   | INGRESS EST | #   | EGRESS NEW | #   | EGRESS EST | #    |
+-------+-------------+-----+-------------+-----+------------+-----+------------+------+
| eth0  | 1000.333 ns |   3 |         --- | --- |        --- | --- | 500.000 ns | 1000 |
| cali1 |         --- | --- |         --- | --- |  61.500 ns |   2 |        --- |  --- |
+-------+-------------+-----+-------------+-----+------------+-----+------------+------+
";
    assert_eq!(given.prints("profiling e2e"), expected);
    let json = again.json("profiling e2e -j");
    assert_eq!(json[1]["interface"], "cali1");
    assert_eq!(json[1]["egressNew"], json!({"nanoseconds": 61.5, "packets": 2}));
    assert_eq!(json[1]["ingressNew"], json!(null));
    let nothing = given.prints("profiling e2e");
    assert_eq!(nothing.lines().count(), 4, "{nothing}");
    assert_eq!(given.maps["cali_profiling2"].len(), 1, "unknown kinds are left");
}

#[test]
fn policy_dump_shows_the_lists_of_a_hook() {
    let rule = |list, rule, id, next, action| {
        let list = ListId(list);
        (RuleKey { list, rule }.to_bytes(), RuleEntry { id, next, action }.to_bytes())
    };
    let segment = |list, rules| {
        let list = ListId(list);
        let value = Segment {
            rules,
            dimensions: 3,
            list_dimensions: 3,
            last: true,
            log: Row::default(),
            defaults: [Row::default(); 6],
        };
        (SegmentKey { list, segment: 0 }.to_bytes(), value.to_bytes())
    };
    let lists = Lists { ingress: ListId(0x11), egress: ListId(0x22), ..Lists::default() };
    let mut given = Given::default()
        .with("bpfp_lists", [(ListsKey { ifindex: 7, family: 4 }.to_bytes(), lists.to_bytes())])
        .with("bpfp_segment", [segment(0x11, 3), segment(0x22, 1)])
        .with(
            "bpfp_rule",
            [
                rule(0x11, 0, 5, 2, Action::Pass),
                rule(0x11, 1, 0, 0, Action::Log),
                rule(0x11, 2, 6, 0, Action::Deny),
                rule(0x22, 0, 7, 0, Action::Allow),
            ],
        )
        .with(
            "cali_rule_ctrs2",
            [(5_u64.to_ne_bytes().to_vec(), [3_u64.to_ne_bytes(), (1_u64 << 33).to_ne_bytes()].concat())],
        );
    let mut name = b"PPI0|gnp/p".to_vec();
    name.resize(64, 0);
    given = given.with("bpfp_names", [(5_u64.to_ne_bytes().to_vec(), name)]);
    given.devices = vec![(7, "cali1".to_owned())];
    let expected = "\
IfaceName: cali1
Hook: egress
  List: 0x0000000000000011  (ingress policy)
    Rule: 0  Action: pass, on to rule 2
      Id: 0x0000000000000005
      Name: PPI0|gnp/p
      Hit count: 8589934595
    Rule: 1  Action: log
    Rule: 2  Action: deny
      Id: 0x0000000000000006
      Hit count: 0
";
    assert_eq!(given.prints("policy dump cali1 egress"), expected);
    let all = given.prints("policy dump cali1 all -a");
    assert!(all.starts_with("IfaceName: cali1\nHook: ingress\n  List: 0x0000000000000022  (egress policy)\n    // segment 0: 1 rules"), "{all}");
    assert_eq!(given.prints("policy dump cali1 xdp"), "");
    assert_eq!(given.run("policy dump cali9 all"), Err("no such interface: cali9".to_owned()));
    assert_eq!(given.run("-6 policy dump cali1 all"), Err("cali1 has no IPv6 policy".to_owned()));
}
