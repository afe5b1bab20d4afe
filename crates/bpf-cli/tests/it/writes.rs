//! Commands that change maps.

use crate::given::Given;
use bpf::Layout as _;
use bpf::layout::V4;
use bpf::layout::conntrack::Key;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};

#[test]
fn frontends_and_backends_by_hand() {
    let mut given =
        Given::default().with("cali_v4_nat_fe3", []).with("cali_v4_nat_be", []).with("cali_v6_nat_be", []);
    given.prints("nat set front 10.96.0.1 0x50 tcp 7 1");
    given.prints("nat set back 7 0 10.1.0.1 8080");
    given.prints("nat set back -6 7 0 fd00::1 8080");
    let key = FrontendKey::<V4> { address: [10, 96, 0, 1], port: 80, protocol: 6, ..FrontendKey::default() };
    assert_eq!(
        given.maps["cali_v4_nat_fe3"][&key.bytes()],
        Frontend { id: 7, count: 1, ..Frontend::default() }.bytes()
    );
    let backend = BackendKey { id: 7, ordinal: 0 }.bytes();
    assert_eq!(
        given.maps["cali_v4_nat_be"][&backend],
        Backend::<V4> { address: [10, 1, 0, 1], port: 8080 }.bytes()
    );
    assert_eq!(given.maps["cali_v6_nat_be"][&backend].len(), 20);
    assert_eq!(
        given.run("nat del front 10.96.0.1 81 tcp"),
        Err("cali_v4_nat_fe3 has no such entry".to_owned())
    );
    given.prints("nat del front 10.96.0.1 80 tcp");
    given.prints("nat del back 7 0");
    assert!(given.maps["cali_v4_nat_fe3"].is_empty() && given.maps["cali_v4_nat_be"].is_empty());
}

#[test]
fn connections_by_hand() {
    let key = |protocol, source: [u8; 4], port| {
        Key::<V4>::new(protocol, (source, port), ([10, 0, 0, 9], 80)).0.bytes()
    };
    let all = || {
        [
            key(6, [10, 0, 0, 1], 1),
            key(6, [10, 0, 0, 1], 2),
            key(17, [10, 0, 0, 1], 1),
            key(6, [10, 0, 0, 2], 1),
        ]
        .map(|key| (key, vec![0; 88]))
    };
    let mut given = Given::default().with("cali_v4_ct4", all());
    given.prints("conntrack remove tcp 10.0.0.9 10.0.0.1");
    assert_eq!(given.maps["cali_v4_ct4"].keys().cloned().collect::<Vec<_>>().len(), 2);
    assert!(given.maps["cali_v4_ct4"].contains_key(&key(17, [10, 0, 0, 1], 1)));
    given.prints("conntrack clean");
    assert!(given.maps["cali_v4_ct4"].is_empty());
    // 16 and 88 zero bytes.
    let (zero_key, zero_value) = ("AAAAAAAAAAAAAAAAAAAAAA==", format!("{}AAAAAAAAAA==", "A".repeat(108)));
    given.prints(&format!("conntrack write {zero_key} {zero_value}"));
    assert_eq!(given.maps["cali_v4_ct4"][&vec![0; 16]], vec![0; 88]);
    assert_eq!(
        given.run(&format!("conntrack write AAAA {zero_value}")),
        Err("cali_v4_ct4 has keys or values of 3 bytes, not 16".to_owned())
    );
    given.prints("conntrack create -6");
    let made = &given.made[0];
    assert_eq!((made.name.as_str(), made.key, made.value, made.entries), ("cali_v6_ct4", 40, 128, 512_000));
    assert_eq!(
        given.run("conntrack dump --ver 2"),
        Err("unknown version 2 of the conntrack map: only 4 is supported".to_owned())
    );
}

#[test]
fn routes_by_hand() {
    let mut given = Given::default().with("cali_v4_routes", []).with("cali_v6_routes", []);
    assert_eq!(
        given.prints("routes add 10.65.0.2 --workload Local --ifindex 12"),
        "added route 10.65.0.2/32\n"
    );
    assert_eq!(
        given.prints("routes add 10.65.1.0/26 --workload remote --nexthop 172.17.0.7 --tunneled"),
        "added route 10.65.1.0/26\n"
    );
    assert_eq!(
        given.prints("routes add fd00::/64 --host remote --nexthop fd01::1"),
        "added route fd00::/64\n"
    );
    assert_eq!(
        given.prints("routes dump"),
        "   10.65.0.2/32: local workload idx 12\n   10.65.1.0/26: remote workload tunneled nh 172.17.0.7\n"
    );
    for (wrong, why) in [
        (
            "routes add 10.0.0.0/8",
            "for add: one of --workload or --host must be specified (use 'local' or 'remote')",
        ),
        ("routes add 10.0.0.0/8 --host local", "local routes require --ifindex to be specified and non-zero"),
        ("routes add 10.0.0.0/8 --host remote", "remote routes require --nexthop to be specified"),
        (
            "routes add 10.0.0.0/8 --host remote --nexthop fd00::1",
            "the next hop is of another IP version than the network",
        ),
        ("routes add x --host remote", "\"x\" is neither an address nor a network"),
        ("routes del 10.0.0.0/8", "cali_v4_routes has no route 10.0.0.0/8"),
    ] {
        assert_eq!(given.run(wrong), Err(why.to_owned()), "{wrong}");
    }
    assert_eq!(given.prints("routes del 10.65.0.2"), "deleted route 10.65.0.2/32\n");
    assert_eq!(given.maps["cali_v4_routes"].len(), 1);
}

#[test]
fn cleaning_up() {
    let mut given = Given::default().with("cali_v4_arp2", [(vec![0; 8], vec![0; 12])]);
    given.prints("arp clean");
    assert!(given.maps["cali_v4_arp2"].is_empty());
    given.prints("connect-time clean");
    given.prints("cleanup");
    assert_eq!(given.detached, [true, false]);
}
