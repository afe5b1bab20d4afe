//! The drivers of the kernel's parts: they take over the desired state, and are notified of changed interfaces.

use super::interface_setup::InterfaceSetup;
use crate::desired::Desired;
use crate::managers::InterfaceState;
use messages::InterfaceName;
use netfilter::PacketFilter;
use netfilter::driver::RuleDriver;
use netfilter::nftables;
use netlink::netfilter::nft;
use routing::bandwidth::BandwidthDriver;
use routing::limits::Bandwidth;
use routing::routes::device::TunnelDevices;
use routing::routes::{LinkAddresses, RouteChanges, RouteTable, TunnelNeighbours};
use routing::wireguard::{Wireguard, WireguardChanges};
use rules::tree::IpVersion;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

/// The drivers of one IP version.
pub(super) struct Plane {
    pub(super) version: IpVersion,
    /// Rules and sets.
    pub(super) filter: PacketFilter,
    /// Routes of the main table; `None` where we do not program routes.
    pub(super) routes: Option<RouteTable>,
    /// Addresses of workloads' interfaces; `None` where we do not program routes.
    pub(super) link_addresses: Option<LinkAddresses>,
    /// Neighbours and forwarding entries of the VXLAN device; `None` without one.
    pub(super) tunnel: Option<TunnelNeighbours>,
    /// `None` where no routing table is left for it.
    pub(super) wireguard: Option<Wireguard>,
    /// The addresses for which neighbour requests are answered.
    pub(super) answered: BTreeSet<IpAddr>,
}

impl Plane {
    pub(super) fn is_v6(&self) -> bool {
        self.version == IpVersion::V6
    }
}

/// All drivers.
pub(super) struct Drivers {
    pub(super) planes: Vec<Plane>,
    /// ARP rules, if they can be programmed.
    pub(super) arp: Option<nftables::Driver<nft::Client>>,
    pub(super) devices: TunnelDevices,
    pub(super) interfaces: InterfaceSetup,
    pub(super) limits: Bandwidth,
    /// `None` where the kernel has no traffic control.
    pub(super) bandwidth: Option<BandwidthDriver<netlink::tc::Client>>,
    /// Whether the addresses to answer for, or their interfaces, changed.
    pub(super) answers_changed: bool,
}

impl Drivers {
    /// Takes over the desired state; `desired` is empty afterwards.
    pub(super) fn take(&mut self, desired: &mut Desired) {
        for (plane, wanted) in self.planes.iter_mut().zip(&mut desired.versions) {
            wanted.sets.hand_over(&mut *plane.filter.sets);
            wanted.rules.hand_over(&mut *plane.filter.rules);
            match &mut plane.routes {
                Some(routes) => wanted.routes.hand_over(routes),
                None => wanted.routes = RouteChanges::default(),
            }
            for (node, peer) in std::mem::take(&mut wanted.tunnel_peers) {
                plane.tunnel.iter_mut().for_each(|tunnel| tunnel.set_peer(&node, peer));
            }
            match &mut plane.wireguard {
                Some(wireguard) => wireguard.take(&mut wanted.wireguard),
                None => wanted.wireguard = WireguardChanges::default(),
            }
            if let Some(answered) = wanted.answered.take() {
                plane.answered = answered;
                self.answers_changed = true;
            }
        }
        match &mut self.arp {
            Some(arp) => desired.arp.hand_over(arp),
            None => desired.arp = Default::default(),
        }
        self.devices.take(&mut desired.devices);
        self.limits.take(&mut desired.limits);
        self.interfaces.take(&mut desired.interfaces, &mut self.planes);
    }

    /// Notes that an interface was added, removed, or changed its state.
    pub(super) fn interface(
        &mut self,
        name: &InterfaceName,
        state: InterfaceState,
        is_workload: bool,
        now: Instant,
    ) {
        let (index, up) = match state {
            InterfaceState::Present { index, up } => (Some(index), up),
            InterfaceState::Absent => (None, false),
        };
        for plane in &mut self.planes {
            if let Some(routes) = &mut plane.routes {
                match index {
                    Some(index) => routes.device_is(name, index, up, now),
                    None => routes.device_gone(name),
                }
            }
            if let Some(addresses) = &mut plane.link_addresses {
                addresses.device_is(name, index);
            }
            plane.tunnel.iter_mut().for_each(|tunnel| tunnel.device_is(name, index.filter(|_| up)));
            plane.wireguard.iter_mut().for_each(|wireguard| wireguard.interface_is(name, index, up, now));
        }
        self.devices.interface_changed(name);
        self.interfaces.interface_changed(name, up, is_workload);
        self.limits.interface_changed(name);
        self.answers_changed |= !is_workload;
    }

    /// The addresses of an interface that is not a workload's changed.
    pub(super) fn addresses(&mut self, name: &InterfaceName) {
        self.devices.interface_changed(name);
        self.answers_changed = true;
    }

    /// Notes that a route is gone that was not removed here; returns whether it is missed.
    pub(super) fn route_gone(&mut self, route: &netlink::Route) -> bool {
        let mut missed = false;
        for plane in &mut self.planes {
            let wireguard = plane.wireguard.as_mut().and_then(Wireguard::table);
            for table in plane.routes.as_mut().into_iter().chain(wireguard) {
                missed |= table.route_gone(route);
            }
        }
        missed
    }

    /// Has everything outside the packet filter read again: routes, addresses, neighbours, tunnel devices.
    pub(super) fn read_network_again(&mut self) {
        for plane in &mut self.planes {
            plane.routes.iter_mut().for_each(RouteTable::invalidate);
            plane.link_addresses.iter_mut().for_each(LinkAddresses::invalidate);
            plane.tunnel.iter_mut().for_each(TunnelNeighbours::invalidate);
            plane.wireguard.iter_mut().for_each(Wireguard::invalidate);
        }
        self.devices.invalidate();
    }

    /// Notes that no other program changed nftables since foreign changes were last processed.
    pub(super) fn undisturbed(&mut self) {
        self.planes.iter_mut().for_each(|plane| plane.filter.rules.undisturbed());
    }

    /// WireGuard of each IP version.
    pub(super) fn wireguards(&mut self) -> impl Iterator<Item = &mut Wireguard> {
        self.planes.iter_mut().filter_map(|plane| plane.wireguard.as_mut())
    }

    /// The rules of all IP versions, and the ARP rules.
    pub(super) fn all_rules(&self) -> impl Iterator<Item = &dyn RuleDriver> {
        let planes = self.planes.iter().map(|plane| &*plane.filter.rules as &dyn RuleDriver);
        planes.chain(self.arp.iter().map(|arp| arp as &dyn RuleDriver))
    }
}
