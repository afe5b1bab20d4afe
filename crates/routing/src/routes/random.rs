//! Random histories of wanted routes, devices and disturbances: in the end the kernel has what a naive computation from
//! the last state gives, and nothing is left to do.

use super::tests::{Recorder, settings};
use super::{RouteClass, RouteKey, RouteTable, Target, Way};
use messages::InterfaceName;
use netlink::{Errno, FakeKernel, Family, Kernel as _, LinkChange, LinkRef, Operation, Route, RouteFilter};
use proptest::prelude::*;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Step {
    Want(usize, usize, Vec<u8>),
    WantOne(usize, usize, u8, bool),
    Make(usize),
    Delete(usize),
    UpDown(usize, bool),
    SomebodyDeletes(u8),
    SomebodyAdds(usize, u8),
    Refuse,
    Apply,
}

const DEVICES: [&str; 4] = ["cali1", "cali2", "vxlan.calico", "eth0"];
const CLASSES: [RouteClass; 3] = [RouteClass::LocalWorkload, RouteClass::VxlanTunnel, RouteClass::NoEncap];

fn step() -> impl Strategy<Value = Step> {
    let (device, class, place) = (0..DEVICES.len(), 0..CLASSES.len(), 0..6_u8);
    prop_oneof![
        (class.clone(), device.clone(), prop::collection::vec(place.clone(), 0..4))
            .prop_map(|(class, device, places)| Step::Want(class, device, places)),
        (class, device.clone(), place.clone(), any::<bool>())
            .prop_map(|(class, device, place, wanted)| Step::WantOne(class, device, place, wanted)),
        device.clone().prop_map(Step::Make),
        device.clone().prop_map(Step::Delete),
        (device.clone(), any::<bool>()).prop_map(|(device, up)| Step::UpDown(device, up)),
        place.clone().prop_map(Step::SomebodyDeletes),
        (device, place).prop_map(|(device, place)| Step::SomebodyAdds(device, place)),
        Just(Step::Refuse),
        Just(Step::Apply),
    ]
}

fn key(place: u8) -> RouteKey {
    super::tests::key(&format!("10.0.0.{place}/32"))
}

fn target() -> Target {
    Target { protocol: Some(80), ..Target::new(Way::Direct) }
}

#[derive(Default)]
struct Naive {
    wants: BTreeMap<(usize, usize), BTreeSet<u8>>,
    devices: BTreeMap<usize, (u32, bool)>,
}

impl Naive {
    fn expected(&self) -> BTreeMap<RouteKey, u32> {
        let mut routes = BTreeMap::new();
        for place in 0..6 {
            let candidates = self.wants.iter().filter(|(_, places)| places.contains(&place)).filter_map(
                |((class, device), _)| {
                    let (index, up) = self.devices.get(device)?;
                    up.then_some((CLASSES[*class], std::cmp::Reverse(*index)))
                },
            );
            if let Some((_, std::cmp::Reverse(index))) = candidates.min() {
                routes.insert(key(place), index);
            }
        }
        routes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_kernel_ends_in_the_last_desired_state(steps in prop::collection::vec(step(), 1..60)) {
        let mut kernel = FakeKernel::new();
        let mut connections = Recorder::default();
        let mut table = RouteTable::new(settings(Family::V4, false));
        let mut naive = Naive::default();
        let mut now = Instant::now();
        for step in steps {
            match step {
                Step::Want(class, device, places) => {
                    let routes = places.iter().map(|place| (key(*place), target()));
                    table.set_routes(CLASSES[class], &Some(DEVICES[device].into()), routes);
                    naive.wants.insert((class, device), places.into_iter().collect());
                }
                Step::WantOne(class, device, place, wanted) => {
                    table.set_route(CLASSES[class], &Some(DEVICES[device].into()), key(place), wanted.then(target));
                    let places = naive.wants.entry((class, device)).or_default();
                    if wanted { places.insert(place) } else { places.remove(&place) };
                }
                Step::Make(device) => {
                    if let Entry::Vacant(entry) = naive.devices.entry(device) {
                        let index = kernel.with_link(DEVICES[device], "veth");
                        entry.insert((index, true));
                        table.device_is(&InterfaceName::from(DEVICES[device]), index, true, now);
                    }
                }
                Step::Delete(device) => {
                    if let Some((index, _)) = naive.devices.remove(&device) {
                        kernel.apply(&[Operation::DeleteLink(LinkRef::Index(index))]);
                        table.device_gone(&InterfaceName::from(DEVICES[device]));
                    }
                }
                Step::UpDown(device, up) => {
                    if let Some((index, is_up)) = naive.devices.get_mut(&device) {
                        *is_up = up;
                        let change = LinkChange { up: Some(up), ..LinkChange::default() };
                        kernel.apply(&[Operation::ChangeLink(LinkRef::Index(*index), change)]);
                        table.device_is(&InterfaceName::from(DEVICES[device]), *index, up, now);
                    }
                }
                Step::SomebodyDeletes(place) => {
                    let found = kernel.routes(&RouteFilter::all(Family::V4)).expect("routes");
                    if let Some(route) = found.iter().find(|route| route.destination == key(place).destination) {
                        // The kernel may refuse this, too.
                        if kernel.apply(&[Operation::DeleteRoute(route.clone())])[0].is_ok() {
                            table.route_gone(route);
                        }
                    }
                }
                Step::SomebodyAdds(device, place) => {
                    if let Some((index, _)) = naive.devices.get(&device).filter(|_| device != 3) {
                        kernel.apply(&[Operation::AddRoute(Route::on_link(key(place).destination, *index))]);
                        table.invalidate();
                    }
                }
                Step::Refuse => kernel.refuse("route", Errno::NOBUFS, 1),
                Step::Apply => drop(table.apply(&mut kernel, &mut connections, now)),
            }
        }
        // Pending refusals and the grace period of new interfaces have passed.
        now += Duration::from_secs(60);
        let mut rounds = 0;
        while !table.apply(&mut kernel, &mut connections, now).is_done() {
            rounds += 1;
            prop_assert!(rounds < 100, "it never ends");
        }
        kernel.log.clear();
        table.invalidate();
        prop_assert!(table.apply(&mut kernel, &mut connections, now).is_done());
        let found: BTreeMap<RouteKey, u32> = kernel
            .routes(&RouteFilter::all(Family::V4))
            .expect("routes")
            .iter()
            .map(|route| (RouteKey::new(route.destination), route.device.unwrap_or(0)))
            .collect();
        prop_assert_eq!(found, naive.expected());
        kernel.log.clear();
        table.invalidate();
        prop_assert!(table.apply(&mut kernel, &mut connections, now).is_done());
        prop_assert!(kernel.log.is_empty(), "nothing is left to do: {:?}", kernel.log);
    }
}
