//! Whatever netlink calls fail, in whichever order: packets for an address are never sent to an interface unless some
//! state since the last complete one had the address behind it; connections of an address are removed before it moves
//! behind another interface; and once nothing fails any more, routes, neighbours, devices and addresses are as desired.
//!
//! A scenario of changes runs against a kernel built from maps. From each call on, one or more calls are made to fail,
//! in each of several ways.

use crate::routes::device::{TunnelDevice, TunnelDevices, TunnelKind};
use crate::routes::{
    ConnectionCleanup, LinkAddresses, Outcome, Ownership, PROTOCOL_BOOT, RouteChanges, RouteClass, RouteKey,
    RouteTable, TableSettings, Target, TunnelNeighbours, TunnelPeer, Way,
};
use delta::Changes;
use ipnet::IpNet;
use netlink::{
    Address, Errno, Error, FakeKernel, Family, Kernel, Link, LinkRef, MacAddress, Neighbour, Operation,
    Route, RouteFilter, RouteKind, Rule, TABLE_MAIN, Vxlan,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

const VXLAN: &str = "vxlan.calico";

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Nothing is carried out: no memory.
    Refused,
    /// The first operation of a batch is refused, the others are carried out.
    FirstRefused,
    /// It is carried out, and the answer is lost.
    AnswerLost,
}

/// The operations carried out on routes to single addresses and on their connections, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Made(IpAddr, u32),
    Gone(IpAddr),
    Forgotten(IpAddr),
}

type Log = Rc<RefCell<Vec<Event>>>;

/// A kernel in which some calls fail.
struct Faulty {
    kernel: FakeKernel,
    log: Log,
    calls: usize,
    failing: Range<usize>,
    how: How,
}

impl Faulty {
    fn next(&mut self) -> Option<How> {
        self.calls += 1;
        self.failing.contains(&self.calls).then_some(self.how)
    }

    fn carry_out(&mut self, operations: &[Operation]) -> Vec<netlink::Result<()>> {
        let outcomes = self.kernel.apply(operations);
        for (operation, _) in operations.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            let event = match operation {
                Operation::ReplaceRoute(route) if route.destination.prefix_len() == 32 => {
                    Event::Made(route.destination.addr(), route.device.unwrap_or(0))
                }
                Operation::DeleteRoute(route) if route.destination.prefix_len() == 32 => {
                    Event::Gone(route.destination.addr())
                }
                _ => continue,
            };
            self.log.borrow_mut().push(event);
        }
        outcomes
    }

    fn read<T>(&mut self, read: impl FnOnce(&mut FakeKernel) -> netlink::Result<T>) -> netlink::Result<T> {
        match self.next() {
            None => read(&mut self.kernel),
            Some(_) => Err(Error::Socket { what: "read".into(), errno: Errno::NOBUFS }),
        }
    }
}

impl Kernel for Faulty {
    fn links(&mut self) -> netlink::Result<Vec<Link>> {
        self.read(Kernel::links)
    }

    fn link(&mut self, link: &LinkRef) -> netlink::Result<Option<Link>> {
        self.read(|kernel| kernel.link(link))
    }

    fn addresses(&mut self, family: Option<Family>, index: Option<u32>) -> netlink::Result<Vec<Address>> {
        self.read(|kernel| kernel.addresses(family, index))
    }

    fn routes(&mut self, filter: &RouteFilter) -> netlink::Result<Vec<Route>> {
        self.read(|kernel| kernel.routes(filter))
    }

    fn neighbours(&mut self, family: Family, index: Option<u32>) -> netlink::Result<Vec<Neighbour>> {
        self.read(|kernel| kernel.neighbours(family, index))
    }

    fn forwarding(&mut self, index: u32) -> netlink::Result<Vec<Neighbour>> {
        self.read(|kernel| kernel.forwarding(index))
    }

    fn rules(&mut self, family: Family) -> netlink::Result<Vec<Rule>> {
        self.read(|kernel| kernel.rules(family))
    }

    fn apply(&mut self, operations: &[Operation]) -> Vec<netlink::Result<()>> {
        if operations.is_empty() {
            return Vec::new();
        }
        let refused = |one: &Operation| {
            let what = one.to_string();
            Err(Error::Refused { what, errno: Errno::NOBUFS, message: String::new() })
        };
        let lost = |_: &Operation| Err(Error::Socket { what: "change".into(), errno: Errno::NOBUFS });
        match self.next() {
            None => self.carry_out(operations),
            Some(How::Refused) => operations.iter().map(refused).collect(),
            Some(How::FirstRefused) => {
                let mut outcomes = vec![refused(&operations[0])];
                outcomes.extend(self.carry_out(&operations[1..]));
                outcomes
            }
            Some(How::AnswerLost) => {
                drop(self.carry_out(operations));
                operations.iter().map(lost).collect()
            }
        }
    }
}

/// The desired state at one moment.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// The interface behind which each workload's address is.
    workloads: BTreeMap<&'static str, &'static str>,
    /// Other nodes' tunnel ends: address, hardware address, host.
    peers: BTreeMap<&'static str, (u8, u8, u8)>,
    /// Blocks of other nodes, by the node whose tunnel they use; `None` for direct routes.
    blocks: BTreeMap<&'static str, Option<u8>>,
    has_tunnel: bool,
    /// The interface that has an address for BGP.
    peering: Option<&'static str>,
}

fn scenario() -> Vec<Wanted> {
    let mut all = Vec::new();
    let mut now = Wanted::default();
    let mut moment = |change: &mut dyn FnMut(&mut Wanted)| {
        change(&mut now);
        all.push(now.clone());
    };
    moment(&mut |now| _ = now.workloads.insert("10.0.0.1/32", "cali1"));
    moment(&mut |now| {
        now.has_tunnel = true;
        now.peers.insert("n2", (2, 2, 2));
        now.blocks.insert("10.66.2.0/26", Some(2));
    });
    // An address moves to another workload.
    moment(&mut |now| _ = now.workloads.insert("10.0.0.1/32", "cali2"));
    moment(&mut |now| {
        now.peers.insert("n2", (2, 7, 2));
        now.peers.insert("n3", (3, 3, 3));
        now.blocks.insert("10.66.3.0/26", Some(3));
        now.peering = Some("cali2");
    });
    // Two addresses are swapped, and a block becomes directly reachable.
    moment(&mut |now| {
        now.workloads.insert("10.0.0.1/32", "cali1");
        now.workloads.insert("10.0.0.2/32", "cali2");
        now.blocks.insert("10.66.2.0/26", None);
    });
    moment(&mut |now| {
        now.workloads.insert("10.0.0.1/32", "cali2");
        now.workloads.insert("10.0.0.2/32", "cali1");
        now.peers.insert("n3", (2, 3, 3));
        now.peers.remove("n2");
        now.peering = Some("cali1");
    });
    moment(&mut |now| {
        now.workloads.remove("10.0.0.1/32");
        now.blocks.remove("10.66.3.0/26");
        now.peering = None;
    });
    all
}

/// Records the addresses whose connections are removed.
struct Forgetful(Log);

impl ConnectionCleanup for Forgetful {
    fn start(&mut self, addresses: BTreeSet<IpAddr>) {
        self.0.borrow_mut().extend(addresses.into_iter().map(Event::Forgotten));
    }

    fn wait(&mut self, _: &BTreeSet<IpAddr>) {}
}

/// All drivers over one kernel.
struct World {
    kernel: Faulty,
    table: RouteTable,
    tunnel: TunnelNeighbours,
    devices: TunnelDevices,
    addresses: LinkAddresses,
    forgetful: Forgetful,
    known: Option<(u32, bool)>,
    now: Instant,
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

impl World {
    fn new(failing: Range<usize>, how: How) -> Self {
        let mut kernel = FakeKernel::new();
        let mut table = RouteTable::new(TableSettings {
            family: Family::V4,
            table: TABLE_MAIN,
            ownership: Ownership {
                workload_prefixes: vec!["cali".into()],
                all_workload_routes: true,
                device_protocol: PROTOCOL_BOOT,
                own_devices: vec![VXLAN.into()],
                ..Ownership::default()
            },
            source: None,
            static_neighbours: true,
        });
        let mut addresses = LinkAddresses::new(Family::V4);
        let now = Instant::now();
        for name in ["eth0", "cali1", "cali2"] {
            let index = kernel.with_link(name, "veth");
            table.device_is(&name.into(), index, true, now);
            addresses.device_is(&name.into(), Some(index));
        }
        let log = Log::default();
        Self {
            kernel: Faulty { kernel, log: Rc::clone(&log), calls: 0, failing, how },
            table,
            tunnel: TunnelNeighbours::new(Family::V4, VXLAN.into()),
            devices: TunnelDevices::default(),
            addresses,
            forgetful: Forgetful(log),
            known: None,
            // The grace period of new interfaces has passed.
            now: now + Duration::from_secs(60),
        }
    }

    fn want(&mut self, before: &Wanted, next: &Wanted) {
        let mut routes = RouteChanges::default();
        for interface in ["cali1", "cali2"] {
            let own = next.workloads.iter().filter(|(_, one)| **one == interface);
            let mac = Some(MacAddress([2, 0, 0, 0, 0, 9]));
            let targets =
                own.map(|(to, _)| (RouteKey::new(net(to)), Target { mac, ..Target::new(Way::Direct) }));
            routes.set_all(RouteClass::LocalWorkload, Some(interface.into()), targets);
            let address = next.peering.filter(|one| *one == interface);
            self.addresses.set(&interface.into(), address.map(|_| [169, 254, 1, 1].into()));
        }
        for block in before.blocks.keys().chain(next.blocks.keys()) {
            let key = RouteKey::new(net(block));
            let tunnel = match next.blocks.get(block) {
                Some(Some(node)) => Some(Target {
                    protocol: Some(80),
                    ..Target::new(Way::Gateway([10, 66, *node, 0].into()))
                }),
                Some(None) | None => None,
            };
            let direct = next.blocks.get(block).filter(|way| way.is_none());
            let direct = direct
                .map(|_| Target { protocol: Some(80), ..Target::new(Way::Gateway([10, 65, 0, 2].into())) });
            routes.set(RouteClass::VxlanTunnel, Some(VXLAN.into()), key, tunnel);
            routes.set(RouteClass::VxlanSameSubnet, Some("eth0".into()), key, direct);
        }
        routes.hand_over(&mut self.table);
        for node in before.peers.keys().chain(next.peers.keys()) {
            let peer = next.peers.get(node).map(|(address, mac, host)| TunnelPeer {
                tunnel_address: [10, 66, *address, 0].into(),
                mac: MacAddress([0x66, 0, 0, 0, 0, *mac]),
                host_address: [10, 65, 0, *host].into(),
            });
            self.tunnel.set_peer(&(*node).into(), peer);
        }
        if next.has_tunnel && !before.has_tunnel {
            let vxlan =
                Vxlan { vni: 4096, port: 4789, local: Some([10, 65, 0, 1].into()), ..Vxlan::default() };
            let device = TunnelDevice {
                name: VXLAN.to_owned(),
                kind: TunnelKind::Vxlan(vxlan, MacAddress([0x66, 0, 0, 0, 0, 1])),
                address: Some([10, 66, 1, 0].into()),
                mtu: Some(1450),
            };
            let mut changes = Changes::default();
            changes.set(VXLAN.into(), Some(device));
            self.devices.take(&mut changes);
        }
    }

    /// One round as the runner performs it, and the resulting events.
    fn round(&mut self) -> Outcome {
        let mut all = Outcome::default();
        let mut note = |outcome: Outcome| {
            all.failures.extend(outcome.failures);
            all.again_in = all.again_in.into_iter().chain(outcome.again_in).min();
        };
        note(self.devices.apply(&mut self.kernel));
        note(self.tunnel.apply(&mut self.kernel));
        note(self.addresses.apply(&mut self.kernel, self.table.ownership()));
        note(self.table.apply(&mut self.kernel, &mut self.forgetful, self.now));
        let link = self.kernel.kernel.link(&VXLAN.into()).expect("links");
        let found = link.map(|link| (link.index, link.up));
        if found != self.known {
            self.known = found;
            match found {
                Some((index, up)) => self.table.device_is(&VXLAN.into(), index, up, self.now),
                None => self.table.device_gone(&VXLAN.into()),
            }
            self.tunnel.device_is(VXLAN, found.filter(|(_, up)| *up).map(|(index, _)| index));
            self.devices.interface_changed(&VXLAN.into());
            all.again_in = Some(Duration::ZERO);
        }
        all
    }

    /// The state of the kernel, with devices by name.
    fn state(&mut self) -> BTreeSet<String> {
        let kernel = &mut self.kernel.kernel;
        let links = kernel.links().expect("links");
        let name = |index: u32| {
            links.iter().find(|link| link.index == index).map_or("nowhere", |link| &link.name).to_owned()
        };
        let mut all = BTreeSet::new();
        for link in &links {
            all.insert(format!("link {} {} up {} mtu {}", link.name, link.kind, link.up, link.mtu));
            for one in kernel.forwarding(link.index).expect("forwarding") {
                all.insert(format!("{} forwards {:?} to {:?}", link.name, one.mac, one.address));
            }
        }
        for address in kernel.addresses(None, None).expect("addresses") {
            all.insert(format!("{} has {}", name(address.index), address.address));
        }
        for one in kernel.neighbours(Family::V4, None).expect("neighbours") {
            all.insert(format!("{} knows {:?} as {:?}", name(one.index), one.address, one.mac));
        }
        for route in kernel.routes(&RouteFilter::all(Family::V4)).expect("routes") {
            let by = route.device.map(name);
            all.insert(format!("{} by {by:?} via {:?}", route.destination, route.gateway));
        }
        all
    }

    /// The interface of each workload's address.
    fn behind(&mut self) -> BTreeMap<IpNet, String> {
        let kernel = &mut self.kernel.kernel;
        let links = kernel.links().expect("links");
        let routes = kernel.routes(&RouteFilter::all(Family::V4)).expect("routes");
        let single = routes.iter().filter(|one| one.destination.prefix_len() == 32);
        single
            .filter(|one| one.kind == RouteKind::Unicast)
            .filter_map(|one| {
                let link = links.iter().find(|link| Some(link.index) == one.device)?;
                Some((one.destination, link.name.clone()))
            })
            .collect()
    }
}

/// Neighbours of an interface that lost its address remain, as in Calico: no packets are sent to them.
fn without_old_neighbours(state: BTreeSet<String>) -> BTreeSet<String> {
    state.into_iter().filter(|line| !(line.starts_with("cali") && line.contains(" knows "))).collect()
}

/// Runs the scenario with these calls failing; returns the number of calls and the final state of the kernel.
fn run(failing: Range<usize>, how: How) -> (usize, BTreeSet<String>) {
    let what = format!("calls {failing:?} fail: {how:?}");
    let mut world = World::new(failing, how);
    let nothing = Wanted::default();
    let scenario = scenario();
    // The interfaces behind which an address may be: those of any state since the last complete one.
    let mut may_be: BTreeMap<IpNet, BTreeSet<&str>> = BTreeMap::new();
    for (place, next) in scenario.iter().enumerate() {
        let before = place.checked_sub(1).map_or(&nothing, |place| &scenario[place]);
        for (address, interface) in &next.workloads {
            may_be.entry(net(address)).or_default().insert(interface);
        }
        world.want(before, next);
        for _ in 0..3 {
            let outcome = world.round();
            let behind = world.behind();
            for (address, interface) in &behind {
                let allowed = may_be.get(address).is_some_and(|all| all.contains(interface.as_str()));
                assert!(allowed, "{what}, moment {place}: {address} is behind {interface}");
            }
            if outcome.is_done() && outcome.again_in.is_none() {
                let wanted: BTreeMap<IpNet, String> =
                    next.workloads.iter().map(|(to, by)| (net(to), (*by).to_owned())).collect();
                assert_eq!(behind, wanted, "{what}, moment {place}");
                may_be = next.workloads.iter().map(|(to, by)| (net(to), BTreeSet::from([*by]))).collect();
            }
            world.now += Duration::from_millis(200);
        }
    }
    let calls = world.kernel.calls;
    // From here on nothing fails.
    world.kernel.failing = 0..0;
    for round in 0.. {
        let outcome = world.round();
        if outcome.is_done() && outcome.again_in.is_none() {
            break;
        }
        assert!(round < 20, "{what}: {outcome:?}");
        world.now += outcome.again_in.unwrap_or(Duration::from_millis(200));
    }
    check_connections(&world.kernel.log.borrow(), &what);
    (calls, without_old_neighbours(world.state()))
}

/// Before an address is behind another interface, its old route is removed, and then its connections.
fn check_connections(log: &[Event], what: &str) {
    let mut known: BTreeMap<IpAddr, (u32, bool, bool)> = BTreeMap::new();
    for event in log {
        match *event {
            Event::Made(address, device) => {
                if let Some((old, is_gone, is_forgotten)) = known.get(&address) {
                    assert!(
                        *old == device || (*is_gone && *is_forgotten),
                        "{what}: {address} moves from {old} to {device}: {log:#?}"
                    );
                }
                known.insert(address, (device, false, false));
            }
            Event::Gone(address) => {
                known.entry(address).and_modify(|(_, is_gone, is_forgotten)| {
                    (*is_gone, *is_forgotten) = (true, false);
                });
            }
            Event::Forgotten(address) => {
                known.entry(address).and_modify(|(_, is_gone, is_forgotten)| *is_forgotten = *is_gone);
            }
        }
    }
}

#[test]
fn routes_neighbours_and_devices_reach_the_desired_state() {
    let (calls, expected) = run(0..0, How::Refused);
    assert!(calls > 20, "{calls}");
    assert!(expected.iter().any(|line| line.starts_with("vxlan.calico forwards")), "{expected:#?}");
    for how in [How::Refused, How::FirstRefused, How::AnswerLost] {
        for first in 1..=calls {
            for count in [1, 2, 3, 10, 1000] {
                let failing = first..first + count;
                let (_, state) = run(failing.clone(), how);
                assert_eq!(state, expected, "calls {failing:?} fail: {how:?}");
            }
        }
    }
}
