//! Routes that follow changes: equal to a full computation, each at a cost proportional to the change.

use bpf_driver::routes::{Place, Routes, routes};
use bpf_driver::{Error, Store};
use ipnet::IpNet;
use messages::{InterfaceName, IpPoolType, Route, RouteTypes, TunnelType};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

/// Maps as values that count accesses and fail on request.
#[derive(Default)]
struct Fake {
    maps: BTreeMap<String, Elements>,
    room: Option<usize>,
    /// Elements read, written and removed.
    moved: usize,
    fails: bool,
}

impl Fake {
    fn of(&self, version: usize) -> Elements {
        self.maps.get(["cali_v4_routes", "cali_v6_routes"][version]).cloned().unwrap_or_default()
    }

    fn count(&mut self, elements: usize) -> Result<(), Error> {
        self.moved += elements;
        if self.fails { Err(Error::Missing("patience")) } else { Ok(()) }
    }
}

impl Store for Fake {
    fn room(&self, _: &str) -> Option<usize> {
        Some(self.room.unwrap_or(1_000_000))
    }

    fn read(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        Ok(self.maps.get(map).cloned().unwrap_or_default().into_iter().collect())
    }

    fn write(&mut self, map: &str, elements: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        let room = self.room(map).unwrap();
        let all = self.maps.entry(map.to_owned()).or_default();
        all.extend(elements.iter().cloned());
        assert!(all.len() <= room, "{map} is full");
        self.count(elements.len())
    }

    fn remove(&mut self, map: &str, keys: &[Vec<u8>]) -> Result<(), Error> {
        let all = self.maps.entry(map.to_owned()).or_default();
        keys.iter().for_each(|key| assert!(all.remove(key).is_some(), "it was not there"));
        self.count(keys.len())
    }
}

fn address(is_v6: bool, number: u32) -> IpAddr {
    match is_v6 {
        false => IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)),
        true => IpAddr::V6(Ipv6Addr::from((0xfd_u128 << 120) + u128::from(number))),
    }
}

fn net(is_v6: bool, number: u32, is_block: bool) -> IpNet {
    let length = if is_v6 { 128 } else { 32 };
    let address = address(is_v6, if is_block { number & !0x3f } else { number });
    IpNet::new(address, if is_block { length - 6 } else { length }).expect("a length")
}

fn route(dst: IpNet, types: RouteTypes, pool: IpPoolType, node: Option<IpAddr>) -> Route {
    Route {
        dst,
        types,
        ip_pool_type: pool,
        dst_node_name: None,
        dst_node_ip: node,
        same_subnet: false,
        nat_outgoing: pool != IpPoolType::None,
        local_workload: false,
        tunnel_type: TunnelType::default(),
        borrowed: false,
    }
}

fn place(index: u32) -> Place {
    Place { index, is_limited: false }
}

#[derive(Clone, Debug)]
enum Step {
    Set(Box<Route>),
    Remove(IpNet),
    Workload(u8, u32, Vec<IpNet>),
    Host(Vec<IpAddr>),
    Write,
    /// A write that fails.
    Fail,
    Invalidate,
}

fn nets() -> impl Strategy<Value = IpNet> {
    (any::<bool>(), 0_u32..6, any::<bool>()).prop_map(|(v6, number, block)| net(v6, number, block))
}

fn step() -> impl Strategy<Value = Step> {
    let types = prop_oneof![
        Just(RouteTypes::CIDR_INFO),
        Just(RouteTypes::REMOTE_WORKLOAD),
        Just(RouteTypes::LOCAL_WORKLOAD),
        Just(RouteTypes::REMOTE_HOST),
        Just(RouteTypes::REMOTE_TUNNEL),
        Just(RouteTypes::LOCAL_HOST)
    ];
    let pools = prop_oneof![Just(IpPoolType::None), Just(IpPoolType::Vxlan), Just(IpPoolType::NoEncap)];
    let node = proptest::option::of((any::<bool>(), 100_u32..103).prop_map(|(v6, n)| address(v6, n)));
    let set = (nets(), types, pools, node)
        .prop_map(|(net, types, pool, node)| Step::Set(Box::new(route(net, types, pool, node))));
    prop_oneof![
        4 => set,
        2 => nets().prop_map(Step::Remove),
        4 => (0_u8..3, 0_u32..3, vec(nets(), 0..3)).prop_map(|(name, index, nets)| Step::Workload(name, index, nets)),
        2 => vec((any::<bool>(), 0_u32..6).prop_map(|(v6, n)| address(v6, n)), 0..3).prop_map(Step::Host),
        4 => Just(Step::Write),
        1 => Just(Step::Fail),
        1 => Just(Step::Invalidate),
    ]
}

proptest! {
    #[test]
    fn steps_give_the_same_result_as_a_full_computation(steps in vec(step(), 1..40)) {
        let (mut followed, mut store) = (Routes::new(false), Fake::default());
        let mut holders: BTreeMap<InterfaceName, (Place, Vec<IpNet>)> = BTreeMap::new();
        for step in steps.into_iter().chain([Step::Write]) {
            match step {
                Step::Set(route) => followed.set(*route),
                Step::Remove(net) => followed.remove(&net),
                Step::Workload(name, index, nets) => {
                    let name = InterfaceName::from(format!("cali{name}"));
                    let place = Place { index, is_limited: index == 2 };
                    followed.set_workload(&name, place, &nets);
                    holders.insert(name, (place, nets));
                }
                Step::Host(addresses) => followed.set_host(addresses.into_iter().collect()),
                Step::Invalidate => {
                    // Another process changed something.
                    store.maps.entry("cali_v4_routes".to_owned()).or_default().insert(vec![9; 8], vec![9; 8]);
                    followed.invalidate();
                }
                Step::Fail => {
                    store.fails = true;
                    let _ = followed.write(&mut store);
                    store.fails = false;
                }
                Step::Write => {
                    followed.write(&mut store).expect("a fake takes everything");
                    let mut facts = followed.facts().clone();
                    facts.workloads = holders
                        .values()
                        .flat_map(|(place, nets)| nets.iter().map(|net| (*net, *place)))
                        .collect();
                    prop_assert_eq!([store.of(0), store.of(1)], routes(&facts));
                }
            }
        }
    }
}

/// Ranges computed and elements moved by each kind of change, with few and with many nodes.
#[test]
fn the_cost_of_a_change_does_not_depend_on_the_number_of_nodes() {
    let node = |number: u32| Some(address(false, 0x0100_0000 + number));
    let mut costs = Vec::new();
    for nodes in [10, 10_000] {
        let (mut followed, mut store) = (Routes::new(false), Fake::default());
        for number in 0..nodes {
            let block = net(false, number * 64, true);
            followed.set(route(block, RouteTypes::REMOTE_WORKLOAD, IpPoolType::Vxlan, node(number)));
        }
        followed.set_host([address(false, 0x0200_0000)].into());
        assert_eq!(followed.write(&mut store).unwrap(), nodes as usize + 1);
        let mut cost = |change: &mut dyn FnMut(&mut Routes)| {
            store.moved = 0;
            change(&mut followed);
            (followed.write(&mut store).unwrap(), store.moved)
        };
        let pod: InterfaceName = "cali1".into();
        let nets = [net(false, 0x0300_0000, false), net(true, 1, false)];
        costs.push([
            cost(&mut |routes| routes.set_workload(&pod, place(7), &nets)),
            cost(&mut |routes| routes.set_workload(&pod, place(7), &nets)),
            cost(&mut |routes| routes.set_workload(&pod, place(8), &nets)),
            cost(&mut |routes| {
                routes.set(route(
                    net(false, 64, true),
                    RouteTypes::REMOTE_WORKLOAD,
                    IpPoolType::NoEncap,
                    node(1),
                ));
            }),
            cost(&mut |routes| routes.remove(&net(false, 64, true))),
            cost(&mut |routes| routes.set_host([address(false, 0x0200_0001)].into())),
            cost(&mut |routes| routes.set_workload(&pod, place(0), &[])),
            cost(&mut |_| {}),
        ]);
    }
    assert_eq!(costs[0], [(2, 2), (0, 0), (2, 2), (1, 1), (1, 1), (2, 2), (2, 2), (0, 0)]);
    assert_eq!(costs[1], costs[0]);
}

#[test]
fn routes_that_do_not_fit_are_not_written_and_removals_make_room() {
    let (mut followed, mut store) = (Routes::new(false), Fake { room: Some(2), ..Fake::default() });
    let pod: InterfaceName = "cali1".into();
    let nets: Vec<IpNet> = (0..3).map(|number| net(false, number, false)).collect();
    followed.set_workload(&pod, place(7), &nets[..2]);
    followed.write(&mut store).unwrap();
    followed.set_workload(&pod, place(7), &nets);
    assert!(matches!(followed.write(&mut store), Err(Error::TooMany { wanted: 3, room: 2, .. })));
    assert_eq!(store.of(0).len(), 2);
    followed.set_workload(&pod, place(7), &nets[1..]);
    followed.write(&mut store).unwrap();
    // The old and new routes together would not fit: the old one is removed first.
    followed.set_workload(&pod, place(7), &nets[..2]);
    followed.write(&mut store).unwrap();
    assert_eq!(store.of(0), routes(followed.facts())[0]);
}
