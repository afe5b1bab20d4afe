//! Routes to the workloads of other nodes, for the pools of one kind of encapsulation and one IP version.
//!
//! A block of a node in the same subnet is reached through that node's address, other blocks through the tunnel.
//! Packets to our own blocks that match no workload are dropped. Each change touches only the routes that depend on it.

use super::{Interfaces, Manager, News, World, host_address};
use crate::desired::Desired;
use ipnet::IpNet;
use messages::{InterfaceName, IpPoolType, NodeName, Route, RouteTypes};
use routing::routes::{Device, RouteClass, RouteKey, Target, Way};
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// The fixed settings.
#[derive(Clone, Debug)]
pub(crate) struct ClusterRoutesSettings {
    /// This host.
    pub(crate) host: NodeName,
    /// The IP version.
    pub(crate) version: IpVersion,
    /// The kind of pools.
    pub(crate) pool_type: IpPoolType,
    /// The tunnel device; `None` without encapsulation.
    pub(crate) tunnel_device: Option<InterfaceName>,
    /// The largest packet in the tunnel.
    pub(crate) tunnel_mtu: Option<u32>,
    /// The protocol number of routes that do not use the VXLAN device.
    pub(crate) protocol: u8,
    /// Whether packets of this host itself through the tunnel have the address as source that other nodes know it by.
    pub(crate) sends_as_host: bool,
}

/// The routes to other nodes' workloads, for one kind of pool.
#[derive(Debug)]
pub(crate) struct ClusterRoutes {
    settings: ClusterRoutesSettings,
    routes: BTreeMap<IpNet, Route>,
    by_node: BTreeMap<NodeName, BTreeSet<IpNet>>,
    /// The gateway of each node's tunnel: the address of its tunnel device, or with IP in IP its own.
    gateways: BTreeMap<NodeName, IpAddr>,
    parent_address: Option<IpAddr>,
    parent_device: Option<InterfaceName>,
    placed: BTreeMap<IpNet, (RouteClass, Device)>,
    changed: BTreeSet<IpNet>,
    /// Whether the device with the parent address has to be determined again.
    may_have_moved: bool,
}

impl ClusterRoutes {
    /// A manager without routes.
    #[must_use]
    pub(crate) fn new(settings: ClusterRoutesSettings) -> Self {
        Self {
            settings,
            routes: BTreeMap::new(),
            by_node: BTreeMap::new(),
            gateways: BTreeMap::new(),
            parent_address: None,
            parent_device: None,
            placed: BTreeMap::new(),
            changed: BTreeSet::new(),
            may_have_moved: true,
        }
    }

    /// Adds or changes a route.
    pub(super) fn update(&mut self, route: &Route) {
        if IpVersion::of(&route.dst) != self.settings.version {
            return;
        }
        self.remove(&route.dst);
        if !self.is_local_block(route) && !self.is_remote(route) {
            return;
        }
        if let Some(node) = &route.dst_node_name {
            self.by_node.entry(node.clone()).or_default().insert(route.dst);
        }
        self.routes.insert(route.dst, route.clone());
        self.changed.insert(route.dst);
    }

    /// Removes a route.
    pub(super) fn remove(&mut self, destination: &IpNet) {
        let Some(old) = self.routes.remove(destination) else { return };
        if let Some(node) = &old.dst_node_name
            && let Some(destinations) = self.by_node.get_mut(node)
        {
            destinations.remove(destination);
            if destinations.is_empty() {
                self.by_node.remove(node);
            }
        }
        self.changed.insert(*destination);
    }

    /// Sets the gateway of a node's tunnel.
    pub(super) fn set_gateway(&mut self, node: &NodeName, gateway: Option<IpAddr>) {
        let old = match gateway {
            Some(gateway) => self.gateways.insert(node.clone(), gateway),
            None => self.gateways.remove(node),
        };
        if old != gateway {
            self.changed.extend(self.by_node.get(node).into_iter().flatten());
        }
    }

    /// Sets the address by which other nodes know this host.
    pub(super) fn set_parent_address(&mut self, address: Option<IpAddr>) {
        if self.settings.sends_as_host && self.parent_address != address {
            self.changed.extend(self.routes.keys());
        }
        self.parent_address = address;
        self.may_have_moved = true;
    }

    /// Finds the device that has the address.
    pub(super) fn find_parent(&mut self, interfaces: &Interfaces) {
        let found = self.parent_address.and_then(|address| interfaces.with_address(&address));
        // While an address is missing, its previous device is as good a guess as none.
        if let Some(found) = found.map(|interface| interface.name.clone())
            && self.parent_device.as_ref() != Some(&found)
        {
            tracing::info!(device = %found, pools = ?self.settings.pool_type, "found the device towards other nodes");
            self.parent_device = Some(found);
            self.changed.extend(self.routes.keys());
        }
    }

    fn is_remote(&self, route: &Route) -> bool {
        route.ip_pool_type == self.settings.pool_type
            && (route.types.contains(RouteTypes::REMOTE_WORKLOAD)
                || (route.types.contains(RouteTypes::REMOTE_TUNNEL) && route.borrowed))
    }

    /// Whether this is a block of ours. A single address is not: it may be that of a workload that is being created.
    fn is_local_block(&self, route: &Route) -> bool {
        route.ip_pool_type == self.settings.pool_type
            && route.types.contains(RouteTypes::LOCAL_WORKLOAD)
            && !route.local_workload
            && route.dst.prefix_len() < route.dst.max_prefix_len()
    }

    /// The class, device and target of a route, if it can be programmed yet.
    fn place(&self, route: &Route) -> Option<(RouteClass, Device, Target)> {
        use RouteClass as Class;
        let (direct, tunnel, blackhole) = match self.settings.pool_type {
            IpPoolType::Vxlan => (Class::VxlanSameSubnet, Class::VxlanTunnel, Class::BlackholeVxlan),
            IpPoolType::Ipip => (Class::IpipSameSubnet, Class::IpipTunnel, Class::BlackholeIpip),
            IpPoolType::NoEncap | IpPoolType::None => {
                (Class::NoEncap, Class::NoEncap, Class::BlackholeNoEncap)
            }
        };
        let ours = Some(self.settings.protocol);
        if self.is_local_block(route) {
            return Some((blackhole, None, Target { protocol: ours, ..Target::new(Way::Blackhole) }));
        }
        let is_direct = self.settings.pool_type == IpPoolType::NoEncap || route.same_subnet;
        if let (true, Some(parent), Some(node)) = (is_direct, &self.parent_device, route.dst_node_ip) {
            return Some((
                direct,
                Some(parent.clone()),
                Target { protocol: ours, ..Target::new(Way::Gateway(node)) },
            ));
        }
        let device = Some(self.settings.tunnel_device.clone()?);
        let mtu = self.settings.tunnel_mtu;
        let source = self.parent_address.filter(|_| self.settings.sends_as_host);
        let is_vxlan = self.settings.pool_type == IpPoolType::Vxlan;
        if is_vxlan && route.types.contains(RouteTypes::REMOTE_TUNNEL) {
            // The destination is the tunnel end itself.
            return Some((tunnel, device, Target { mtu, source, ..Target::new(Way::Direct) }));
        }
        let gateway = *self.gateways.get(route.dst_node_name.as_ref()?)?;
        let protocol = if is_vxlan { None } else { ours };
        Some((tunnel, device, Target { mtu, protocol, source, ..Target::new(Way::Gateway(gateway)) }))
    }

    /// Follows changes of nodes' addresses, if the tunnel leads to these or there is no tunnel.
    fn hear_node(&mut self, node: &NodeName, address: Option<IpAddr>) {
        match self.settings.pool_type {
            IpPoolType::Vxlan => return,
            IpPoolType::Ipip => self.set_gateway(node, address),
            IpPoolType::NoEncap | IpPoolType::None => {}
        }
        if *node == self.settings.host {
            self.set_parent_address(address);
        }
    }
}

impl Manager for ClusterRoutes {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        match *news {
            News::Route(_, Some(route)) => self.update(route),
            News::Route(destination, None) => self.remove(destination),
            News::Node(node, metadata) => {
                let version = self.settings.version;
                self.hear_node(node, metadata.and_then(|metadata| host_address(metadata, version)));
            }
            News::Addresses | News::Interface(_) => self.may_have_moved = true,
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if std::mem::take(&mut self.may_have_moved) {
            self.find_parent(&world.interfaces);
        }
        let Some(desired) = desired.of(self.settings.version) else { return };
        for destination in std::mem::take(&mut self.changed) {
            let new = self.routes.get(&destination).and_then(|route| self.place(route));
            let key = RouteKey::new(destination);
            let place = new.as_ref().map(|(class, device, _)| (*class, device.clone()));
            let old = match place.clone() {
                Some(place) => self.placed.insert(destination, place),
                None => self.placed.remove(&destination),
            };
            if let Some((class, device)) = old.filter(|old| Some(old) != place.as_ref()) {
                desired.routes.set(class, device, key, None);
            }
            if let Some((class, device, target)) = new {
                desired.routes.set(class, device, key, Some(target));
            }
        }
    }
}
