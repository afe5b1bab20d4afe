//! The host's interfaces and addresses, from the kernel's events.
//!
//! As in Calico, the host's addresses are those that the local routing table delivers here, so the loopback network's
//! own address is included. Interfaces that settings exclude have no addresses.

use felix_config::Pattern;
use messages::InterfaceName;
use netlink::{Event, Link, Route, RouteKind, TABLE_LOCAL};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: InterfaceName,
    /// Whether it can carry packets.
    pub(crate) up: bool,
    /// The largest packet.
    pub(crate) mtu: u32,
    /// Its addresses.
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceState {
    /// It exists.
    Present {
        /// Its number.
        index: u32,
        /// Whether it can carry packets.
        up: bool,
    },
    /// It is gone.
    Absent,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceNews {
    /// An interface was added, removed, or changed its state.
    State(InterfaceName, InterfaceState),
    /// The addresses of an interface changed.
    Addresses(InterfaceName),
}

/// All interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces {
    excluded: Vec<Pattern>,
    by_index: BTreeMap<u32, Interface>,
    by_name: BTreeMap<InterfaceName, u32>,
}

impl Interfaces {
    /// Creates an empty set; interfaces whose names match `excluded` will have no addresses.
    #[must_use]
    pub(crate) fn new(excluded: Vec<Pattern>) -> Self {
        Self { excluded, ..Self::default() }
    }

    /// An interface by name.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&Interface> {
        self.by_index.get(self.by_name.get(name)?)
    }

    /// The number of an interface.
    #[must_use]
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Whether an interface is there and can carry packets.
    #[must_use]
    pub(crate) fn is_up(&self, name: &str) -> bool {
        self.get(name).is_some_and(|interface| interface.up)
    }

    /// All interfaces, by number.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Interface> {
        self.by_index.values()
    }

    /// The numbers of all interfaces.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        self.by_index.keys().copied()
    }

    /// The interface that has an address.
    #[must_use]
    pub(crate) fn with_address(&self, address: &IpAddr) -> Option<&Interface> {
        self.all().find(|interface| interface.addresses.contains(address))
    }

    /// Processes one event. Besides the news it returns the number of an interface whose addresses have to be read,
    /// because the kernel does not report all address changes that a link's change causes.
    pub(crate) fn take(&mut self, event: &Event, news: &mut Vec<InterfaceNews>) -> Option<u32> {
        match event {
            Event::Link(link) => {
                self.link(link, news);
                (!self.is_excluded(&link.name)).then_some(link.index)
            }
            Event::LinkGone(link) => {
                self.gone(link.index, news);
                None
            }
            Event::Route(route) => {
                self.route(route, true, news);
                None
            }
            Event::RouteGone(route) => {
                self.route(route, false, news);
                None
            }
            _ => None,
        }
    }

    /// Processes a complete reading: all links, and all local routes.
    pub(crate) fn replace(&mut self, links: &[Link], local: &[Route], news: &mut Vec<InterfaceNews>) {
        let there: BTreeSet<u32> = links.iter().map(|link| link.index).collect();
        let gone: Vec<u32> = self.by_index.keys().filter(|index| !there.contains(index)).copied().collect();
        gone.into_iter().for_each(|index| self.gone(index, news));
        let mut addresses: BTreeMap<u32, BTreeSet<IpAddr>> = BTreeMap::new();
        for route in local.iter().filter(|route| is_local(route)) {
            if let Some(device) = route.device {
                addresses.entry(device).or_default().insert(route.destination.addr());
            }
        }
        for link in links {
            self.link(link, news);
            self.set_addresses(link.index, addresses.remove(&link.index).unwrap_or_default(), news);
        }
    }

    /// Sets the addresses of an interface.
    pub(crate) fn set_addresses(
        &mut self,
        index: u32,
        addresses: BTreeSet<IpAddr>,
        news: &mut Vec<InterfaceNews>,
    ) {
        let Some(name) = self.by_index.get(&index).map(|interface| interface.name.clone()) else { return };
        let addresses = if self.is_excluded(&name) { BTreeSet::new() } else { addresses };
        if let Some(interface) = self.by_index.get_mut(&index)
            && interface.addresses != addresses
        {
            interface.addresses = addresses;
            news.push(InterfaceNews::Addresses(name));
        }
    }

    fn is_excluded(&self, name: &str) -> bool {
        self.excluded.iter().any(|pattern| pattern.is_match(name))
    }

    fn link(&mut self, link: &Link, news: &mut Vec<InterfaceNews>) {
        let name: InterfaceName = link.name.as_str().into();
        let old = self.by_index.get(&link.index);
        if old.is_some_and(|old| old.name != name) {
            // Renamed: for all others this is a different interface.
            self.gone(link.index, news);
        }
        if let Some(other) = self.by_name.get(&name).copied().filter(|other| *other != link.index) {
            // Recreated under its old name; the removal of the old one is reported later, or was lost.
            self.gone(other, news);
        }
        let up = link.running;
        let entry = self.by_index.get_mut(&link.index);
        let is_news = entry.as_ref().is_none_or(|old| old.up != up);
        match entry {
            Some(old) => (old.up, old.mtu) = (up, link.mtu),
            None => {
                let new = Interface { name: name.clone(), up, mtu: link.mtu, addresses: BTreeSet::new() };
                self.by_index.insert(link.index, new);
                self.by_name.insert(name.clone(), link.index);
                news.push(InterfaceNews::Addresses(name.clone()));
            }
        }
        if is_news {
            news.push(InterfaceNews::State(name, InterfaceState::Present { index: link.index, up }));
        }
    }

    fn gone(&mut self, index: u32, news: &mut Vec<InterfaceNews>) {
        let Some(interface) = self.by_index.remove(&index) else { return };
        if self.by_name.get(&interface.name) == Some(&index) {
            self.by_name.remove(&interface.name);
        }
        news.push(InterfaceNews::State(interface.name.clone(), InterfaceState::Absent));
        news.push(InterfaceNews::Addresses(interface.name));
    }

    fn route(&mut self, route: &Route, exists: bool, news: &mut Vec<InterfaceNews>) {
        let Some(index) = route.device.filter(|_| is_local(route)) else { return };
        let Some(interface) = self.by_index.get(&index) else { return };
        let mut addresses = interface.addresses.clone();
        let address = route.destination.addr();
        if exists {
            addresses.insert(address);
        } else {
            addresses.remove(&address);
        }
        self.set_addresses(index, addresses, news);
    }
}

/// Whether a route makes an address local to this host.
fn is_local(route: &Route) -> bool {
    route.table == TABLE_LOCAL && route.kind == RouteKind::Local
}

#[cfg(test)]
mod tests {
    use super::{InterfaceNews, InterfaceState, Interfaces};
    use felix_config::Pattern;
    use messages::InterfaceName;
    use netlink::{Event, Link, Route, RouteKind, TABLE_LOCAL};

    fn link(index: u32, name: &str, running: bool) -> Link {
        Link { index, name: name.into(), running, mtu: 1500, ..Link::default() }
    }

    fn local(address: &str, device: u32) -> Route {
        let destination = address.parse().expect("a network");
        Route { kind: RouteKind::Local, table: TABLE_LOCAL, device: Some(device), ..Route::new(destination) }
    }

    fn state(name: &str, state: InterfaceState) -> InterfaceNews {
        InterfaceNews::State(InterfaceName::from(name), state)
    }

    #[test]
    fn events_become_news_once() {
        let mut all = Interfaces::new(Pattern::exactly("kube-ipvs0").into_iter().collect());
        let mut news = Vec::new();
        all.replace(&[link(1, "lo", true), link(2, "eth0", false)], &[local("127.0.0.0/8", 1)], &mut news);
        assert!(
            all.get("lo").is_some_and(|lo| lo.addresses.iter().any(|one| one.to_string() == "127.0.0.0"))
        );
        news.clear();
        assert_eq!(all.take(&Event::Link(link(2, "eth0", true)), &mut news), Some(2));
        all.take(&Event::Link(link(2, "eth0", true)), &mut news);
        assert_eq!(news, [state("eth0", InterfaceState::Present { index: 2, up: true })]);
        news.clear();
        for _ in 0..2 {
            all.take(&Event::Route(local("10.0.0.1/32", 2)), &mut news);
        }
        all.take(&Event::Route(Route { table: 254, ..local("10.0.0.2/32", 2) }), &mut news);
        assert_eq!(news, [InterfaceNews::Addresses("eth0".into())]);
        assert!(
            all.with_address(&"10.0.0.1".parse().expect("address")).is_some_and(|one| &*one.name == "eth0")
        );
        news.clear();
        // Renamed, then recreated under the old name before the old one is reported as removed.
        all.take(&Event::Link(link(2, "wan0", true)), &mut news);
        all.take(&Event::Link(link(3, "wan0", true)), &mut news);
        all.take(&Event::LinkGone(link(2, "wan0", true)), &mut news);
        let states: Vec<_> =
            news.iter().filter(|one| matches!(one, InterfaceNews::State(..))).cloned().collect();
        let present = |index| InterfaceState::Present { index, up: true };
        assert_eq!(
            states,
            [
                state("eth0", InterfaceState::Absent),
                state("wan0", present(2)),
                state("wan0", InterfaceState::Absent),
                state("wan0", present(3)),
            ]
        );
        assert_eq!((all.index("wan0"), all.index("eth0")), (Some(3), None));
    }

    #[test]
    fn excluded_interfaces_have_no_addresses() {
        let mut all = Interfaces::new(Pattern::exactly("kube-ipvs0").into_iter().collect());
        let mut news = Vec::new();
        all.replace(&[link(5, "kube-ipvs0", false)], &[local("10.96.0.1/32", 5)], &mut news);
        assert_eq!(all.take(&Event::Link(link(5, "kube-ipvs0", false)), &mut news), None);
        assert!(all.get("kube-ipvs0").is_some_and(|one| one.addresses.is_empty()));
    }
}
