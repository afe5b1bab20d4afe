//! IP sets of both kinds on a real kernel.

use crate::host::Host;
use crate::takeover::{kernel_sets, nft_sets};
use messages::{IpSetMember, IpSetType};
use netfilter::ipsets::{IpSetDriver, KernelSets, NftSets};
use netfilter::{Part, Refused};
use netlink::netfilter::{ipset, nft};
use rules::tree::IpVersion;

fn nets(list: &[&str]) -> Vec<IpSetMember> {
    list.iter().map(|net| IpSetMember::Net(net.parse().expect("a network"))).collect()
}

fn update(driver: &mut impl IpSetDriver) -> bool {
    driver.apply_updates().expect("applied").wrote
}

/// The members of a set, sorted.
fn members(host: &Host, name: &str) -> Vec<String> {
    let printed = host.shell(&format!("ipset save {name}"));
    let mut found: Vec<String> = printed
        .lines()
        .filter_map(|line| line.strip_prefix(&format!("add {name} ")))
        .map(str::to_owned)
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn kernel_sets_of_all_types_and_both_versions() {
    let host = Host::new();
    let (mut v4, mut v6) = host.run(|| {
        let v6 = KernelSets::new(ipset::Client::open().expect("a socket"), IpVersion::V6, 1000);
        (kernel_sets(), v6)
    });
    let port = |address: &str, protocol, port| IpSetMember::IpAndPort {
        address: address.parse().expect("address"),
        protocol,
        port,
    };
    let mixed = [
        nets(&["10.0.0.0/8", "fd00::/64", "192.0.2.1/32"]),
        vec![IpSetMember::Ip("fd00::1".parse().expect("address"))],
    ]
    .concat();
    let drivers: [&mut dyn IpSetDriver; 2] = [&mut v4, &mut v6];
    for driver in drivers {
        driver.update_set("nets", IpSetType::Net, &mixed);
        driver.update_set("all", IpSetType::Net, &nets(&["0.0.0.0/0", "::/0"]));
        driver.update_set(
            "ports",
            IpSetType::IpAndPort,
            &[port("10.0.0.1", 6, 80), port("10.0.0.1", 17, 53), port("fd00::1", 132, 7)],
        );
        let hosts: Vec<IpSetMember> = ["10.0.0.1", "fd00::1"]
            .iter()
            .map(|one| IpSetMember::Ip(one.parse().expect("address")))
            .collect();
        driver.update_set("hosts", IpSetType::Ip, &hosts);
        assert!(driver.apply_updates().expect("applied").wrote);
        assert_eq!(driver.refused(), []);
    }
    assert_eq!(members(&host, "cali40nets"), ["10.0.0.0/8", "192.0.2.1"]);
    assert_eq!(members(&host, "cali60nets"), ["fd00::/64", "fd00::1"]);
    assert_eq!(members(&host, "cali40all"), ["0.0.0.0/1", "128.0.0.0/1"]);
    assert_eq!(members(&host, "cali60all"), ["8000::/1", "::/1"]);
    assert_eq!(members(&host, "cali40ports"), ["10.0.0.1,tcp:80", "10.0.0.1,udp:53"]);
    assert_eq!(members(&host, "cali60ports"), ["fd00::1,sctp:7"]);
    assert_eq!(
        (members(&host, "cali40hosts"), members(&host, "cali60hosts")),
        (vec!["10.0.0.1".into()], vec!["fd00::1".into()])
    );
    assert!(host.shell("ipset save cali60nets").contains("family inet6 hashsize 1024 maxelem 1000 "));

    // Written members are recognised, also after a restart.
    v4.invalidate();
    assert!(!update(&mut v4));

    // The whole network is removed; one half was added by itself and stays.
    v4.update_members("all", &nets(&["0.0.0.0/1"]), &[]);
    assert!(!update(&mut v4));
    v4.update_members("all", &[], &nets(&["0.0.0.0/0"]));
    assert!(update(&mut v4));
    assert_eq!(members(&host, "cali40all"), ["0.0.0.0/1"]);
}

#[test]
fn kernel_sets_change_incrementally_and_are_removed_when_unused() {
    let host = Host::new();
    host.feed("ipset restore", "create foreign hash:ip\ncreate cali40s:old hash:net\nadd cali40s:old 10.0.0.0/8\ncreate cali60left hash:net family inet6\ncreate felix-4-x hash:ip\ncreate cali4t7 hash:ip\n");
    let mut driver = host.run(kernel_sets);
    let many: Vec<IpSetMember> = (0..20_000_u32)
        .map(|one| IpSetMember::Ip(std::net::Ipv4Addr::from(0x0a00_0000 + one).into()))
        .collect();
    driver.update_set("s:many", IpSetType::Net, &many);
    assert!(update(&mut driver));
    assert_eq!(members(&host, "cali40s:many").len(), 20_000);
    let operations = driver.metrics().operations;
    driver.update_members("s:many", &nets(&["192.0.2.0/24"]), &many[..3]);
    assert!(update(&mut driver));
    assert_eq!(driver.metrics().operations - operations, 4);
    assert_eq!(members(&host, "cali40s:many").len(), 19_998);

    // Sets that rules refer to stay until the rules are gone.
    host.shell("iptables-legacy -A FORWARD -m set --match-set cali40s:many src -j DROP");
    driver.remove_set("s:many");
    update(&mut driver);
    let applied = driver.apply_deletions().expect("applied");
    assert!(applied.wrote && applied.again_in.is_some(), "{applied:?}");
    let left = host.shell("ipset list -n");
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["cali40s:many", "cali60left", "foreign"]);
    host.shell("iptables-legacy -F");
    assert!(driver.apply_deletions().expect("applied").again_in.is_none());
    assert!(!host.shell("ipset list -n").contains("many"));
}

#[test]
fn kernel_sets_of_another_size_are_swapped_under_the_rules() {
    let host = Host::new();
    host.feed(
        "ipset restore",
        "create cali40s:x hash:net family inet maxelem 10\nadd cali40s:x 10.0.0.0/8\n",
    );
    host.shell("iptables-legacy -A FORWARD -m set --match-set cali40s:x src -j DROP");
    let mut driver = host.run(kernel_sets);
    driver.update_set("s:x", IpSetType::Net, &nets(&["192.0.2.0/24"]));
    assert!(update(&mut driver));
    assert_eq!(driver.refused(), []);
    assert!(host.shell("ipset save cali40s:x").contains("maxelem 1048576"));
    assert_eq!(members(&host, "cali40s:x"), ["192.0.2.0/24"]);
    assert_eq!(host.shell("ipset list -n").lines().count(), 1, "nothing is left under another name");

    // A set of another type cannot be swapped in while rules refer to it; that is reported, and other sets continue.
    driver.update_set("s:x", IpSetType::Ip, &[]);
    driver.update_set("s:y", IpSetType::Ip, &[IpSetMember::Ip([10, 0, 0, 1].into())]);
    let applied = driver.apply_updates().expect("applied");
    assert!(applied.again_in.is_some());
    let refused = driver.refused();
    assert_eq!((refused.len(), &*refused[0].name), (1, "cali40s:x"), "{refused:?}");
    assert_eq!(members(&host, "cali40s:y"), ["10.0.0.1"]);
}

#[test]
fn a_full_set_is_reported_member_by_member() {
    let host = Host::new();
    let mut driver =
        host.run(|| KernelSets::new(ipset::Client::open().expect("a socket"), IpVersion::V4, 64));
    let many: Vec<IpSetMember> = (0..2000_u32)
        .map(|one| IpSetMember::Ip(std::net::Ipv4Addr::from(0x0a00_0000 + one).into()))
        .collect();
    driver.update_set("s:x", IpSetType::Ip, &many);
    assert!(update(&mut driver));
    let held = members(&host, "cali40s:x").len();
    let refused = driver.refused();
    assert_eq!(held + refused.len(), 2000);
    assert!(
        matches!(&refused[0], Refused { part: Some(Part::Member(_)), reason, .. } if reason == "the set is full"),
        "{}",
        refused[0]
    );
    // When other members are removed, those that found no room are retried.
    driver.update_members("s:x", &[], &many[..1990]);
    assert!(update(&mut driver));
    assert_eq!((members(&host, "cali40s:x").len(), driver.refused()), (10, vec![]));
}

#[test]
fn nft_sets_of_all_types_and_both_versions() {
    let host = Host::new();
    let (mut v4, mut v6) = host.run(|| {
        let v6 = NftSets::new(nft::Client::open().expect("a socket"), IpVersion::V6);
        (nft_sets(), v6)
    });
    let port = |address: &str, protocol, port| IpSetMember::IpAndPort {
        address: address.parse().expect("address"),
        protocol,
        port,
    };
    let mixed = nets(&[
        "10.0.0.0/8",
        "10.1.0.0/16",
        "192.0.2.0/25",
        "192.0.2.128/25",
        "255.255.255.255/32",
        "fd00::/64",
        "fd00::1/128",
        "ffff:ffff:ffff:ffff::/64",
    ]);
    let drivers: [&mut dyn IpSetDriver; 2] = [&mut v4, &mut v6];
    for driver in drivers {
        driver.update_set("nets", IpSetType::Net, &mixed);
        driver.update_set("all", IpSetType::Net, &nets(&["0.0.0.0/0", "::/0", "10.0.0.0/8"]));
        driver.update_set(
            "s:ports",
            IpSetType::IpAndPort,
            &[port("10.0.0.1", 6, 80), port("fd00::1", 17, 53)],
        );
        driver.update_set("hosts", IpSetType::Ip, &[IpSetMember::Ip([10, 0, 0, 1].into())]);
        assert!(driver.apply_updates().expect("applied").wrote);
        assert_eq!((driver.refused(), driver.metrics().calls), (vec![], 1));
        driver.invalidate();
        assert!(!driver.apply_updates().expect("applied").wrote, "what was written is recognised");
    }
    let elements = |family: &str, name: &str| {
        let listed = host.shell(&format!("nft list set {family} calico {name}"));
        let text: String = listed.split_whitespace().collect::<Vec<_>>().join(" ");
        text.split_once("elements = { ")
            .map_or(String::new(), |(_, rest)| rest.split(" }").next().unwrap_or_default().to_owned())
    };
    assert_eq!(elements("ip", "cali40nets"), "10.0.0.0/8, 192.0.2.0/25, 192.0.2.128/25, 255.255.255.255");
    assert_eq!(elements("ip6", "cali60nets"), "fd00::/64, ffff:ffff:ffff:ffff::/64");
    assert_eq!(elements("ip", "cali40all"), "0.0.0.0/0");
    assert_eq!(elements("ip6", "cali60all"), "::/0");
    assert_eq!(elements("ip", "cali40s-ports"), "10.0.0.1 . tcp . 80");
    assert_eq!(elements("ip6", "cali60s-ports"), "fd00::1 . udp . 53");
    assert_eq!(
        (elements("ip", "cali40hosts"), elements("ip6", "cali60hosts")),
        ("10.0.0.1".into(), String::new())
    );

    // The covering network is removed, and the covered one appears; neighbours stay separate.
    v4.update_members("nets", &nets(&["192.0.2.0/24"]), &nets(&["10.0.0.0/8"]));
    v4.update_members("all", &[], &nets(&["0.0.0.0/0"]));
    assert!(update(&mut v4));
    assert_eq!(elements("ip", "cali40nets"), "10.1.0.0/16, 192.0.2.0/24, 255.255.255.255");
    assert_eq!(elements("ip", "cali40all"), "10.0.0.0/8");

    // Sets that rules refer to stay until the rules are gone.
    host.shell("nft add chain ip calico c; nft add rule ip calico c ip saddr @cali40nets drop");
    for id in ["nets", "all", "s:ports"] {
        v4.remove_set(id);
    }
    update(&mut v4);
    let applied = v4.apply_deletions().expect("applied");
    assert!(applied.wrote && applied.again_in.is_some());
    host.shell("nft flush chain ip calico c");
    assert!(v4.apply_deletions().expect("applied").wrote);
    let left: Vec<String> =
        host.ruleset().sets.into_keys().filter(|name| name.starts_with("ip calico")).collect();
    assert_eq!(left, ["ip calico cali40hosts"]);
}

#[test]
fn nft_sets_of_many_members_and_of_another_type() {
    let host = Host::new();
    host.feed("nft -f -", "add table ip calico\nadd set ip calico cali40s-x { type inet_service; }\nadd set ip calico cali40s-gone { type ipv4_addr; flags interval; elements = { 10.0.0.1-10.0.0.7 }; }\n");
    let mut driver = host.run(nft_sets);
    let many: Vec<IpSetMember> = (0..10_000_u32)
        .map(|one| IpSetMember::Ip(std::net::Ipv4Addr::from(0x0a00_0000 + 2 * one).into()))
        .collect();
    driver.update_set("s:many", IpSetType::Net, &many);
    driver.update_set("s:x", IpSetType::Net, &[]);
    // A range that is not a network: an administrator wrote it.
    driver.update_set("s:gone", IpSetType::Net, &nets(&["10.0.0.4/30"]));
    assert!(update(&mut driver));
    let refused = driver.refused();
    assert_eq!((refused.len(), &*refused[0].name), (1, "cali40s-x"));
    let sets = host.ruleset().sets;
    assert_eq!(sets["ip calico cali40s-many"]["elem"].as_array().map(Vec::len), Some(10_000));
    assert_eq!(sets["ip calico cali40s-gone"]["elem"].as_array().map(Vec::len), Some(1));
    driver.update_members("s:many", &nets(&["10.0.0.0/16"]), &many[..1]);
    assert!(update(&mut driver));
    assert_eq!(host.ruleset().sets["ip calico cali40s-many"]["elem"].as_array().map(Vec::len), Some(1));
    assert_eq!(driver.metrics().calls, 2);
}
