//! WireGuard on real kernels: this machine's, which may lack it, and a guest's, which supports it for both IP versions.

use crate::lab::{Lab, config, messages};
use felix_config::Config;
use messages::{
    FromDataplane, HostMetadata, IpPoolType, NodeName, Route, RouteTypes, ToDataplane, TunnelType,
    WireguardEndpoint, WireguardEndpointV6,
};
use netlink::wireguard::{Client, Devices as _, PublicKey};
use rules::Backend;
use testkit::guest::Guest;

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32]).expect("a key")
}

fn route(destination: &str, node: &str, types: RouteTypes) -> ToDataplane {
    ToDataplane::RouteUpdate(Route {
        dst: destination.parse().expect("a network"),
        types,
        ip_pool_type: IpPoolType::NoEncap,
        dst_node_name: Some(node.into()),
        dst_node_ip: None,
        same_subnet: true,
        nat_outgoing: false,
        local_workload: false,
        tunnel_type: TunnelType::default(),
        borrowed: false,
    })
}

fn is_key(report: &FromDataplane, wanted_ipv6: bool, wanted: impl Fn(&str) -> bool) -> bool {
    matches!(report, FromDataplane::WireguardStatus { public_key, ipv6 } if *ipv6 == wanted_ipv6 && wanted(public_key))
}

#[test]
fn a_kernel_without_it_has_everything_else() {
    let mut lab = Lab::new();
    let has_it = lab.host.run(|| Client::open().is_ok());
    lab.start(Config { wireguard_enabled: true, ..config(Backend::Nftables) });
    lab.send(messages(Backend::Nftables));
    lab.send(vec![ToDataplane::InSync]);
    // An empty key tells other nodes not to encrypt to us, a real one that they may.
    lab.wait_for("the key", |report| is_key(report, false, |key| key.is_empty() != has_it));
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    assert_eq!(lab.host.shell("ip rule").contains("lookup 1\n"), has_it);
    assert!(lab.host.shell("nft list table ip calico").contains("Allow incoming IPv4 Wireguard packets"));
}

#[test]
fn both_ip_versions_and_hosts() {
    let guest = Guest::new("wireguard::both_ip_versions_and_hosts");
    let programs =
        ["ip", "nft", "ipset", "conntrack", "iptables", "iptables-nft-restore", "iptables-legacy-restore"];
    programs.into_iter().fold(guest, Guest::program).run(both_versions);
}

fn both_versions() {
    let mut lab = Lab::new();
    lab.host.shell("ip addr add fd65::1/64 dev eth0 nodad");
    let on = Config {
        wireguard_enabled: true,
        wireguard_enabled_v6: true,
        wireguard_host_encryption_enabled: true,
        ipv6_support: true,
        ..config(Backend::Nftables)
    };
    lab.start(on.clone());
    lab.send(messages(Backend::Nftables));
    let other = NodeName::from("other");
    let metadata = |ipv4: &str, ipv6: &str| HostMetadata {
        ipv4_addr: ipv4.into(),
        ipv6_addr: ipv6.into(),
        ..HostMetadata::default()
    };
    lab.send(vec![
        ToDataplane::HostMetadataUpdate("n1".into(), metadata("10.65.0.1/24", "fd65::1/64")),
        ToDataplane::HostMetadataUpdate(other.clone(), metadata("10.65.0.7/24", "fd65::7/64")),
        ToDataplane::WireguardUpdate(
            other.clone(),
            WireguardEndpoint { public_key: key(1).to_string(), interface_ipv4: None },
        ),
        ToDataplane::WireguardV6Update(
            other.clone(),
            WireguardEndpointV6 { public_key: key(2).to_string(), interface_ipv6: None },
        ),
        route("10.99.1.0/26", "other", RouteTypes::REMOTE_WORKLOAD),
        route("fd99::/122", "other", RouteTypes::REMOTE_WORKLOAD),
        route("10.65.0.7/32", "other", RouteTypes::REMOTE_HOST),
        route("10.99.2.0/26", "unready", RouteTypes::REMOTE_WORKLOAD),
        ToDataplane::InSync,
    ]);
    lab.wait_for("the key of IPv4", |report| is_key(report, false, |key| key.len() == 44));
    lab.wait_for("the key of IPv6", |report| is_key(report, true, |key| key.len() == 44));
    let rule = "99:\tnot from all fwmark 0x200000/0x200000 lookup 1";
    for version in ["-4", "-6"] {
        lab.wait_to_see(&format!("ip {version} rule"), |seen| seen.contains(rule));
    }
    lab.wait_to_see("ip -4 route show table 1", |seen| {
        let mut lines: Vec<_> = seen.lines().map(str::trim).collect();
        lines.sort_unstable();
        lines
            == [
                "10.65.0.7 dev wireguard.cali scope link",
                "10.99.1.0/26 dev wireguard.cali scope link",
                "throw 10.66.1.0/26",
                "throw 10.66.2.0",
                "throw 10.66.2.0/26",
                "throw 10.99.2.0/26",
            ]
    });
    lab.wait_to_see("ip -6 route show table 1", |seen| seen.contains("fd99::/122 dev wg-v6.cali"));
    // With host encryption the device has the host's own address.
    lab.wait_to_see("ip -4 addr show dev wireguard.cali", |seen| seen.contains("inet 10.65.0.1/32"));
    lab.wait_to_see("ip -6 addr show dev wg-v6.cali", |seen| seen.contains("inet6 fd65::1/128"));
    assert_eq!(lab.host.shell("cat /proc/sys/net/ipv4/conf/all/src_valid_mark").trim(), "1");
    let devices = lab.host.run(|| {
        let mut client = Client::open().expect("WireGuard");
        ["wireguard.cali", "wg-v6.cali"]
            .map(|name| client.device(name).expect("a device").expect("it is there"))
    });
    let [v4, v6] = &devices;
    assert_eq!((v4.port, v4.mark, v6.port, v6.mark), (51820, 0x20_0000, 51821, 0x20_0000));
    assert_eq!(v4.peers[&key(1)].endpoint, "10.65.0.7:51820".parse().ok());
    assert_eq!(v6.peers[&key(2)].endpoint, "[fd65::7]:51821".parse().ok());
    assert_eq!(v6.peers[&key(2)].allowed, ["fd99::/122".parse().expect("a network")].into());
    // Figures are read in the caller's namespace.
    let metrics = lab.metrics.clone();
    let page = lab.host.run(move || metrics.page());
    assert!(page.contains("wireguard_meta{hostname="), "{page}");

    // The next process finds WireGuard disabled.
    lab.stop().expect("an end");
    let off = Config { wireguard_enabled: false, wireguard_enabled_v6: false, ..on };
    lab.start(off);
    lab.send(messages(Backend::Nftables));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("no key", |report| is_key(report, false, str::is_empty));
    lab.wait_for("no key of IPv6", |report| is_key(report, true, str::is_empty));
    let links = lab.host.shell("ip -o link");
    assert!(!links.contains("wireguard.cali") && !links.contains("wg-v6.cali"), "{links}");
    for version in ["-4", "-6"] {
        assert!(!lab.host.shell(&format!("ip {version} rule")).contains("fwmark"));
        let left = lab.host.shell(&format!("ip {version} route show table 1 2>&1 || true"));
        assert!(!left.contains("throw") && !left.contains("dev"), "{left}");
    }
}
