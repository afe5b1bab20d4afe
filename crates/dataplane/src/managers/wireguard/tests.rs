//! Which nodes are peers, which destinations use the device, and that only the current state matters, not its history.

use super::{WireguardManager, WireguardSettings};
use crate::desired::Desired;
use ipnet::IpNet;
use messages::{IpPoolType, NodeName, Route, RouteTypes, TunnelType};
use netlink::wireguard::{Devices, FakeDevices, PublicKey};
use netlink::{FakeKernel, Family, Kernel as _, RouteFilter, RouteKind};
use proptest::prelude::*;
use routing::wireguard::{KernelSettings, Wireguard};
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32]).expect("a key")
}

fn settings(encrypt_hosts: bool) -> WireguardSettings {
    WireguardSettings {
        host: "me".into(),
        version: IpVersion::V4,
        interface: "wireguard.cali".into(),
        port: 51820,
        encrypt_hosts,
        keepalive: 0,
    }
}

fn route(destination: &str, node: &str, types: RouteTypes) -> Route {
    Route {
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
    }
}

/// A manager with a driver over a kernel that has the device.
struct Scene {
    manager: WireguardManager,
    driver: Wireguard,
    kernel: FakeKernel,
}

struct Ignore;

impl routing::routes::ConnectionCleanup for Ignore {
    fn start(&mut self, _: BTreeSet<IpAddr>) {}
    fn wait(&mut self, _: &BTreeSet<IpAddr>) {}
}

impl Scene {
    fn new(encrypt_hosts: bool) -> Self {
        let mut kernel = FakeKernel::new();
        let index = kernel.with_link("wireguard.cali", "wireguard");
        let settings = KernelSettings {
            version: IpVersion::V4,
            interface: "wireguard.cali".into(),
            port: 51820,
            encrypt_hosts,
            enabled: true,
            mark: 1,
            table: 1,
            rule_priority: 99,
            mtu: None,
            protocol: 3,
            makes_routes: true,
            threaded: false,
        };
        let open = Box::new(|| Ok(Box::new(FakeDevices::default()) as Box<dyn Devices + Send>));
        let mut driver = Wireguard::new(settings, open);
        driver.interface_is(&"wireguard.cali".into(), Some(index), true, Instant::now());
        Self { manager: WireguardManager::new(self::settings(encrypt_hosts)), driver, kernel }
    }

    fn complete(&mut self) {
        let mut desired = Desired::new(&[IpVersion::V4]);
        self.manager.complete(&mut desired.versions[0]);
        self.driver.take(&mut desired.versions[0].wireguard);
    }

    fn routes(&mut self) -> Vec<String> {
        self.complete();
        let table = self.driver.table().expect("routes are ours");
        let outcome = table.apply(&mut self.kernel, &mut Ignore, Instant::now());
        assert_eq!(outcome.failures, Vec::<String>::new());
        let filter = RouteFilter { table: Some(1), ..RouteFilter::all(Family::V4) };
        let word = |kind| if kind == RouteKind::Throw { "throw" } else { "device" };
        let found = self.kernel.routes(&filter).expect("routes");
        found.iter().map(|route| format!("{} {}", word(route.kind), route.destination)).collect()
    }

    fn peers(&self) -> Vec<String> {
        let text =
            |nets: &BTreeSet<IpNet>| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let all = self.driver.wanted_peers();
        all.map(|(key, peer)| format!("{key} {} {}", peer.endpoint, text(&peer.allowed))).collect()
    }
}

#[test]
fn a_node_is_a_peer_once_it_has_address_and_key() {
    let mut scene = Scene::new(false);
    let (a, text) = (NodeName::from("a"), key(1).to_string());
    scene.manager.set_route(&route("10.0.1.0/26", "a", RouteTypes::REMOTE_WORKLOAD));
    scene.manager.set_route(&route("10.0.0.0/26", "me", RouteTypes::LOCAL_WORKLOAD));
    scene.manager.set_route(&route("10.0.0.5/32", "me", RouteTypes::LOCAL_WORKLOAD));
    scene.manager.set_route(&route("10.0.9.1/32", "me", RouteTypes::LOCAL_TUNNEL));
    assert_eq!(scene.routes(), ["throw 10.0.0.0/26", "throw 10.0.1.0/26", "throw 10.0.9.1/32"]);
    scene.manager.set_endpoint(&a, Some(&text), None);
    assert_eq!(scene.routes(), ["throw 10.0.0.0/26", "throw 10.0.1.0/26", "throw 10.0.9.1/32"]);
    assert!(scene.peers().is_empty());
    scene.manager.set_host(&a, "192.168.0.1".parse().ok());
    assert_eq!(scene.routes(), ["throw 10.0.0.0/26", "device 10.0.1.0/26", "throw 10.0.9.1/32"]);
    assert_eq!(scene.peers(), [format!("{text} 192.168.0.1:51820 10.0.1.0/26")]);
    // Removing a block of ours uncovers the address in it.
    scene.manager.remove_route(&"10.0.0.0/26".parse().expect("a network"));
    assert_eq!(scene.routes(), ["throw 10.0.0.5/32", "device 10.0.1.0/26", "throw 10.0.9.1/32"]);
    scene.manager.set_endpoint(&a, None, None);
    assert_eq!(scene.routes(), ["throw 10.0.0.5/32", "throw 10.0.1.0/26", "throw 10.0.9.1/32"]);
    assert!(scene.peers().is_empty());
}

#[test]
fn a_key_claimed_twice_or_by_us_makes_no_peer() {
    let mut scene = Scene::new(false);
    for (name, address) in [("a", "192.168.0.1"), ("b", "192.168.0.2")] {
        scene.manager.set_host(&name.into(), address.parse().ok());
        scene.manager.set_endpoint(&name.into(), Some(&key(1).to_string()), None);
    }
    scene.manager.set_route(&route("10.0.1.0/26", "a", RouteTypes::REMOTE_WORKLOAD));
    scene.manager.set_route(&route("10.0.2.0/26", "b", RouteTypes::REMOTE_WORKLOAD));
    assert_eq!(scene.routes(), ["throw 10.0.1.0/26", "throw 10.0.2.0/26"]);
    assert!(scene.peers().is_empty());
    scene.manager.set_endpoint(&"b".into(), Some(&key(2).to_string()), None);
    assert_eq!(scene.routes(), ["device 10.0.1.0/26", "device 10.0.2.0/26"]);
    // Keys move: the first node's key to the second.
    scene.manager.set_endpoint(&"a".into(), Some("no key"), None);
    scene.manager.set_endpoint(&"b".into(), Some(&key(1).to_string()), None);
    assert_eq!(scene.routes(), ["throw 10.0.1.0/26", "device 10.0.2.0/26"]);
    assert_eq!(scene.peers(), [format!("{} 192.168.0.2:51820 10.0.2.0/26", key(1))]);
    scene.manager.set_own_key(Some(key(1)));
    assert_eq!(scene.routes(), ["throw 10.0.1.0/26", "throw 10.0.2.0/26"]);
    scene.manager.set_own_key(Some(key(9)));
    assert_eq!(scene.routes(), ["throw 10.0.1.0/26", "device 10.0.2.0/26"]);
}

#[test]
fn hosts_are_encrypted_only_on_request() {
    for encrypt_hosts in [false, true] {
        let mut scene = Scene::new(encrypt_hosts);
        scene.manager.set_host(&"a".into(), "192.168.0.1".parse().ok());
        scene.manager.set_host(&"me".into(), "192.168.0.9".parse().ok());
        scene.manager.set_endpoint(&"a".into(), Some(&key(1).to_string()), None);
        scene.manager.set_route(&route("192.168.0.1/32", "a", RouteTypes::REMOTE_HOST));
        scene.manager.set_route(&route("192.168.0.9/32", "me", RouteTypes::LOCAL_HOST));
        let expected: &[&str] = if encrypt_hosts { &["device 192.168.0.1/32"] } else { &[] };
        assert_eq!(scene.routes(), expected);
        // Its own address is the host's, until it has one from a pool.
        let own = encrypt_hosts.then(|| "192.168.0.9".parse().expect("an address"));
        assert_eq!(scene.manager.device_address(), own);
        scene.manager.set_endpoint(&"me".into(), Some(&key(7).to_string()), "10.0.0.1".parse().ok());
        assert_eq!(scene.manager.device_address(), "10.0.0.1".parse().ok());
    }
}

/// One reported event.
#[derive(Clone, Debug)]
enum Told {
    Host(u8, Option<u8>),
    Key(u8, Option<u8>),
    Net(u8, Option<u8>),
    OwnKey(Option<u8>),
}

fn told() -> impl Strategy<Value = Told> {
    let few = 0_u8..4;
    prop_oneof![
        (few.clone(), prop::option::of(few.clone())).prop_map(|(node, address)| Told::Host(node, address)),
        (few.clone(), prop::option::of(few.clone())).prop_map(|(node, key)| Told::Key(node, key)),
        (0_u8..8, prop::option::of(few.clone())).prop_map(|(net, node)| Told::Net(net, node)),
        prop::option::of(few).prop_map(Told::OwnKey),
    ]
}

fn name(node: u8) -> NodeName {
    // One of the nodes is this host.
    if node == 0 { "me".into() } else { format!("n{node}").into() }
}

fn tell(manager: &mut WireguardManager, told: &Told) {
    match told {
        Told::Host(node, address) => {
            manager.set_host(&name(*node), address.map(|last| IpAddr::from([192, 168, 0, last])));
        }
        Told::Key(node, number) => {
            let text = number.map(|number| key(number + 1).to_string());
            manager.set_endpoint(&name(*node), text.as_deref(), None);
        }
        Told::Net(net, node) => {
            // Some are single addresses inside others.
            let net = if *net < 4 { format!("10.0.{net}.0/24") } else { format!("10.0.{}.7/32", net - 4) };
            match node {
                Some(0) => manager.set_route(&route(&net, "me", RouteTypes::LOCAL_WORKLOAD)),
                Some(node) => manager.set_route(&route(&net, &name(*node), RouteTypes::REMOTE_WORKLOAD)),
                None => manager.remove_route(&net.parse().expect("a network")),
            }
        }
        Told::OwnKey(number) => manager.set_own_key(number.map(|number| key(number + 1))),
    }
}

proptest! {
    #[test]
    fn only_the_current_state_matters(history in prop::collection::vec(told(), 0..60)) {
        let mut lived = Scene::new(false);
        for (place, one) in history.iter().enumerate() {
            tell(&mut lived.manager, one);
            if place % 3 == 0 {
                lived.complete();
            }
        }
        // The last event about each thing, reported at once and in another order.
        let mut last: BTreeMap<String, Told> = BTreeMap::new();
        for one in &history {
            let about = match one {
                Told::Host(node, _) => format!("host {node}"),
                Told::Key(node, _) => format!("key {node}"),
                Told::Net(net, _) => format!("net {net}"),
                Told::OwnKey(_) => "own".to_owned(),
            };
            last.insert(about, one.clone());
        }
        let mut fresh = Scene::new(false);
        last.values().rev().for_each(|one| tell(&mut fresh.manager, one));
        prop_assert_eq!(lived.routes(), fresh.routes());
        prop_assert_eq!(lived.peers(), fresh.peers());
        // The networks behind peers are those that use the device, and each is behind one peer only.
        let mut behind: Vec<IpNet> =
            fresh.driver.wanted_peers().flat_map(|(_, peer)| peer.allowed.iter().copied()).collect();
        behind.sort_unstable();
        let routed: Vec<IpNet> = fresh
            .routes()
            .iter()
            .filter_map(|text| text.strip_prefix("device ").and_then(|net| net.parse().ok()))
            .collect();
        prop_assert_eq!(behind, routed);
    }
}
