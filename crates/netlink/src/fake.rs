//! A kernel built from maps, for tests of managers: it keeps what is written, refuses what the real kernel refuses, and
//! can be configured to refuse more.
//!
//! It models objects and their identities, not forwarding: addresses do not create routes, and no device loses its
//! carrier.

use crate::Family;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Operation, RouteFilter};
use crate::mac::MacAddress;
use crate::route::address::Address;
use crate::route::link::{DeviceKind, Link, LinkChange, LinkRef, NewLink};
use crate::route::neighbour::Neighbour;
use crate::route::routes::{Route, RouteKind};
use crate::route::rule::Rule;
use ipnet::IpNet;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The fields that identify a route to the kernel.
type RouteIdentity = (Family, u32, IpNet, u32, Option<u32>);
/// The fields that identify a neighbour: device, table, and hardware address (forwarding) or address.
type NeighbourIdentity = (u32, bool, Option<MacAddress>, Option<IpAddr>);

/// A kernel built from maps.
#[derive(Clone, Debug, Default)]
pub struct FakeKernel {
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<(u32, IpNet), Address>,
    routes: BTreeMap<RouteIdentity, Route>,
    neighbours: BTreeMap<NeighbourIdentity, Neighbour>,
    rules: BTreeSet<Rule>,
    last_index: u32,
    refusals: Vec<(String, Errno, usize)>,
    /// Everything that was applied, in order, including refused operations.
    pub log: Vec<String>,
    /// The number of calls that read or applied something.
    pub calls: usize,
}

impl FakeKernel {
    /// An empty kernel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device that is up, as if another program had created it; returns its number.
    pub fn with_link(&mut self, name: &str, kind: &str) -> u32 {
        let link = Link {
            name: name.to_owned(),
            kind: kind.to_owned(),
            up: true,
            running: true,
            lower_up: true,
            mtu: 1500,
            ..Link::default()
        };
        self.insert(link)
    }

    /// Refuses the next `times` operations whose text (see [`Operation`]'s `Display`) contains `text`.
    pub fn refuse(&mut self, text: &str, errno: Errno, times: usize) {
        self.refusals.push((text.to_owned(), errno, times));
    }

    fn insert(&mut self, mut link: Link) -> u32 {
        self.last_index += 1;
        link.index = self.last_index;
        if link.mac.is_none() {
            let [a, b, c, d] = link.index.to_be_bytes();
            link.mac = Some(MacAddress([0x02, 0, a, b, c, d]));
        }
        self.links.insert(link.index, link);
        self.last_index
    }

    fn find(&self, link: &LinkRef) -> Option<u32> {
        match link {
            LinkRef::Index(index) => self.links.contains_key(index).then_some(*index),
            LinkRef::Name(name) => self.links.values().find(|link| link.name == *name).map(|link| link.index),
        }
    }

    fn injected(&mut self, what: &str) -> Option<Errno> {
        let found =
            self.refusals.iter_mut().find(|(text, _, times)| *times > 0 && what.contains(text.as_str()))?;
        found.2 -= 1;
        Some(found.1)
    }

    fn carry_out(&mut self, operation: &Operation) -> std::result::Result<(), Errno> {
        match operation {
            Operation::AddLink(new) => self.add_link(new),
            Operation::ChangeLink(link, change) => self.change_link(link, change),
            Operation::DeleteLink(link) => self.delete_link(link),
            Operation::AddAddress(address) | Operation::ReplaceAddress(address) => {
                self.need_device(address.index)?;
                let key = (address.index, address.address);
                if matches!(operation, Operation::AddAddress(_)) && self.addresses.contains_key(&key) {
                    return Err(Errno::EXIST);
                }
                self.addresses.insert(key, address.clone());
                Ok(())
            }
            Operation::DeleteAddress(address) => {
                self.addresses.remove(&(address.index, address.address)).map(drop).ok_or(Errno::ADDRNOTAVAIL)
            }
            Operation::AddRoute(route) | Operation::ReplaceRoute(route) | Operation::AppendRoute(route) => {
                self.add_route(route, operation)
            }
            Operation::DeleteRoute(route) => self.delete_route(route),
            Operation::ReplaceNeighbour(neighbour) | Operation::AppendNeighbour(neighbour) => {
                self.need_device(neighbour.index)?;
                let identity =
                    neighbour_identity(neighbour, matches!(operation, Operation::AppendNeighbour(_)));
                self.neighbours.insert(identity, neighbour.clone());
                Ok(())
            }
            Operation::DeleteNeighbour(neighbour) => {
                let before = self.neighbours.len();
                self.neighbours.retain(|_, found| !same_neighbour(found, neighbour));
                if self.neighbours.len() < before { Ok(()) } else { Err(Errno::NOENT) }
            }
            Operation::AddRule(rule) => {
                if self.rules.insert(rule.clone()) {
                    Ok(())
                } else {
                    Err(Errno::EXIST)
                }
            }
            Operation::DeleteRule(rule) => {
                if self.rules.remove(rule) {
                    Ok(())
                } else {
                    Err(Errno::NOENT)
                }
            }
        }
    }

    fn need_device(&self, index: u32) -> std::result::Result<(), Errno> {
        if self.links.contains_key(&index) { Ok(()) } else { Err(Errno::NODEV) }
    }

    fn add_link(&mut self, new: &NewLink) -> std::result::Result<(), Errno> {
        if self.find(&LinkRef::Name(new.name.clone())).is_some() {
            return Err(Errno::EXIST);
        }
        let first = Link {
            name: new.name.clone(),
            kind: new.kind.name().to_owned(),
            up: new.up,
            mtu: new.mtu.unwrap_or(1500),
            mac: new.mac,
            vxlan: match &new.kind {
                DeviceKind::Vxlan(vxlan) => Some(vxlan.clone()),
                _ => None,
            },
            ..Link::default()
        };
        let (DeviceKind::Veth(peer) | DeviceKind::Netkit(peer)) = &new.kind else {
            self.insert(first);
            return Ok(());
        };
        if peer.namespace.is_some() {
            // The other end lives in a kernel that this one does not model.
            self.insert(first);
            return Ok(());
        }
        if self.find(&LinkRef::Name(peer.name.clone())).is_some() {
            return Err(Errno::EXIST);
        }
        let second = Link { name: peer.name.clone(), mac: peer.mac, ..first.clone() };
        let (first, second) = (self.insert(first), self.insert(second));
        for (index, other) in [(first, second), (second, first)] {
            if let Some(link) = self.links.get_mut(&index) {
                link.peer_index = Some(other);
            }
        }
        Ok(())
    }

    fn change_link(&mut self, link: &LinkRef, change: &LinkChange) -> std::result::Result<(), Errno> {
        let index = self.find(link).ok_or(Errno::NODEV)?;
        let found = self.links.get_mut(&index).ok_or(Errno::NODEV)?;
        if let Some(up) = change.up {
            (found.up, found.running, found.lower_up) = (up, up, up);
        }
        found.mtu = change.mtu.unwrap_or(found.mtu);
        found.mac = change.mac.or(found.mac);
        if let Some(master) = change.master {
            found.master = (master != 0).then_some(master);
        }
        if let Some(name) = &change.name {
            found.name.clone_from(name);
        }
        if change.up == Some(false) {
            self.routes.retain(|_, route| route.device != Some(index));
        }
        if change.namespace.is_some() {
            self.forget(index);
        }
        Ok(())
    }

    fn delete_link(&mut self, link: &LinkRef) -> std::result::Result<(), Errno> {
        let index = self.find(link).ok_or(Errno::NODEV)?;
        let peer =
            self.links.get(&index).filter(|link| link.kind != "vxlan").and_then(|link| link.peer_index);
        self.forget(index);
        if let Some(peer) = peer {
            self.forget(peer);
        }
        Ok(())
    }

    fn forget(&mut self, index: u32) {
        self.links.remove(&index);
        self.addresses.retain(|(device, _), _| *device != index);
        self.routes.retain(|_, route| route.device != Some(index));
        self.neighbours.retain(|_, neighbour| neighbour.index != index);
    }

    fn add_route(&mut self, route: &Route, operation: &Operation) -> std::result::Result<(), Errno> {
        let route = normalised(route);
        if let Some(device) = route.device {
            let link = self.links.get(&device).ok_or(Errno::NODEV)?;
            if !link.up {
                return Err(Errno::NETDOWN);
            }
        } else if route.kind == RouteKind::Unicast && route.gateway.is_none() {
            return Err(Errno::NODEV);
        }
        if self.leads_elsewhere(&route) {
            return Err(Errno::INVAL);
        }
        let appended = matches!(operation, Operation::AppendRoute(_));
        let identity = route_identity(&route, appended);
        if matches!(operation, Operation::AddRoute(_)) && self.routes.contains_key(&identity) {
            return Err(Errno::EXIST);
        }
        self.routes.insert(identity, route);
        Ok(())
    }

    /// Whether IPv6 refuses a gateway that is declared to be on the link: another route, other than the default, leads
    /// to it by another device, or nowhere.
    fn leads_elsewhere(&self, route: &Route) -> bool {
        let Some(gateway) = route.gateway.filter(|gateway| gateway.is_ipv6() && route.onlink) else {
            return false;
        };
        let leading = self.routes.values().filter(|found| {
            found.table == route.table
                && found.destination.prefix_len() > 0
                && found.destination.contains(&gateway)
        });
        leading
            .max_by_key(|found| found.destination.prefix_len())
            .is_some_and(|found| found.kind != RouteKind::Unicast || found.device != route.device)
    }

    fn delete_route(&mut self, route: &Route) -> std::result::Result<(), Errno> {
        let wanted = normalised(route);
        let matches = |found: &Route| {
            found.family() == wanted.family()
                && found.table == wanted.table
                && found.destination == wanted.destination
                && (route.metric.is_none() || found.metric == wanted.metric)
                && (wanted.device.is_none() || found.device == wanted.device)
                && (wanted.gateway.is_none() || found.gateway == wanted.gateway)
        };
        let identity = self.routes.iter().find(|(_, found)| matches(found)).map(|(identity, _)| *identity);
        self.routes.remove(&identity.ok_or(Errno::SRCH)?);
        Ok(())
    }
}

/// A route as the kernel reports it.
fn normalised(route: &Route) -> Route {
    let mut route = route.clone();
    if route.family() == Family::V6 && route.metric.unwrap_or(0) == 0 {
        route.metric = Some(1024);
    }
    if route.metric == Some(0) {
        route.metric = None;
    }
    route
}

fn route_identity(route: &Route, appended: bool) -> RouteIdentity {
    let device = if appended { route.device } else { None };
    (route.family(), route.table, route.destination, route.metric.unwrap_or(0), device)
}

fn neighbour_identity(neighbour: &Neighbour, appended: bool) -> NeighbourIdentity {
    if neighbour.forwarding {
        (neighbour.index, true, neighbour.mac, neighbour.address.filter(|_| appended))
    } else {
        (neighbour.index, false, None, neighbour.address)
    }
}

fn same_neighbour(found: &Neighbour, wanted: &Neighbour) -> bool {
    found.index == wanted.index
        && found.forwarding == wanted.forwarding
        && if wanted.forwarding {
            found.mac == wanted.mac && (wanted.address.is_none() || found.address == wanted.address)
        } else {
            found.address == wanted.address
        }
}

impl Kernel for FakeKernel {
    fn links(&mut self) -> Result<Vec<Link>> {
        self.calls += 1;
        Ok(self.links.values().cloned().collect())
    }

    fn link(&mut self, link: &LinkRef) -> Result<Option<Link>> {
        self.calls += 1;
        Ok(self.find(link).and_then(|index| self.links.get(&index).cloned()))
    }

    fn addresses(&mut self, family: Option<Family>, index: Option<u32>) -> Result<Vec<Address>> {
        self.calls += 1;
        let selected = |address: &&Address| {
            family.is_none_or(|family| family == address.family())
                && index.is_none_or(|index| index == address.index)
        };
        Ok(self.addresses.values().filter(selected).cloned().collect())
    }

    fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>> {
        self.calls += 1;
        Ok(self.routes.values().filter(|route| filter.selects(route)).cloned().collect())
    }

    fn neighbours(&mut self, family: Family, index: Option<u32>) -> Result<Vec<Neighbour>> {
        self.calls += 1;
        let selected = |neighbour: &&Neighbour| {
            !neighbour.forwarding
                && neighbour.address.is_some_and(|address| Family::of(&address) == family)
                && index.is_none_or(|index| index == neighbour.index)
        };
        Ok(self.neighbours.values().filter(selected).cloned().collect())
    }

    fn forwarding(&mut self, index: u32) -> Result<Vec<Neighbour>> {
        self.calls += 1;
        let selected = |neighbour: &&Neighbour| neighbour.forwarding && neighbour.index == index;
        Ok(self.neighbours.values().filter(selected).cloned().collect())
    }

    fn rules(&mut self, family: Family) -> Result<Vec<Rule>> {
        self.calls += 1;
        Ok(self.rules.iter().filter(|rule| rule.family == family).cloned().collect())
    }

    fn apply(&mut self, operations: &[Operation]) -> Vec<Result<()>> {
        self.calls += 1;
        let mut outcomes = Vec::with_capacity(operations.len());
        for operation in operations {
            let what = operation.to_string();
            let outcome = match self.injected(&what) {
                Some(errno) => Err(errno),
                None => self.carry_out(operation),
            };
            self.log.push(what.clone());
            outcomes.push(outcome.map_err(|errno| Error::Refused { what, errno, message: String::new() }));
        }
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::FakeKernel;
    use crate::kernel::{Kernel as _, Operation, RouteFilter};
    use crate::{Address, DeviceKind, Errno, Family, NewLink, Peer, Route};

    #[test]
    fn it_refuses_what_the_kernel_refuses_and_more_on_request() {
        let mut kernel = FakeKernel::new();
        let peer = Peer { name: "b".into(), namespace: None, mac: None };
        let pair = NewLink { up: true, ..NewLink::new("a", DeviceKind::Veth(peer)) };
        let outcomes = kernel.apply(&[Operation::AddLink(pair.clone()), Operation::AddLink(pair)]);
        assert!(outcomes[0].is_ok() && outcomes[1].as_ref().unwrap_err().is_exists());
        let route = Route::on_link("10.0.0.1/32".parse().unwrap(), 1);
        let elsewhere = Route::on_link("10.0.0.1/32".parse().unwrap(), 9);
        kernel.refuse("set route", Errno::BUSY, 1);
        let outcomes = kernel.apply(&[
            Operation::AddRoute(route.clone()),
            Operation::AddRoute(route.clone()),
            Operation::AddRoute(elsewhere),
            Operation::ReplaceRoute(route.clone()),
            Operation::ReplaceRoute(route.clone()),
            Operation::AddAddress(Address::new(7, "10.0.0.1/32".parse().unwrap())),
        ]);
        let errors: Vec<_> =
            outcomes.iter().map(|it| it.as_ref().err().and_then(crate::Error::errno)).collect();
        let expected =
            [None, Some(Errno::EXIST), Some(Errno::NODEV), Some(Errno::BUSY), None, Some(Errno::NODEV)];
        assert_eq!(errors, expected);
        // Deleting a device removes its peer, its addresses and its routes.
        assert!(kernel.apply(&[Operation::DeleteLink("b".into())])[0].is_ok());
        assert!(kernel.links().unwrap().is_empty());
        assert!(kernel.routes(&RouteFilter::all(Family::V4)).unwrap().is_empty());
        assert_eq!(
            kernel.apply(&[Operation::DeleteRoute(route)])[0].as_ref().unwrap_err().errno(),
            Some(Errno::SRCH)
        );
    }
}
