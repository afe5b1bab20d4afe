//! The desired kernel route of a prefix: BIRD's route, with protocol number 12, in the main table.

use crate::host::Resolution;
use crate::policy::Policy;
use crate::route::{BgpRoute, Interface, Path, Route};
use crate::select::{MOST_PATHS, Selection};
use crate::slots::Resolutions;
use crate::view::View;
use bgp::Prefix;
use bgp::intent::{Encapsulation, Programmer};
use ipnet::IpNet;
use smallvec::SmallVec;
use std::net::IpAddr;

/// BIRD's protocol number, by which our routes are recognised.
pub const PROTOCOL: u8 = 12;

/// A route for the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// The metric; `None` for the kernel's default.
    pub metric: Option<u32>,
    /// The target of packets.
    pub target: KernelTarget,
}

/// The target of packets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelTarget {
    /// Dropped, unless a more specific route matches.
    Blackhole,
    /// Sent to one of these, sorted by address; never empty.
    Via(SmallVec<[Hop; 1]>),
}

/// A neighbour as a next hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// Its address.
    pub gateway: IpAddr,
    /// How it is reached.
    pub link: Link,
}

/// How a neighbour is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Through an interface.
    Interface(Interface),
    /// Through the IP in IP device, `tunl0`, which treats any address as a neighbour (`onlink`).
    IpIpTunnel,
}

/// Computes the desired kernel route of a prefix.
pub(crate) fn desired(
    prefix: &IpNet,
    paths: &[Path],
    selection: &Selection,
    view: &View<'_>,
) -> Option<KernelRoute> {
    let View { store, resolutions, policy, .. } = *view;
    let route = &**store.get(paths[selection.best].route);
    let network = Prefix::new(*prefix);
    if matches!(route, Route::Direct(_) | Route::Host { .. })
        || policy.kernel.services.iter().any(|services| services.contains(network))
    {
        return None;
    }
    let Programmer::Bgp(encapsulation) = policy.kernel.programmer(network) else { return None };
    match route {
        Route::Originated => Some(KernelRoute { metric: None, target: KernelTarget::Blackhole }),
        Route::Gateway { slot, .. } => {
            let Resolution::Found { gateway, interface, .. } = resolutions.get(slot.0) else { return None };
            let hop = Hop { gateway: *gateway, link: Link::Interface(interface.clone()) };
            Some(KernelRoute { metric: None, target: KernelTarget::Via(SmallVec::from_iter([hop])) })
        }
        Route::Bgp(best) => {
            if policy.kernel.wireguard.contains(&best.announcement.next_hop.address()) {
                return None;
            }
            let metric = best.priority().0;
            let mut hops: SmallVec<[Hop; 1]> = selection
                .equal
                .iter()
                .filter_map(|place| store.get(paths[*place].route).as_bgp())
                .filter_map(|route| hop(route, resolutions, encapsulation, policy))
                .collect();
            if hops.len() > 1 {
                hops.sort_unstable();
                hops.dedup();
                hops.truncate(MOST_PATHS);
            }
            (!hops.is_empty())
                .then_some(KernelRoute { metric: Some(metric), target: KernelTarget::Via(hops) })
        }
        Route::Direct(_) | Route::Host { .. } => None,
    }
}

fn hop(
    route: &BgpRoute,
    resolutions: &Resolutions,
    encapsulation: Encapsulation,
    policy: &Policy,
) -> Option<Hop> {
    let next_hop = route.announcement.next_hop.address();
    let is_near = || policy.kernel.subnet.is_some_and(|subnet| subnet.contains_address(next_hop));
    let tunnelled = match encapsulation {
        Encapsulation::None => false,
        Encapsulation::IpIp => true,
        Encapsulation::IpIpCrossSubnet => !is_near(),
    };
    if tunnelled {
        return Some(Hop { gateway: next_hop, link: Link::IpIpTunnel });
    }
    match resolutions.get(route.slot.0) {
        Resolution::Found { gateway, interface, .. } => {
            Some(Hop { gateway: *gateway, link: Link::Interface(interface.clone()) })
        }
        Resolution::Unknown => None,
    }
}
