//! The host as values: networks of its links, and routes of other programs. Next hops are resolved here, and only here:
//! a route that depended on another BGP route could depend on itself.

use crate::route::{Interface, Route};
use bgp_wire::NextHop;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A route of the host that is not ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRoute {
    /// The destination network.
    pub destination: IpNet,
    /// The kind of the route.
    pub kind: HostRouteKind,
}

/// The kinds of routes of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostRouteKind {
    /// The network of an interface's address.
    Direct {
        /// The interface.
        interface: Interface,
    },
    /// A route in the main table, created by another program.
    Learned {
        /// The kernel's metric, if set.
        metric: Option<u32>,
        /// The gateway.
        gateway: Option<IpAddr>,
        /// The interface; `None` for a blackhole, unreachable or prohibit route.
        interface: Option<Interface>,
    },
}

impl HostRoute {
    pub(crate) fn as_route(&self) -> Route {
        match &self.kind {
            HostRouteKind::Direct { interface } => Route::Direct(interface.clone()),
            HostRouteKind::Learned { metric, gateway, interface } => {
                Route::Host { gateway: *gateway, interface: interface.clone(), metric: *metric }
            }
        }
    }

    fn is_direct(&self) -> bool {
        matches!(self.kind, HostRouteKind::Direct { .. })
    }
}

/// The result of resolving a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Unreachable.
    Unknown,
    /// On a link, or behind a router on it.
    Found {
        /// The neighbour to which packets are sent.
        gateway: IpAddr,
        /// The link.
        interface: Interface,
        /// The distance: 0 on the link, [`FAR`] behind a router.
        metric: u32,
    },
}

/// The metric of destinations behind a router, whose distance is unknown.
pub(crate) const FAR: u32 = u32::MAX;

impl Resolution {
    pub(crate) fn metric(&self) -> Option<u32> {
        match self {
            Self::Unknown => None,
            Self::Found { metric, .. } => Some(*metric),
        }
    }
}

/// The host's routes by destination.
#[derive(Debug, Default)]
pub(crate) struct Host {
    routes: BTreeMap<IpNet, Vec<HostRoute>>,
}

impl Host {
    /// Adds a route; returns false if it exists already.
    pub(crate) fn insert(&mut self, route: HostRoute) -> bool {
        let routes = self.routes.entry(route.destination).or_default();
        match routes.binary_search(&route) {
            Ok(_) => false,
            Err(place) => {
                routes.insert(place, route);
                true
            }
        }
    }

    /// Removes a route; returns false if it does not exist.
    pub(crate) fn remove(&mut self, route: &HostRoute) -> bool {
        let Some(routes) = self.routes.get_mut(&route.destination) else { return false };
        let Ok(place) = routes.binary_search(route) else { return false };
        routes.remove(place);
        if routes.is_empty() {
            self.routes.remove(&route.destination);
        }
        true
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &HostRoute> {
        self.routes.values().flatten()
    }

    /// The network of an interface with this destination: the first one by index.
    pub(crate) fn direct(&self, destination: IpNet) -> Option<&HostRoute> {
        self.routes.get(&destination)?.iter().find(|route| route.is_direct())
    }

    /// The kernel's preferred route of another program to this destination: the one with the smallest metric.
    pub(crate) fn learned(&self, destination: IpNet) -> Option<&HostRoute> {
        self.routes.get(&destination)?.iter().find(|route| !route.is_direct())
    }

    /// Resolves a next hop: the most specific route decides, networks of interfaces first. A gateway of the intent
    /// counts as a route to its peer.
    pub(crate) fn resolve(
        &self,
        next_hop: NextHop,
        link: Option<&Interface>,
        gateways: &BTreeMap<IpAddr, IpAddr>,
    ) -> Resolution {
        let address = next_hop.address();
        if let (IpAddr::V6(v6), Some(interface)) = (address, link)
            && v6.is_unicast_link_local()
        {
            return Resolution::Found { gateway: address, interface: interface.clone(), metric: 0 };
        }
        if let Some(via) = gateways.get(&address) {
            return match self.find(*via) {
                Resolution::Found { gateway, interface, .. } => {
                    Resolution::Found { gateway, interface, metric: FAR }
                }
                Resolution::Unknown => Resolution::Unknown,
            };
        }
        match (self.find(address), next_hop.link_local()) {
            // A router on the link is reached by its link-local address, which is never renumbered.
            (Resolution::Found { interface, metric: 0, .. }, Some(link_local)) => {
                Resolution::Found { gateway: link_local.into(), interface, metric: 0 }
            }
            (found, _) => found,
        }
    }

    fn find(&self, address: IpAddr) -> Resolution {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        for length in (0..=longest).rev() {
            let Ok(net) = IpNet::new(address, length) else { return Resolution::Unknown };
            let Some(routes) = self.routes.get(&net.trunc()) else { continue };
            let best = routes.iter().find(|route| route.is_direct()).or(routes.first());
            return match best.map(|route| &route.kind) {
                Some(HostRouteKind::Direct { interface }) => {
                    Resolution::Found { gateway: address, interface: interface.clone(), metric: 0 }
                }
                Some(HostRouteKind::Learned { gateway, interface: Some(interface), .. }) => {
                    Resolution::Found {
                        gateway: gateway.unwrap_or(address),
                        interface: interface.clone(),
                        metric: if gateway.is_some() { FAR } else { 0 },
                    }
                }
                Some(HostRouteKind::Learned { interface: None, .. }) | None => Resolution::Unknown,
            };
        }
        Resolution::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32) -> Interface {
        Interface { index, name: format!("eth{index}").into() }
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    fn learned(to: &str, metric: Option<u32>, gateway: Option<&str>, index: Option<u32>) -> HostRoute {
        let gateway = gateway.map(|text| text.parse().expect("an address"));
        HostRoute {
            destination: net(to),
            kind: HostRouteKind::Learned { metric, gateway, interface: index.map(interface) },
        }
    }

    #[test]
    fn next_hops_are_found_by_the_most_specific_route() {
        let mut host = Host::default();
        for route in [
            HostRoute {
                destination: net("10.0.0.0/24"),
                kind: HostRouteKind::Direct { interface: interface(0) },
            },
            learned("0.0.0.0/0", Some(100), Some("10.0.0.1"), Some(0)),
            learned("0.0.0.0/0", Some(50), Some("10.0.1.1"), Some(1)),
            learned("10.9.0.0/16", None, None, None),
            learned("10.8.0.5/32", None, None, Some(7)),
        ] {
            assert!(host.insert(route.clone()));
            assert!(!host.insert(route));
        }
        let at = |text: &str| {
            let address: IpAddr = text.parse().expect("an address");
            match host.resolve(address.into(), None, &BTreeMap::new()) {
                Resolution::Unknown => "unknown".to_owned(),
                Resolution::Found { gateway, interface, metric } => {
                    format!("{gateway} {} {}", interface.name, if metric == FAR { "far" } else { "near" })
                }
            }
        };
        assert_eq!(at("10.0.0.7"), "10.0.0.7 eth0 near");
        assert_eq!(at("192.0.2.1"), "10.0.1.1 eth1 far");
        assert_eq!(at("10.9.1.1"), "unknown");
        assert_eq!(at("10.8.0.5"), "10.8.0.5 eth7 near");
        assert_eq!(at("fd00::1"), "unknown");
    }

    #[test]
    fn link_local_addresses_are_preferred_on_the_link() {
        let mut host = Host::default();
        host.insert(HostRoute {
            destination: net("fd00::/64"),
            kind: HostRouteKind::Direct { interface: interface(3) },
        });
        let next_hop = NextHop::Ipv6 {
            address: "fd00::2".parse().expect("an address"),
            link_local: Some("fe80::2".parse().expect("an address")),
        };
        let found = host.resolve(next_hop, None, &BTreeMap::new());
        assert!(
            matches!(found, Resolution::Found { gateway, .. } if gateway.to_string() == "fe80::2"),
            "{found:?}"
        );
    }
}
