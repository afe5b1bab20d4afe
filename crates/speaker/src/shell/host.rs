//! The host's links, addresses and routes in the form of the tables, kept up to date by events.
//!
//! The kernel does not report routes that vanish with their link, so here a removed link also removes its routes.

use ipnet::IpNet;
use netlink::{Address, Event, Family, Kernel, Link, Route, RouteFilter, RouteKind, TABLE_MAIN};
use rib::{HostRoute, HostRouteKind, Interface, InterfaceName, PROTOCOL};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// The protocol number of the kernel's own routes, for addresses.
const PROTOCOL_KERNEL: u8 = 2;
/// The protocol number of routes from redirects.
const PROTOCOL_REDIRECT: u8 = 1;

/// A change for the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A route was added.
    Add(HostRoute),
    /// A route was removed.
    Remove(HostRoute),
}

/// The fields by which the kernel distinguishes routes.
type RouteKey = (IpNet, Option<u32>);

/// The host's network.
#[derive(Debug, Default)]
pub(super) struct Host {
    links: BTreeMap<u32, (InterfaceName, bool)>,
    addresses: BTreeMap<u32, Vec<IpNet>>,
    routes: BTreeMap<RouteKey, HostRoute>,
    /// Interfaces whose networks are ignored.
    ignored: Vec<bgp::InterfacePattern>,
}

impl Host {
    /// Reads everything.
    pub(super) fn read(
        kernel: &mut impl Kernel,
        ignored: Vec<bgp::InterfacePattern>,
    ) -> netlink::Result<Self> {
        let mut host = Self { ignored, ..Self::default() };
        for link in kernel.links()? {
            host.links.insert(link.index, (link.name.as_str().into(), link.up));
        }
        for address in kernel.addresses(None, None)? {
            host.address(&address);
        }
        for family in [Family::V4, Family::V6] {
            let filter = RouteFilter { table: Some(TABLE_MAIN), ..RouteFilter::all(family) };
            for route in kernel.routes(&filter)? {
                host.route(&route);
            }
        }
        Ok(host)
    }

    /// Interfaces whose networks are ignored.
    pub(super) fn ignored(&self) -> &[bgp::InterfacePattern] {
        &self.ignored
    }

    /// All routes.
    pub(super) fn all(&self) -> Vec<HostRoute> {
        let direct = self.links.keys().flat_map(|index| self.direct(*index));
        direct.chain(self.routes.values().cloned()).collect()
    }

    pub(super) fn interface(&self, index: u32) -> Option<Interface> {
        self.links.get(&index).map(|(name, _)| Interface { index, name: name.clone() })
    }

    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        self.links.iter().find(|(_, (known, _))| &**known == name).map(|(index, _)| *index)
    }

    /// Our link-local address on a link.
    pub(super) fn link_local(&self, index: u32) -> Option<Ipv6Addr> {
        self.addresses.get(&index)?.iter().find_map(|net| match net.addr() {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        })
    }

    /// Whether an address is on a network of this host.
    pub(super) fn is_near(&self, address: IpAddr) -> bool {
        self.addresses.values().flatten().any(|net| net.contains(&address))
    }

    fn is_ignored(&self, name: &str) -> bool {
        name.starts_with("cali")
            || name.starts_with("kube-ipvs")
            || self.ignored.iter().any(|pattern| pattern.matches(name))
    }

    /// The networks of an interface, if it is up.
    fn direct(&self, index: u32) -> Vec<HostRoute> {
        let Some((name, true)) = self.links.get(&index) else { return Vec::new() };
        if self.is_ignored(name) {
            return Vec::new();
        }
        let interface = Interface { index, name: name.clone() };
        let addresses = self.addresses.get(&index).map(Vec::as_slice).unwrap_or_default();
        let mut networks: Vec<IpNet> =
            addresses.iter().filter(|net| is_global(net)).map(IpNet::trunc).collect();
        networks.sort_unstable();
        networks.dedup();
        let kind = || HostRouteKind::Direct { interface: interface.clone() };
        networks.into_iter().map(|destination| HostRoute { destination, kind: kind() }).collect()
    }

    fn address(&mut self, address: &Address) {
        let of_link = self.addresses.entry(address.index).or_default();
        if !of_link.contains(&address.address) {
            of_link.push(address.address);
        }
    }

    fn convert(&self, route: &Route) -> Option<(RouteKey, HostRoute)> {
        if route.table != TABLE_MAIN
            || [PROTOCOL_KERNEL, PROTOCOL_REDIRECT, PROTOCOL].contains(&route.protocol)
        {
            return None;
        }
        let (device, gateway) = match route.kind {
            RouteKind::Unicast => match route.hops.first() {
                Some(hop) => (Some(hop.device), hop.gateway),
                None => (Some(route.device?), route.gateway),
            },
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => (None, None),
            _ => return None,
        };
        let interface = match device {
            Some(device) => Some(self.interface(device)?),
            None => None,
        };
        let kind = HostRouteKind::Learned { metric: route.metric, gateway, interface };
        Some(((route.destination, route.metric), HostRoute { destination: route.destination, kind }))
    }

    fn route(&mut self, route: &Route) -> Vec<Change> {
        let Some((key, new)) = self.convert(route) else { return Vec::new() };
        let old = self.routes.insert(key, new.clone());
        if old.as_ref() == Some(&new) {
            return Vec::new();
        }
        old.map(Change::Remove).into_iter().chain([Change::Add(new)]).collect()
    }

    /// Applies an event; returns the changes for the tables. `None` if events were lost: everything must be read again.
    pub(super) fn take(&mut self, event: &Event) -> Option<Vec<Change>> {
        Some(match event {
            Event::Lost => return None,
            Event::Link(link) => self.link(link),
            Event::LinkGone(link) => {
                let changes = self.without(link.index);
                self.links.remove(&link.index);
                self.addresses.remove(&link.index);
                changes
            }
            Event::Address(address) => self.networks(address.index, |host| host.address(address)),
            Event::AddressGone(address) => self.networks(address.index, |host| {
                if let Some(known) = host.addresses.get_mut(&address.index) {
                    known.retain(|net| *net != address.address);
                }
            }),
            Event::Route(route) => self.route(route),
            Event::RouteGone(route) => match self.convert(route) {
                Some((key, gone)) if self.routes.get(&key) == Some(&gone) => {
                    self.routes.remove(&key);
                    vec![Change::Remove(gone)]
                }
                _ => Vec::new(),
            },
            Event::Neighbour(_) | Event::NeighbourGone(_) | Event::Rule(_) | Event::RuleGone(_) => Vec::new(),
        })
    }

    fn link(&mut self, link: &Link) -> Vec<Change> {
        let known = self.links.get(&link.index).cloned();
        if known.as_ref().is_some_and(|(name, up)| name.as_str() == link.name.as_str() && *up == link.up) {
            return Vec::new();
        }
        let mut changes = if link.up { Vec::new() } else { self.without_routes(link.index) };
        changes.extend(self.networks(link.index, |host| {
            host.links.insert(link.index, (link.name.as_str().into(), link.up));
        }));
        changes
    }

    /// The changes of an interface's networks that result from `change`.
    fn networks(&mut self, index: u32, change: impl FnOnce(&mut Self)) -> Vec<Change> {
        let before = self.direct(index);
        change(self);
        let after = self.direct(index);
        let gone = before.iter().filter(|route| !after.contains(route)).cloned().map(Change::Remove);
        let new = after.iter().filter(|route| !before.contains(route)).cloned().map(Change::Add);
        gone.chain(new).collect()
    }

    fn without_routes(&mut self, index: u32) -> Vec<Change> {
        let is_over = |route: &HostRoute| match &route.kind {
            HostRouteKind::Learned { interface: Some(interface), .. }
            | HostRouteKind::Direct { interface } => interface.index == index,
            HostRouteKind::Learned { interface: None, .. } => false,
        };
        let gone: Vec<RouteKey> =
            self.routes.iter().filter(|(_, route)| is_over(route)).map(|(key, _)| *key).collect();
        gone.iter().filter_map(|key| self.routes.remove(key)).map(Change::Remove).collect()
    }

    fn without(&mut self, index: u32) -> Vec<Change> {
        let mut changes = self.without_routes(index);
        changes.extend(self.direct(index).into_iter().map(Change::Remove));
        changes
    }
}

/// Whether hosts elsewhere can have addresses of the network.
fn is_global(net: &IpNet) -> bool {
    match net.addr() {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}
