//! Routes, neighbours and devices over a kernel built from maps.

use super::device::{TunnelDevice, TunnelKind, UnusedTunnels};
use super::{
    ConnectionCleanup, Device, LinkAddresses, Outcome, Ownership, PROTOCOL_BOOT, RouteClass, RouteKey,
    RouteTable, TableSettings, Target, TunnelNeighbours, TunnelPeer, Way,
};
use messages::InterfaceName;
use netlink::{
    Address, Errno, FakeKernel, Family, Kernel as _, LinkChange, MacAddress, Neighbour, Operation, Route,
    RouteFilter, RouteKind, Scope, TABLE_MAIN, Vxlan,
};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Records the calls.
#[derive(Default)]
pub(super) struct Recorder {
    log: Vec<String>,
}

impl ConnectionCleanup for Recorder {
    fn start(&mut self, addresses: BTreeSet<IpAddr>) {
        self.log.extend(addresses.iter().map(|address| format!("forget {address}")));
    }

    fn wait(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.log.extend(addresses.iter().map(|address| format!("wait {address}")));
    }
}

/// A table and its surroundings.
struct Scene {
    kernel: FakeKernel,
    connections: Recorder,
    table: RouteTable,
    now: Instant,
}

impl Scene {
    fn new(family: Family) -> Self {
        let table = RouteTable::new(settings(family, family == Family::V4));
        Self { kernel: FakeKernel::new(), connections: Recorder::default(), table, now: Instant::now() }
    }

    fn device(&mut self, name: &str) -> u32 {
        let index = self.kernel.with_link(name, "veth");
        self.table.device_is(&name.into(), index, true, self.now);
        index
    }

    fn want(&mut self, class: RouteClass, device: &str, destinations: &[&str]) {
        let target = |text: &&str| (key(text), Target::new(Way::Direct));
        self.table.set_routes(class, &Some(device.into()), destinations.iter().map(target));
    }

    fn apply(&mut self) -> Outcome {
        self.kernel.log.clear();
        self.connections.log.clear();
        self.table.apply(&mut self.kernel, &mut self.connections, self.now)
    }

    /// The destination and device of every route.
    fn routes(&mut self) -> Vec<String> {
        let family = self.table.family();
        let found = self.kernel.routes(&RouteFilter::all(family)).expect("routes");
        let texts =
            found.iter().map(|route| format!("{} by {}", route.destination, route.device.unwrap_or(0)));
        texts.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn foreign(&mut self, route: Route) {
        assert!(self.kernel.apply(&[Operation::AddRoute(route)]).iter().all(Result::is_ok));
    }
}

/// The settings of the main table on most nodes.
pub(super) fn settings(family: Family, static_neighbours: bool) -> TableSettings {
    TableSettings {
        family,
        table: TABLE_MAIN,
        ownership: Ownership {
            workload_prefixes: vec!["cali".into()],
            all_workload_routes: true,
            device_protocol: PROTOCOL_BOOT,
            own_devices: vec!["vxlan.calico".into()],
            ..Ownership::default()
        },
        source: None,
        static_neighbours,
    }
}

pub(super) fn key(destination: &str) -> RouteKey {
    RouteKey::new(destination.parse().expect("a network"))
}

fn named(name: &str) -> Device {
    Some(InterfaceName::from(name))
}

#[test]
fn the_first_class_whose_device_is_up_has_the_destination() {
    let mut scene = Scene::new(Family::V4);
    let vxlan = scene.device("vxlan.calico");
    scene.want(RouteClass::VxlanTunnel, "vxlan.calico", &["10.0.0.1/32"]);
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32"]);
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {vxlan}")], "the workload's device is not there yet");
    let first = scene.device("cali1");
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {first}")]);
    // Of two workloads with the address, the newer one gets it.
    let second = scene.device("cali2");
    scene.want(RouteClass::LocalWorkload, "cali2", &["10.0.0.1/32"]);
    scene.apply();
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {second}")]);
    scene.table.device_is(&"cali2".into(), second, false, scene.now);
    scene.apply();
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {first}")]);
    for name in ["cali1", "cali2"] {
        scene.want(RouteClass::LocalWorkload, name, &[]);
    }
    scene.apply();
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {vxlan}")]);
    scene.table.set_route(RouteClass::VxlanTunnel, &named("vxlan.calico"), key("10.0.0.1/32"), None);
    scene.apply();
    assert_eq!(scene.routes(), [""; 0]);
}

#[test]
fn a_recreated_device_gets_its_routes_again() {
    let mut scene = Scene::new(Family::V4);
    let old = scene.device("cali1");
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32"]);
    scene.apply();
    scene.kernel.apply(&[Operation::DeleteLink(old.into())]);
    scene.table.device_gone(&"cali1".into());
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.kernel.log, [""; 0], "routes went with the device");
    let new = scene.device("cali1");
    scene.apply();
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {new}")]);
    // Down and up again unnoticed: the kernel dropped the routes without notifications.
    for up in [false, true] {
        let change = LinkChange { up: Some(up), ..LinkChange::default() };
        scene.kernel.apply(&[Operation::ChangeLink(new.into(), change)]);
    }
    assert_eq!(scene.routes(), [""; 0]);
    scene.table.device_is(&"cali1".into(), new, true, scene.now);
    scene.apply();
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {new}")]);
}

#[test]
fn foreign_routes_stay_and_leftovers_are_removed_after_a_while() {
    let mut scene = Scene::new(Family::V4);
    let (eth, cali, vxlan) = (scene.device("eth0"), scene.device("cali1"), scene.device("vxlan.calico"));
    let on = |text: &str, device| Route::on_link(text.parse().expect("a network"), device);
    scene.foreign(Route { protocol: 12, ..on("10.1.0.0/16", eth) });
    scene.foreign(Route { protocol: 80, ..on("10.2.0.0/16", eth) });
    scene.foreign(on("10.0.0.9/32", cali));
    scene.foreign(on("10.3.0.0/26", vxlan));
    scene.foreign(Route {
        kind: RouteKind::Blackhole,
        protocol: 80,
        ..Route::new("10.4.0.0/26".parse().expect("net"))
    });
    scene.foreign(Route {
        kind: RouteKind::Blackhole,
        protocol: 4,
        ..Route::new("10.5.0.0/26".parse().expect("net"))
    });
    scene.foreign(Route { table: 100, protocol: 80, ..on("10.6.0.0/26", eth) });
    let outcome = scene.apply();
    assert!(outcome.is_done() && outcome.again_in == Some(Duration::from_secs(10)), "{outcome:?}");
    let kept = ["10.0.0.9/32 by 2", "10.1.0.0/16 by 1", "10.5.0.0/26 by 0", "10.6.0.0/26 by 1"];
    assert_eq!(scene.routes(), kept);
    scene.now += Duration::from_secs(9);
    assert_eq!(scene.apply().again_in, Some(Duration::from_secs(1)));
    scene.now += Duration::from_secs(1);
    assert_eq!(scene.apply(), Outcome::default());
    assert!(!scene.routes().contains(&"10.0.0.9/32 by 2".to_owned()));
    // Once the endpoint is known, there is no need to wait.
    let other = scene.device("cali2");
    scene.want(RouteClass::LocalWorkload, "cali2", &["10.0.0.2/32"]);
    scene.foreign(on("10.0.0.8/32", other));
    scene.table.invalidate();
    assert_eq!(scene.apply(), Outcome::default());
    assert!(!scene.routes().iter().any(|route| route.starts_with("10.0.0.8")));
}

#[test]
fn connections_of_an_address_that_moves_are_forgotten_first() {
    let mut scene = Scene::new(Family::V4);
    scene.device("cali1");
    scene.device("cali2");
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32"]);
    scene.apply();
    assert_eq!(scene.connections.log, ["wait 10.0.0.1"], "a new address has no connections to forget");
    scene.want(RouteClass::LocalWorkload, "cali1", &[]);
    scene.want(RouteClass::LocalWorkload, "cali2", &["10.0.0.1/32"]);
    scene.apply();
    assert_eq!(scene.connections.log, ["forget 10.0.0.1", "wait 10.0.0.1"]);
    assert_eq!(scene.kernel.log[0], "delete route 10.0.0.1/32 by device 1");
    assert_eq!(scene.kernel.log[1], "set route 10.0.0.1/32 by device 2");
    scene.want(RouteClass::LocalWorkload, "cali2", &[]);
    scene.apply();
    assert_eq!(scene.connections.log, ["forget 10.0.0.1"]);
    // Between two ways to a remote node the workload stays the same.
    scene.device("eth0");
    scene.device("vxlan.calico");
    scene.want(RouteClass::VxlanTunnel, "vxlan.calico", &["10.0.0.2/32"]);
    scene.apply();
    scene.want(RouteClass::VxlanSameSubnet, "eth0", &["10.0.0.2/32"]);
    scene.apply();
    assert_eq!(scene.connections.log, ["wait 10.0.0.2"]);
    // Networks have no connections of their own.
    scene.want(RouteClass::VxlanTunnel, "vxlan.calico", &["10.1.0.0/26"]);
    scene.apply();
    scene.want(RouteClass::VxlanTunnel, "vxlan.calico", &[]);
    scene.apply();
    assert_eq!(scene.connections.log, [""; 0]);
}

#[test]
fn an_address_that_is_on_the_wrong_device_at_the_start_has_moved() {
    let mut scene = Scene::new(Family::V4);
    let wrong = scene.device("cali1");
    scene.device("cali2");
    scene.foreign(Route { metric: None, ..Route::on_link("10.0.0.1/32".parse().expect("net"), wrong) });
    scene.want(RouteClass::LocalWorkload, "cali2", &["10.0.0.1/32"]);
    scene.apply();
    assert_eq!(scene.connections.log, ["forget 10.0.0.1", "wait 10.0.0.1"]);
    assert_eq!(scene.routes(), ["10.0.0.1/32 by 2"]);
}

#[test]
fn only_failed_operations_are_retried() {
    let mut scene = Scene::new(Family::V4);
    scene.device("cali1");
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32", "10.0.0.2/32"]);
    scene.kernel.refuse("set route 10.0.0.1/32", Errno::NOBUFS, 1);
    let outcome = scene.apply();
    assert_eq!(outcome.failures.len(), 1, "{outcome:?}");
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.kernel.log, ["set route 10.0.0.1/32 by device 1"]);
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.kernel.log, [""; 0]);
    // A device that goes down while its route is set is not a failure.
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"]);
    scene.kernel.refuse("set route 10.0.0.3/32", Errno::NETDOWN, 1);
    assert!(scene.apply().is_done());
    scene.table.device_is(&"cali1".into(), 1, true, scene.now);
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.routes().len(), 3);
}

#[test]
fn a_route_removed_by_another_program_is_restored() {
    let mut scene = Scene::new(Family::V4);
    let device = scene.device("cali1");
    let other = scene.device("eth0");
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32"]);
    scene.apply();
    let route = scene.kernel.routes(&RouteFilter::all(Family::V4)).expect("routes").remove(0);
    assert!(
        !scene.table.route_gone(&Route { device: Some(other), ..route.clone() }),
        "another one with its destination"
    );
    assert!(!scene.table.route_gone(&Route { table: 7, ..route.clone() }));
    scene.kernel.apply(&[Operation::DeleteRoute(route.clone())]);
    assert!(scene.table.route_gone(&route));
    scene.apply();
    assert_eq!(scene.routes(), [format!("10.0.0.1/32 by {device}")]);
}

/// The plugin creates the route before the endpoint is known here, and may take the device down and up once more.
#[test]
fn a_route_that_vanished_before_it_was_wanted_is_created() {
    for is_announced in [true, false] {
        let mut scene = Scene::new(Family::V6);
        let device = scene.device("cali1");
        let route = Route::on_link("fd00::1/128".parse().expect("net"), device);
        scene.foreign(route.clone());
        // It is left alone for a while: the plugin is faster than the datastore.
        assert_eq!(scene.apply().failures, [""; 0]);
        let shown = scene.kernel.routes(&RouteFilter::all(Family::V6)).expect("routes").remove(0);
        scene.kernel.apply(&[Operation::DeleteRoute(route)]);
        if is_announced {
            assert!(!scene.table.route_gone(&shown), "it is not wanted yet");
        } else {
            scene.table.device_is(&"cali1".into(), device, false, scene.now);
            scene.table.device_is(&"cali1".into(), device, true, scene.now);
        }
        scene.want(RouteClass::LocalWorkload, "cali1", &["fd00::1/128"]);
        scene.apply();
        assert_eq!(scene.routes(), [format!("fd00::1/128 by {device}")], "announced: {is_announced}");
    }
}

#[test]
fn ipv6_routes_are_recognised_as_the_kernel_shows_them() {
    let mut scene = Scene::new(Family::V6);
    scene.device("cali1");
    scene.device("vxlan.calico");
    scene.want(RouteClass::LocalWorkload, "cali1", &["fd00::1/128"]);
    let gateway =
        Target { mtu: Some(1430), ..Target::new(Way::Gateway("fd00:2::".parse().expect("address"))) };
    scene.table.set_route(
        RouteClass::VxlanTunnel,
        &named("vxlan.calico"),
        key("fd00:2::/122"),
        Some(gateway),
    );
    let blackhole = Target { protocol: Some(80), ..Target::new(Way::Blackhole) };
    scene.table.set_route(RouteClass::BlackholeVxlan, &None, key("fd00::/122"), Some(blackhole));
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.kernel.log.len(), 3);
    // The kernel has its own route on each device, and shows special routes with the loopback device.
    scene.foreign(Route { protocol: 2, ..Route::on_link("fe80::/64".parse().expect("net"), 1) });
    scene.table.invalidate();
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.kernel.log, [""; 0]);
    let shown = Route {
        kind: RouteKind::Blackhole,
        device: Some(1),
        protocol: 80,
        metric: Some(1024),
        ..Route::new("fd00::/122".parse().expect("net"))
    };
    assert!(scene.table.route_gone(&shown));
}

#[test]
fn a_block_moves_behind_a_tunnel_whose_address_is_in_it() {
    let mut scene = Scene::new(Family::V6);
    let (eth, vxlan) = (scene.device("eth0"), scene.device("vxlan-v6.calico"));
    let block = key("fd00:2::/122");
    let by = |gateway: &str| {
        let target = Target::new(Way::Gateway(gateway.parse().expect("address")));
        Some(Target { protocol: Some(80), ..target })
    };
    scene.table.set_route(RouteClass::VxlanSameSubnet, &named("eth0"), block, by("fd00:9::3"));
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.routes(), [format!("fd00:2::/122 by {eth}")]);
    // The old route covers the new one's gateway, so the kernel refuses to replace it.
    scene.table.set_route(RouteClass::VxlanSameSubnet, &named("eth0"), block, None);
    scene.table.set_route(RouteClass::VxlanTunnel, &named("vxlan-v6.calico"), block, by("fd00:2::"));
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.routes(), [format!("fd00:2::/122 by {vxlan}")]);
    assert_eq!(scene.apply(), Outcome::default());
    assert_eq!(scene.kernel.log, [""; 0]);
}

#[test]
fn routes_have_calicos_form() {
    let mut scene = Scene::new(Family::V4);
    let (cali, vxlan) = (scene.device("cali1"), scene.device("vxlan.calico"));
    let mac: MacAddress = "ca:fe:00:00:00:01".parse().expect("mac");
    let workload = Target { mac: Some(mac), ..Target::new(Way::Direct) };
    let metric = RouteKey { metric: 1024, ..key("10.0.0.1/32") };
    scene.table.set_routes(RouteClass::LocalWorkload, &named("cali1"), [(metric, workload)]);
    let gateway: IpAddr = [10, 1, 0, 0].into();
    let tunnel = Target { mtu: Some(1450), ..Target::new(Way::Gateway(gateway)) };
    scene.table.set_route(RouteClass::VxlanTunnel, &named("vxlan.calico"), key("10.1.0.0/26"), Some(tunnel));
    scene.apply();
    let found = scene.kernel.routes(&RouteFilter::all(Family::V4)).expect("routes");
    let local = Route { metric: Some(1024), ..Route::on_link("10.0.0.1/32".parse().expect("net"), cali) };
    let remote = Route {
        onlink: true,
        mtu: Some(1450),
        ..Route::via("10.1.0.0/26".parse().expect("net"), gateway, vxlan)
    };
    assert_eq!((local.scope, local.protocol), (Scope::Link, PROTOCOL_BOOT));
    assert_eq!(found, [local, remote]);
    let neighbours = scene.kernel.neighbours(Family::V4, None).expect("neighbours");
    assert_eq!(neighbours, [Neighbour::permanent(cali, [10, 0, 0, 1].into(), mac)]);
}

#[test]
fn a_device_gets_its_route_even_if_its_events_are_lost() {
    let mut scene = Scene::new(Family::V4);
    scene.device("cali1");
    scene.want(RouteClass::LocalWorkload, "cali1", &["10.0.0.1/32"]);
    // It went down and up again, and the events were lost.
    scene.kernel.refuse("set route", Errno::NETDOWN, 1);
    let outcome = scene.apply();
    assert!(outcome.is_done() && outcome.again_in.is_some(), "{outcome:?}");
    assert_eq!(scene.routes(), Vec::<String>::new());
    let outcome = scene.apply();
    assert_eq!((scene.routes().len(), outcome.again_in), (1, None));
}

#[test]
fn unused_tunnels_are_removed_even_if_that_fails_at_first() {
    let mut kernel = FakeKernel::new();
    for name in ["vxlan.calico", "vxlan-v6.calico"] {
        kernel.with_link(name, "vxlan");
    }
    let mut tunnels = UnusedTunnels::new([Some("vxlan.calico"), None], Some("tunl0"));
    kernel.refuse("delete", Errno::BUSY, 2);
    let mut now = Instant::now();
    for _ in 0..2 {
        let due = tunnels.remove(&mut kernel, now);
        assert_eq!(tunnels.remove(&mut kernel, now), due, "it is not time yet");
        now = due.expect("there is something left");
    }
    assert_eq!(tunnels.remove(&mut kernel, now), None);
    let names: Vec<String> = kernel.links().expect("links").into_iter().map(|link| link.name).collect();
    assert!(!names.contains(&"vxlan.calico".to_owned()) && names.contains(&"vxlan-v6.calico".to_owned()));
}

#[test]
fn tunnel_neighbours_follow_peers_and_devices() {
    let mut kernel = FakeKernel::new();
    let mut entries = TunnelNeighbours::new(Family::V4, "vxlan.calico".into());
    let peer = |last: u8, host: u8| TunnelPeer {
        tunnel_address: [10, 66, last, 0].into(),
        mac: MacAddress([0x66, 0, 0, 0, 0, last]),
        host_address: [10, 65, 0, host].into(),
    };
    entries.set_peer(&"n2".into(), Some(peer(2, 2)));
    assert_eq!(entries.apply(&mut kernel), Outcome::default());
    assert_eq!(kernel.calls, 0, "there is no device yet");
    let index = kernel.with_link("vxlan.calico", "vxlan");
    let stale = Neighbour::permanent(index, [10, 66, 9, 0].into(), MacAddress([0x66, 0, 0, 0, 0, 9]));
    kernel.apply(&[
        Operation::ReplaceNeighbour(stale),
        Operation::ReplaceNeighbour(Neighbour::forwarding(
            index,
            MacAddress([0x66, 0, 0, 0, 0, 9]),
            [10, 65, 0, 9].into(),
        )),
    ]);
    entries.device_is("eth0", Some(77));
    entries.device_is("vxlan.calico", Some(index));
    let picture = |kernel: &mut FakeKernel, index| {
        let neighbours = kernel.neighbours(Family::V4, Some(index)).expect("neighbours");
        let forwarding = kernel.forwarding(index).expect("entries");
        neighbours.iter().chain(&forwarding).map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = |index: u32, host: u8| {
        vec![
            format!("neighbour 66:00:00:00:00:02 at 10.66.2.0 of device {index}"),
            format!("forwarding entry 66:00:00:00:00:02 at 10.65.0.{host} of device {index}"),
        ]
    };
    assert_eq!(entries.apply(&mut kernel), Outcome::default());
    assert_eq!(picture(&mut kernel, index), expected(index, 2));
    // The peer's host gets another address.
    entries.set_peer(&"n2".into(), Some(peer(2, 3)));
    kernel.refuse("set forwarding", Errno::NOBUFS, 1);
    assert!(!entries.apply(&mut kernel).is_done());
    assert_eq!(entries.apply(&mut kernel), Outcome::default());
    assert_eq!(picture(&mut kernel, index), expected(index, 3));
    // The device is recreated.
    kernel.apply(&[Operation::DeleteLink(index.into())]);
    entries.device_is("vxlan.calico", None);
    let again = kernel.with_link("vxlan.calico", "vxlan");
    entries.device_is("vxlan.calico", Some(again));
    assert_eq!(entries.apply(&mut kernel), Outcome::default());
    assert_eq!(picture(&mut kernel, again), expected(again, 3));
}

#[test]
fn a_tunnel_device_is_changed_or_recreated() {
    let mut kernel = FakeKernel::new();
    let parent = kernel.with_link("eth0", "");
    let vxlan = Vxlan {
        vni: 4096,
        parent: Some(parent),
        local: Some([10, 65, 0, 1].into()),
        port: 4789,
        ..Vxlan::default()
    };
    let mac = MacAddress([0x66, 1, 2, 3, 4, 5]);
    let wanted = |vxlan: &Vxlan, mtu| TunnelDevice {
        name: "vxlan.calico".to_owned(),
        kind: TunnelKind::Vxlan(vxlan.clone(), mac),
        address: Some([10, 66, 1, 0].into()),
        mtu: Some(mtu),
    };
    assert_eq!(wanted(&vxlan, 1450).bring_about(&mut kernel), Ok(true));
    assert_eq!(wanted(&vxlan, 1450).bring_about(&mut kernel), Ok(false));
    let first = kernel.link(&"vxlan.calico".into()).expect("read").expect("there");
    assert!(first.up && first.mtu == 1450 && first.mac == Some(mac), "{first:?}");
    kernel.apply(&[Operation::AddAddress(Address::new(first.index, "10.66.9.0/32".parse().expect("net")))]);
    assert_eq!(wanted(&vxlan, 1400).bring_about(&mut kernel), Ok(true));
    let second = kernel.link(&"vxlan.calico".into()).expect("read").expect("there");
    assert_eq!((second.index, second.mtu), (first.index, 1400));
    let addresses = kernel.addresses(None, Some(second.index)).expect("addresses");
    assert_eq!(addresses.iter().map(|one| one.address.to_string()).collect::<Vec<_>>(), ["10.66.1.0/32"]);
    // The host's own address is the source of the packets: the device has none, and gets it back when that changes.
    let without = TunnelDevice { address: None, ..wanted(&vxlan, 1400) };
    assert_eq!(without.bring_about(&mut kernel), Ok(true));
    assert_eq!(without.bring_about(&mut kernel), Ok(false));
    assert_eq!(kernel.addresses(None, Some(second.index)).expect("addresses"), []);
    assert_eq!(wanted(&vxlan, 1400).bring_about(&mut kernel), Ok(true));
    assert_eq!(kernel.addresses(None, Some(second.index)).expect("addresses").len(), 1);
    for other in [
        Vxlan { vni: 4097, ..vxlan.clone() },
        Vxlan { port: 8472, ..vxlan.clone() },
        Vxlan { parent: None, ..vxlan.clone() },
        Vxlan { local: Some([10, 65, 0, 9].into()), ..vxlan.clone() },
    ] {
        let before = kernel.link(&"vxlan.calico".into()).expect("read").expect("there");
        assert!(wanted(&other, 1400).is_unfit(&before).is_some(), "{other:?}");
        assert_eq!(wanted(&other, 1400).bring_about(&mut kernel), Ok(true));
        let after = kernel.link(&"vxlan.calico".into()).expect("read").expect("there");
        assert!(after.index != before.index && after.vxlan == Some(other));
    }
    super::device::remove(&mut kernel, "vxlan.calico", "ipip").expect("left alone");
    assert!(kernel.link(&"vxlan.calico".into()).expect("read").is_some());
    super::device::remove(&mut kernel, "vxlan.calico", "vxlan").expect("removed");
    assert!(kernel.link(&"vxlan.calico".into()).expect("read").is_none());
}

#[test]
fn link_addresses_are_set_and_removed() {
    let mut kernel = FakeKernel::new();
    let ownership = Ownership { workload_prefixes: vec!["cali".into()], ..Ownership::default() };
    let (cali, eth) = (kernel.with_link("cali1", "veth"), kernel.with_link("eth0", ""));
    let link_scope =
        |index, text: &str| Address { scope: 253, ..Address::new(index, text.parse().expect("net")) };
    kernel.apply(&[
        Operation::AddAddress(link_scope(cali, "169.254.9.9/32")),
        Operation::AddAddress(link_scope(eth, "169.254.9.9/32")),
    ]);
    let mut addresses = LinkAddresses::new(Family::V4);
    addresses.device_is(&"cali1".into(), Some(cali));
    addresses.device_is(&"eth0".into(), Some(eth));
    addresses.set(&"cali1".into(), Some([169, 254, 1, 2].into()));
    addresses.set(&"cali7".into(), Some([169, 254, 1, 2].into()));
    assert_eq!(addresses.apply(&mut kernel, &ownership), Outcome::default());
    let picture = |kernel: &mut FakeKernel| {
        let found = kernel.addresses(None, None).expect("addresses");
        found.iter().map(|one| format!("{} {}", one.index, one.address)).collect::<Vec<_>>()
    };
    assert_eq!(picture(&mut kernel), ["1 169.254.1.2/32", "2 169.254.9.9/32"]);
    addresses.set(&"cali1".into(), None);
    assert_eq!(addresses.apply(&mut kernel, &ownership), Outcome::default());
    assert_eq!(picture(&mut kernel), ["2 169.254.9.9/32"]);
}
