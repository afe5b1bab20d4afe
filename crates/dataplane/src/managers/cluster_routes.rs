//! Routes to the workloads of other nodes, for the pools of one kind of encapsulation and one IP version.
//!
//! A block of a node of the same subnet is reached by that node's address, another by the tunnel; blocks of our own that no
//! workload has addresses in are dropped. Each change touches the routes that depend on it and no others.

use super::{Interfaces, Plane};
use crate::routes::{Device, RouteClass, RouteKey, Target, Way};
use ipnet::IpNet;
use messages::{IpPoolType, Route, RouteTypes, Text};
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What does not change.
#[derive(Clone, Debug)]
pub struct ClusterRoutesSettings {
    /// The IP version.
    pub version: IpVersion,
    /// The pools.
    pub pool_type: IpPoolType,
    /// The tunnel device; none without encapsulation.
    pub tunnel_device: Option<Text>,
    /// The largest packet by the tunnel.
    pub tunnel_mtu: Option<u32>,
    /// The protocol number of routes that are not by the tunnel device of VXLAN.
    pub protocol: u8,
}

/// The routes.
#[derive(Debug)]
pub struct ClusterRoutes {
    settings: ClusterRoutesSettings,
    routes: BTreeMap<IpNet, Route>,
    by_node: BTreeMap<Text, BTreeSet<IpNet>>,
    /// Where the tunnel to each node leads: its tunnel device's address, or with IP in IP its own.
    gateways: BTreeMap<Text, IpAddr>,
    parent_address: Option<IpAddr>,
    parent_device: Option<Text>,
    placed: BTreeMap<IpNet, (RouteClass, Device)>,
    changed: BTreeSet<IpNet>,
}

impl ClusterRoutes {
    /// No routes.
    #[must_use]
    pub fn new(settings: ClusterRoutesSettings) -> Self {
        Self {
            settings,
            routes: BTreeMap::new(),
            by_node: BTreeMap::new(),
            gateways: BTreeMap::new(),
            parent_address: None,
            parent_device: None,
            placed: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// A route is new or changed.
    pub fn update(&mut self, route: &Route) {
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

    /// A route is gone.
    pub fn remove(&mut self, destination: &IpNet) {
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

    /// Says where the tunnel to a node leads.
    pub fn set_gateway(&mut self, node: &Text, gateway: Option<IpAddr>) {
        let old = match gateway {
            Some(gateway) => self.gateways.insert(node.clone(), gateway),
            None => self.gateways.remove(node),
        };
        if old != gateway {
            self.changed.extend(self.by_node.get(node).into_iter().flatten());
        }
    }

    /// Says which address of this host other nodes know it by.
    pub fn set_parent_address(&mut self, address: Option<IpAddr>) {
        self.parent_address = address;
    }

    /// That address.
    #[must_use]
    pub fn parent_address(&self) -> Option<IpAddr> {
        self.parent_address
    }

    /// Finds the device that has the address.
    pub fn find_parent(&mut self, interfaces: &Interfaces) {
        let found = self.parent_address.and_then(|address| interfaces.with_address(&address));
        // While an address is away, its old device is as good a guess as none.
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

    /// A block of ours, and not a single address: that may be a workload's that is just being made.
    fn is_local_block(&self, route: &Route) -> bool {
        route.ip_pool_type == self.settings.pool_type
            && route.types.contains(RouteTypes::LOCAL_WORKLOAD)
            && !route.local_workload
            && route.dst.prefix_len() < route.dst.max_prefix_len()
    }

    /// Where a route belongs, if it can be made yet.
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
        let is_vxlan = self.settings.pool_type == IpPoolType::Vxlan;
        if is_vxlan && route.types.contains(RouteTypes::REMOTE_TUNNEL) {
            // It is the tunnel end itself.
            return Some((tunnel, device, Target { mtu, ..Target::new(Way::Direct) }));
        }
        let gateway = *self.gateways.get(route.dst_node_name.as_ref()?)?;
        let protocol = if is_vxlan { None } else { ours };
        Some((tunnel, device, Target { mtu, protocol, ..Target::new(Way::Gateway(gateway)) }))
    }

    /// Writes what changed to the drivers.
    pub fn complete(&mut self, interfaces: &Interfaces, plane: &mut Plane) {
        self.find_parent(interfaces);
        let Some(table) = &mut plane.routes else {
            self.changed.clear();
            return;
        };
        for destination in std::mem::take(&mut self.changed) {
            let new = self.routes.get(&destination).and_then(|route| self.place(route));
            let key = RouteKey::new(destination);
            let place = new.as_ref().map(|(class, device, _)| (*class, device.clone()));
            let old = match place.clone() {
                Some(place) => self.placed.insert(destination, place),
                None => self.placed.remove(&destination),
            };
            if let Some((class, device)) = old.filter(|old| Some(old) != place.as_ref()) {
                table.set_route(class, &device, key, None);
            }
            if let Some((class, device, target)) = new {
                table.set_route(class, &device, key, Some(target));
            }
        }
    }
}
