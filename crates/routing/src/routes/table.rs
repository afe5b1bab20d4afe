//! The routes of one table and IP version.
//!
//! Parts of Felix register the routes that they want by each device; devices appear, disappear and are renumbered. For
//! each destination, the wanted route of the first class whose device is up is desired. Routes found in the kernel that
//! are ours but not desired are removed; on a new workload interface only after a grace period, because the CNI plugin
//! creates routes before Felix learns of the endpoint. Connections of an address that moves to another device are
//! removed before the new route is created.

mod apply;

use super::{Device, Ownership, RouteClass, RouteKey, Target, Way};
use delta::Delta;
use messages::InterfaceName;
use netlink::{Family, MacAddress, Route, RouteKind, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// After a route by a device was refused, how soon the device counts as up again if no event arrives.
const DOUBT: Duration = Duration::from_secs(1);

/// How long foreign routes are left on a new workload interface.
const GRACE: Duration = Duration::from_secs(10);
/// The metric that the kernel assigns to IPv6 routes without one.
const DEFAULT_METRIC_V6: u32 = 1024;

/// The settings of a table.
#[derive(Clone, Debug)]
pub struct TableSettings {
    /// The IP version.
    pub family: Family,
    /// The table's number.
    pub table: u32,
    /// Decides which routes are ours.
    pub ownership: Ownership,
    /// The preferred source address of routes, if one is set.
    pub source: Option<IpAddr>,
    /// Whether neighbours with a known hardware address become permanent entries.
    pub static_neighbours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    index: u32,
    class: RouteClass,
}

#[derive(Clone, Copy, Debug)]
struct Grace {
    first_seen: Instant,
    over: bool,
}

/// The routes of one table, desired and actual.
#[derive(Debug)]
pub struct RouteTable {
    settings: TableSettings,
    wanted: BTreeMap<(RouteClass, Device), BTreeMap<RouteKey, Target>>,
    wanted_by: BTreeMap<RouteKey, BTreeSet<(RouteClass, Device)>>,
    devices: BTreeMap<InterfaceName, (u32, bool)>,
    names: BTreeMap<u32, InterfaceName>,
    routes: Delta<RouteKey, Route>,
    neighbours: BTreeMap<InterfaceName, BTreeMap<IpAddr, MacAddress>>,
    dirty_neighbours: BTreeSet<InterfaceName>,
    /// The device of an address that has a route to itself: as desired, and as connections know it.
    address_owners: Delta<IpAddr, OwnerKey>,
    grace: BTreeMap<u32, Grace>,
    read_all: bool,
    read_devices: BTreeSet<InterfaceName>,
    /// Devices that are up according to events, but by which the kernel refused a route.
    doubted: BTreeSet<InterfaceName>,
}

/// An owner in comparable form: number, class.
type OwnerKey = (u32, RouteClass);

impl From<Owner> for OwnerKey {
    fn from(owner: Owner) -> Self {
        (owner.index, owner.class)
    }
}

impl RouteTable {
    /// A table without wanted routes.
    #[must_use]
    pub fn new(settings: TableSettings) -> Self {
        Self {
            settings,
            wanted: BTreeMap::new(),
            wanted_by: BTreeMap::new(),
            devices: BTreeMap::new(),
            names: BTreeMap::new(),
            routes: Delta::new(),
            neighbours: BTreeMap::new(),
            dirty_neighbours: BTreeSet::new(),
            address_owners: Delta::new(),
            grace: BTreeMap::new(),
            read_all: true,
            read_devices: BTreeSet::new(),
            doubted: BTreeSet::new(),
        }
    }

    /// The IP version.
    #[must_use]
    pub fn family(&self) -> Family {
        self.settings.family
    }

    /// The number of desired routes, and of devices that they may use.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.routes.desired_count(), self.devices.len())
    }

    /// The ownership criteria, for changes.
    pub fn ownership(&mut self) -> &mut Ownership {
        &mut self.settings.ownership
    }

    /// Marks the table as possibly changed by other programs.
    pub fn invalidate(&mut self) {
        self.read_all = true;
    }

    /// Notes that a route is gone that was not removed here; returns whether it is missed. A route that is not wanted
    /// yet is only forgotten; otherwise it would count as present once it is wanted.
    pub fn route_gone(&mut self, route: &Route) -> bool {
        if route.table != self.settings.table || route.family() != self.settings.family {
            return false;
        }
        let found = normalised(route.clone());
        let key = key_of(&found);
        if self.routes.actual(&key) != Some(&found) {
            return false;
        }
        self.routes.remove_actual(&key);
        self.routes.desired(&key).is_some()
    }

    /// Sets all routes that one part of Felix wants by a device; any others are withdrawn.
    pub fn set_routes(
        &mut self,
        class: RouteClass,
        device: &Device,
        targets: impl IntoIterator<Item = (RouteKey, Target)>,
    ) {
        let new: BTreeMap<RouteKey, Target> =
            targets.into_iter().map(|(key, target)| (self.whole_key(key), target)).collect();
        let place = (class, device.clone());
        let old = self.wanted.remove(&place).unwrap_or_default();
        let changed: Vec<RouteKey> = old
            .keys()
            .filter(|key| !new.contains_key(key))
            .chain(new.iter().filter(|(key, target)| old.get(key) != Some(target)).map(|(key, _)| key))
            .copied()
            .collect();
        if changed.is_empty() {
            if !new.is_empty() {
                self.wanted.insert(place, new);
            }
            return;
        }
        if let Some(name) = device {
            self.set_neighbours(name, &new);
        }
        for key in old.keys().filter(|key| !new.contains_key(key)) {
            self.unlink(*key, &place);
        }
        for key in new.keys().filter(|key| !old.contains_key(key)) {
            self.wanted_by.entry(*key).or_default().insert(place.clone());
        }
        if !new.is_empty() {
            self.wanted.insert(place, new);
        }
        changed.into_iter().for_each(|key| self.choose(key));
    }

    /// Sets or, with `None`, withdraws one route.
    pub fn set_route(&mut self, class: RouteClass, device: &Device, key: RouteKey, target: Option<Target>) {
        let key = self.whole_key(key);
        let place = (class, device.clone());
        match target {
            Some(target) => {
                self.wanted.entry(place.clone()).or_default().insert(key, target);
                self.wanted_by.entry(key).or_default().insert(place);
            }
            None => {
                let Some(routes) = self.wanted.get_mut(&place) else { return };
                if routes.remove(&key).is_none() {
                    return;
                }
                if routes.is_empty() {
                    self.wanted.remove(&place);
                }
                self.unlink(key, &place);
            }
        }
        self.choose(key);
    }

    fn unlink(&mut self, key: RouteKey, place: &(RouteClass, Device)) {
        if let Some(places) = self.wanted_by.get_mut(&key) {
            places.remove(place);
            if places.is_empty() {
                self.wanted_by.remove(&key);
            }
        }
    }

    fn set_neighbours(&mut self, device: &InterfaceName, targets: &BTreeMap<RouteKey, Target>) {
        if !self.settings.static_neighbours {
            return;
        }
        let known: BTreeMap<IpAddr, MacAddress> =
            targets.iter().filter_map(|(key, target)| Some((key.destination.addr(), target.mac?))).collect();
        if known.is_empty() {
            self.neighbours.remove(device);
            self.dirty_neighbours.remove(device);
        } else if self.neighbours.get(device) != Some(&known) {
            self.neighbours.insert(device.clone(), known);
            self.dirty_neighbours.insert(device.clone());
        }
    }

    /// Notes that a device exists, up or down.
    pub fn device_is(&mut self, name: &InterfaceName, index: u32, up: bool, now: Instant) {
        self.grace.entry(index).or_insert(Grace { first_seen: now, over: false });
        if let Some((old, _)) = self.devices.insert(name.clone(), (index, up))
            && old != index
        {
            self.names.remove(&old);
        }
        self.names.insert(index, name.clone());
        self.doubted.remove(name);
        if up {
            // The kernel removes the routes of a device that goes down without notifications.
            self.read_devices.insert(name.clone());
        }
        self.choose_all_of(name);
    }

    /// Notes that a device is gone.
    pub fn device_gone(&mut self, name: &InterfaceName) {
        if let Some((index, _)) = self.devices.remove(name) {
            self.names.remove(&index);
            self.grace.remove(&index);
            let lost: Vec<RouteKey> = self
                .routes
                .all_actual()
                .filter(|(_, route)| route.device == Some(index))
                .map(|(key, _)| *key)
                .collect();
            for key in lost {
                self.routes.remove_actual(&key);
            }
        }
        self.read_devices.remove(name);
        self.doubted.remove(name);
        self.choose_all_of(name);
    }

    /// Treats devices as up again that a refusal put in doubt.
    fn trust_again(&mut self) {
        for name in std::mem::take(&mut self.doubted) {
            if let Some((_, up)) = self.devices.get_mut(&name) {
                *up = true;
                self.choose_all_of(&name);
            }
        }
    }

    fn choose_all_of(&mut self, device: &InterfaceName) {
        self.wanted_of(device).into_iter().for_each(|key| self.choose(key));
    }

    /// The destinations wanted by a device.
    fn wanted_of(&self, device: &InterfaceName) -> BTreeSet<RouteKey> {
        RouteClass::ALL
            .iter()
            .filter_map(|class| self.wanted.get(&(*class, Some(device.clone()))))
            .flat_map(|routes| routes.keys().copied())
            .collect()
    }

    /// Chooses among the routes wanted for a destination.
    fn choose(&mut self, key: RouteKey) {
        let mut best: Option<(RouteClass, u32, Route)> = None;
        for place in self.wanted_by.get(&key).into_iter().flatten() {
            let (class, device) = place;
            let index = match device {
                None => 0,
                Some(name) => {
                    let Some((index, up)) = self.devices.get(name).copied() else { continue };
                    if let Some(grace) = self.grace.get_mut(&index) {
                        grace.over = true;
                    }
                    if !up {
                        continue;
                    }
                    index
                }
            };
            // The first class wins; of two devices the newer one, whose workload has the address now.
            if best.as_ref().is_some_and(|(other, old, _)| {
                (class, std::cmp::Reverse(index)) >= (other, std::cmp::Reverse(*old))
            }) {
                continue;
            }
            let Some(target) = self.wanted.get(place).and_then(|routes| routes.get(&key)) else { continue };
            best = Some((*class, index, self.route(key, target, index)));
        }
        let address = single_address(key);
        match best {
            Some((class, index, route)) => {
                self.routes.set_desired(key, route);
                if let Some(address) = address {
                    self.address_owners.set_desired(address, Owner { index, class }.into());
                }
            }
            None => {
                self.routes.remove_desired(&key);
                if let Some(address) = address {
                    self.address_owners.remove_desired(&address);
                }
            }
        }
    }

    fn route(&self, key: RouteKey, target: &Target, index: u32) -> Route {
        normalised(Route {
            kind: match target.way {
                Way::Direct | Way::Gateway(_) => RouteKind::Unicast,
                Way::Blackhole => RouteKind::Blackhole,
                Way::Throw => RouteKind::Throw,
            },
            device: (index != 0).then_some(index),
            gateway: match target.way {
                Way::Gateway(gateway) => Some(gateway),
                Way::Direct | Way::Blackhole | Way::Throw => None,
            },
            scope: if target.way == Way::Direct { Scope::Link } else { Scope::Universe },
            table: self.settings.table,
            protocol: target.protocol.unwrap_or(self.settings.ownership.device_protocol),
            metric: Some(key.metric),
            source: target.source.or(self.settings.source),
            onlink: matches!(target.way, Way::Gateway(_)),
            mtu: target.mtu,
            ..Route::new(key.destination)
        })
    }

    fn whole_key(&self, key: RouteKey) -> RouteKey {
        let metric = match self.settings.family {
            Family::V6 if key.metric == 0 => DEFAULT_METRIC_V6,
            _ => key.metric,
        };
        RouteKey { destination: key.destination.trunc(), metric }
    }

    fn is_ours(&self, route: &Route) -> bool {
        // The kernel creates one such route for each device by itself.
        if route.family() == Family::V6 && route.destination.to_string() == "fe80::/64" {
            return false;
        }
        match route.device {
            None => self.settings.ownership.is_ours(route, None),
            Some(index) => match self.names.get(&index) {
                Some(name) => self.settings.ownership.is_ours(route, Some(name)),
                // An unannounced device: its event follows, or it is gone.
                None => false,
            },
        }
    }
}

/// The address of a route to a single address.
fn single_address(key: RouteKey) -> Option<IpAddr> {
    let net = key.destination;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}

fn key_of(route: &Route) -> RouteKey {
    RouteKey { destination: route.destination.trunc(), metric: route.metric.unwrap_or(0) }
}

/// A route in comparable form: without the fields that the kernel fills in or leaves out.
fn normalised(mut route: Route) -> Route {
    match route.family() {
        Family::V6 => {
            route.metric = Some(route.metric.filter(|metric| *metric != 0).unwrap_or(DEFAULT_METRIC_V6));
            // IPv6 routes have no scope.
            route.scope = Scope::Universe;
        }
        Family::V4 => route.metric = route.metric.filter(|metric| *metric != 0),
    }
    // Such routes have no device; for IPv6 the kernel shows the loopback device.
    if !matches!(route.kind, RouteKind::Unicast | RouteKind::Local) {
        route.device = None;
    }
    route.mtu = route.mtu.filter(|mtu| *mtu != 0);
    route
}
