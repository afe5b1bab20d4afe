//! The manager and the driver that it writes to: device, key, peers, routes and rule over kernels built from maps.

use super::{WireguardManager, WireguardSettings};
use crate::desired::Desired;
use ipnet::IpNet;
use messages::{IpPoolType, Route, RouteTypes, TunnelType};
use netlink::wireguard::{Device, DeviceChange, Devices, FakeDevices, PublicKey};
use netlink::{Errno, FakeKernel, Family, Kernel as _, Operation, RouteFilter, Rule};
use routing::wireguard::{KernelSettings, Wireguard};
use rules::tree::IpVersion;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const NAME: &str = "wireguard.cali";

/// Devices that the test can inspect.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<FakeDevices>>);

impl Devices for Shared {
    fn device(&mut self, name: &str) -> netlink::Result<Option<Device>> {
        self.0.lock().expect("lock").device(name)
    }

    fn configure(&mut self, name: &str, change: &DeviceChange) -> netlink::Result<()> {
        self.0.lock().expect("lock").configure(name, change)
    }
}

struct Scene {
    kernel: FakeKernel,
    devices: Shared,
    manager: Option<WireguardManager>,
    wireguard: Wireguard,
}

impl Scene {
    fn new(enabled: bool, kernel: FakeKernel, devices: Shared) -> Self {
        let settings = KernelSettings {
            version: IpVersion::V4,
            interface: NAME.into(),
            port: 51820,
            encrypt_hosts: false,
            enabled,
            mark: 0x20_0000,
            table: 1,
            rule_priority: 99,
            mtu: Some(1440),
            protocol: 3,
            makes_routes: true,
            threaded: false,
        };
        let peers = WireguardSettings {
            host: "me".into(),
            version: IpVersion::V4,
            interface: NAME.into(),
            port: 51820,
            encrypt_hosts: false,
            keepalive: 25,
        };
        let open = devices.clone();
        let open = Box::new(move || Ok(Box::new(open.clone()) as Box<dyn Devices + Send>));
        let manager = enabled.then(|| WireguardManager::new(peers));
        Self { kernel, devices, manager, wireguard: Wireguard::new(settings, open) }
    }

    fn fresh() -> Self {
        Self::new(true, FakeKernel::new(), Shared::default())
    }

    fn node(&mut self, name: &str, address: &str, number: Option<u8>, nets: &[&str]) {
        let Some(manager) = &mut self.manager else { return };
        manager.set_host(&name.into(), address.parse().ok());
        let key = number.map(|number| key(number).to_string());
        manager.set_endpoint(&name.into(), key.as_deref(), None);
        for net in nets {
            manager.set_route(&remote(net, name));
        }
    }

    /// One round, with the resulting news of the device.
    fn apply(&mut self) -> Vec<String> {
        self.devices.0.lock().expect("lock").log.clear();
        let mut failures = self.apply_once();
        let link = self.kernel.link(&NAME.into()).expect("links");
        let (index, up) = (link.as_ref().map(|link| link.index), link.is_some_and(|link| link.up));
        if let Some(table) = self.wireguard.table() {
            match index {
                Some(index) => table.device_is(&NAME.into(), index, up, Instant::now()),
                None => table.device_gone(&NAME.into()),
            }
        }
        failures.extend(self.apply_once());
        failures
    }

    fn apply_once(&mut self) -> Vec<String> {
        let mut desired = Desired::new(&[IpVersion::V4]);
        if let Some(manager) = &mut self.manager {
            manager.complete(&mut desired.versions[0]);
            self.wireguard.take(&mut desired.versions[0].wireguard);
        }
        let failures = self.wireguard.apply(&mut self.kernel, Instant::now()).failures;
        let Some(key) = self.wireguard.take_new_key() else { return failures };
        let manager = self.manager.as_mut().expect("only where it is enabled");
        manager.set_own_key(key);
        manager.complete(&mut desired.versions[0]);
        self.wireguard.take(&mut desired.versions[0].wireguard);
        self.wireguard.apply(&mut self.kernel, Instant::now()).failures
    }

    fn log(&self) -> Vec<String> {
        self.devices.0.lock().expect("lock").log.clone()
    }

    fn rules(&mut self) -> Vec<String> {
        self.kernel.rules(Family::V4).expect("rules").iter().map(ToString::to_string).collect()
    }

    fn routes(&mut self) -> Vec<String> {
        let filter = RouteFilter { table: Some(1), ..RouteFilter::all(Family::V4) };
        let found = self.kernel.routes(&filter).expect("routes");
        found.iter().map(|route| format!("{:?} {}", route.kind, route.destination)).collect()
    }
}

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32]).expect("a key")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

fn remote(destination: &str, node: &str) -> Route {
    Route {
        dst: net(destination),
        types: RouteTypes::REMOTE_WORKLOAD,
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

#[test]
fn from_nothing_to_encrypted() {
    let mut scene = Scene::fresh();
    scene.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    scene.node("b", "192.168.0.2", None, &["10.0.2.0/26"]);
    assert_eq!(scene.apply(), Vec::<String>::new());
    let log = scene.log();
    let expected = format!("replace {} at 192.168.0.1:51820 [10.0.1.0/26]", key(1));
    assert_eq!(log, ["read", "key", "read", "port 51820", "mark 0x200000", expected.as_str()]);
    assert_eq!(scene.routes(), ["Unicast 10.0.1.0/26", "Throw 10.0.2.0/26"]);
    assert_eq!(scene.rules(), ["IPv4 rule 99 for mark 0x200000/0x200000 to table 1"]);
    assert!(scene.kernel.rules(Family::V4).expect("rules")[0].invert);
    let link = scene.kernel.link(&NAME.into()).expect("links").expect("the device");
    assert_eq!((link.kind.as_str(), link.mtu, link.up), ("wireguard", 1440, true));
    // The kernel's key is reported, once.
    let own = scene.devices.0.lock().expect("lock").devices[NAME].public_key.expect("a key");
    assert_eq!(scene.wireguard.take_report(), Some(own.to_string()));
    assert_eq!(scene.wireguard.take_report(), None);
    // The datastore has another key: it is reported again.
    let manager = scene.manager.as_mut().expect("enabled");
    manager.set_endpoint(&"me".into(), Some(&key(5).to_string()), "10.0.0.9".parse().ok());
    assert_eq!(scene.apply(), Vec::<String>::new());
    assert_eq!(scene.wireguard.take_report(), Some(own.to_string()));
    let addresses = scene.kernel.addresses(None, None).expect("addresses");
    assert_eq!(addresses.iter().map(|one| one.address).collect::<Vec<_>>(), [net("10.0.0.9/32")]);
    assert_eq!(scene.log(), Vec::<String>::new(), "nothing of it is about peers");
}

#[test]
fn a_change_writes_only_that_change() {
    let mut scene = Scene::fresh();
    scene.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    scene.node("b", "192.168.0.2", Some(2), &["10.0.2.0/26"]);
    scene.apply();
    let manager = scene.manager.as_mut().expect("enabled");
    manager.set_route(&remote("10.0.3.0/26", "a"));
    scene.apply();
    assert_eq!(scene.log(), [format!("add {} [10.0.3.0/26]", key(1))]);
    // The network moves to the other node.
    scene.manager.as_mut().expect("enabled").set_route(&remote("10.0.3.0/26", "b"));
    scene.apply();
    assert_eq!(
        scene.log(),
        [format!("replace {} [10.0.1.0/26]", key(1)), format!("add {} [10.0.3.0/26]", key(2))]
    );
    // A new key: the old peer is removed once the new one has everything.
    scene.node("b", "192.168.0.2", Some(3), &[]);
    scene.apply();
    assert_eq!(
        scene.log(),
        [
            format!("replace {} at 192.168.0.2:51820 [10.0.2.0/26 10.0.3.0/26]", key(3)),
            format!("remove {} []", key(2))
        ]
    );
    // A new address.
    scene.node("a", "192.168.0.9", Some(1), &[]);
    scene.apply();
    assert_eq!(scene.log(), [format!("add {} at 192.168.0.9:51820 []", key(1))]);
    scene.apply();
    assert_eq!(scene.log(), Vec::<String>::new());
}

#[test]
fn the_existing_state_is_taken_over_and_repaired() {
    let mut first = Scene::fresh();
    first.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    first.apply();
    let own = first.wireguard.take_report();
    let (mut kernel, devices) = (first.kernel, first.devices);
    // A foreign rule into our table, and an unwanted peer.
    let stranger = Rule::to_table(Family::V4, 50, 1);
    assert!(kernel.apply(&[Operation::AddRule(stranger)])[0].is_ok());
    devices
        .0
        .lock()
        .expect("lock")
        .devices
        .get_mut(NAME)
        .expect("it")
        .peers
        .insert(key(8), Default::default());
    let mut second = Scene::new(true, kernel, devices);
    second.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    assert_eq!(second.apply(), Vec::<String>::new());
    assert_eq!(second.log(), ["read".to_owned(), format!("remove {} []", key(8))], "the key stays");
    assert_eq!(second.rules(), ["IPv4 rule 99 for mark 0x200000/0x200000 to table 1"]);
    assert_eq!(second.wireguard.take_report(), own);
    // Another program deletes the device: it is recreated, with all its peers.
    assert!(second.kernel.apply(&[Operation::DeleteLink(NAME.into())])[0].is_ok());
    second.devices.0.lock().expect("lock").devices.clear();
    second.wireguard.interface_is(&NAME.into(), None, false, Instant::now());
    assert_eq!(second.apply(), Vec::<String>::new());
    assert!(second.kernel.link(&NAME.into()).expect("links").is_some());
    assert_eq!(second.routes(), ["Unicast 10.0.1.0/26"]);
    let new = second.wireguard.take_report();
    assert!(new.is_some() && new != own, "a new device has a new key");
}

#[test]
fn no_rule_leads_to_the_table_before_peers_exist() {
    let mut scene = Scene::fresh();
    scene.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    scene.devices.0.lock().expect("lock").refusals = 10;
    let failures = scene.apply();
    assert!(failures[0].contains("change WireGuard device wireguard.cali"), "{failures:?}");
    assert!(scene.rules().is_empty());
    assert_eq!(scene.wireguard.take_report(), None, "a key that is not in the kernel is not reported");
    scene.devices.0.lock().expect("lock").refusals = 0;
    assert_eq!(scene.apply(), Vec::<String>::new());
    assert_eq!(scene.rules().len(), 1);
    assert!(scene.wireguard.take_report().is_some());
}

#[test]
fn a_kernel_without_wireguard_is_reported_once_and_retried() {
    let mut scene = Scene::fresh();
    scene.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    scene.kernel.refuse("create wireguard device", Errno::OPNOTSUPP, 1);
    assert_eq!(scene.apply(), Vec::<String>::new());
    assert!(
        scene.wireguard.unsupported().is_some_and(|reason| reason.contains("not supported by the kernel"))
    );
    assert_eq!(scene.wireguard.take_report().as_deref(), Some(""), "others must not encrypt to us");
    assert!(scene.rules().is_empty() && scene.log().is_empty());
    assert_eq!(scene.apply(), Vec::<String>::new());
    assert_eq!(
        scene.kernel.log.iter().filter(|one| one.starts_with("create")).count(),
        1,
        "not in every round"
    );
    scene.wireguard.invalidate();
    assert_eq!(scene.apply(), Vec::<String>::new());
    assert_eq!(scene.wireguard.unsupported(), None);
    assert!(scene.wireguard.take_report().is_some_and(|key| !key.is_empty()));
}

#[test]
fn a_device_of_another_kind_is_left_alone() {
    let mut kernel = FakeKernel::new();
    kernel.with_link(NAME, "dummy");
    let mut scene = Scene::new(true, kernel, Shared::default());
    let failures = scene.apply();
    assert!(failures[0].contains("WireguardInterfaceName"), "{failures:?}");
    let link = scene.kernel.link(&NAME.into()).expect("links").expect("it");
    assert_eq!(link.kind, "dummy");
    // It is not removed when WireGuard is off, either.
    let mut off = Scene::new(false, scene.kernel, Shared::default());
    assert_eq!(off.apply(), Vec::<String>::new());
    assert!(off.kernel.link(&NAME.into()).expect("links").is_some());
}

#[test]
fn when_disabled_everything_of_it_and_nothing_else_is_removed() {
    let mut on = Scene::fresh();
    on.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    on.node("b", "192.168.0.2", None, &["10.0.2.0/26"]);
    on.apply();
    let mut off = Scene::new(false, on.kernel, on.devices);
    off.node("a", "192.168.0.1", Some(1), &["10.0.1.0/26"]);
    assert_eq!(off.apply(), Vec::<String>::new());
    assert!(off.kernel.link(&NAME.into()).expect("links").is_none());
    assert_eq!((off.rules(), off.routes()), (vec![], vec![]));
    assert_eq!(off.wireguard.take_report().as_deref(), Some(""));
    assert_eq!(off.wireguard.take_report(), None);
    assert_eq!(off.log(), Vec::<String>::new());

    // Where WireGuard was never enabled, the table and the rules that lead to it are foreign.
    let mut kernel = FakeKernel::new();
    let throw = netlink::Route {
        kind: netlink::RouteKind::Throw,
        table: 1,
        ..netlink::Route::new(net("10.9.0.0/16"))
    };
    let theirs = [Operation::AddRule(Rule::to_table(Family::V4, 50, 1)), Operation::AddRoute(throw)];
    assert!(kernel.apply(&theirs).iter().all(Result::is_ok));
    let mut never = Scene::new(false, kernel, Shared::default());
    assert_eq!(never.apply(), Vec::<String>::new());
    assert_eq!(never.rules(), ["IPv4 rule 50 to table 1"]);
    assert_eq!(never.routes(), ["Throw 10.9.0.0/16"]);
}
