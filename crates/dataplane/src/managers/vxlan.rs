//! VXLAN for one IP version: the hosts that may send us tunnel packets, the tunnel device, and the networks behind it.

use super::{ClusterRoutes, ClusterRoutesSettings, CountedSet, Interfaces, Manager, News, World};
use crate::desired::{Desired, VersionDesired};
use ipnet::IpNet;
use messages::{InterfaceName, IpPoolType, IpSetMember, IpSetType, NodeName, VxlanTunnelEndpoint};
use netlink::{MacAddress, Vxlan};
use routing::routes::TunnelPeer;
use routing::routes::device::{TunnelDevice, TunnelKind};
use rules::names::sets;
use rules::tree::IpVersion;
use rules::{VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// The fixed settings.
#[derive(Clone, Debug)]
pub(crate) struct VxlanSettings {
    /// This host.
    pub(crate) host: NodeName,
    /// The network identifier.
    pub(crate) vni: u32,
    /// The UDP port.
    pub(crate) port: u16,
    /// The largest packet in the tunnel.
    pub(crate) mtu: u32,
    /// The protocol number of routes that do not use the tunnel device.
    pub(crate) protocol: u8,
    /// Whether the device has no address, so that the host sends from the address that other nodes know it by.
    pub(crate) sends_as_host: bool,
    /// Hosts outside the cluster that may send us tunnel packets.
    pub(crate) external: Vec<IpNet>,
}

/// A tunnel end in one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    address: IpAddr,
    mac: MacAddress,
    host: IpAddr,
}

/// VXLAN of one IP version.
#[derive(Debug)]
pub(crate) struct VxlanManager {
    settings: VxlanSettings,
    version: IpVersion,
    device: InterfaceName,
    peers: BTreeMap<NodeName, End>,
    own: Option<End>,
    sources: CountedSet,
    routes: ClusterRoutes,
    /// Whether the desired device may have changed.
    device_changed: bool,
}

impl VxlanManager {
    /// A manager without peers; defines the set of hosts.
    pub(crate) fn new(settings: VxlanSettings, desired: &mut VersionDesired) -> Self {
        let version = desired.version;
        let device = InterfaceName::from(vxlan_device(version));
        let sources = CountedSet::new(sets::ALL_VXLAN, IpSetType::Net, &settings.external, desired);
        let routes = ClusterRoutes::new(ClusterRoutesSettings {
            host: settings.host.clone(),
            version,
            pool_type: IpPoolType::Vxlan,
            tunnel_device: Some(device.clone()),
            tunnel_mtu: Some(settings.mtu),
            protocol: settings.protocol,
            sends_as_host: settings.sends_as_host,
        });
        Self {
            settings,
            version,
            device,
            peers: BTreeMap::new(),
            own: None,
            sources,
            routes,
            device_changed: true,
        }
    }

    fn end(&self, node: &str, endpoint: &VxlanTunnelEndpoint) -> Option<End> {
        let (address, mac, host): (Option<IpAddr>, &str, Option<IpAddr>) = match self.version {
            IpVersion::V4 => {
                (endpoint.ipv4.map(Into::into), &endpoint.mac, endpoint.parent_device_ipv4.map(Into::into))
            }
            IpVersion::V6 => {
                (endpoint.ipv6.map(Into::into), &endpoint.mac_v6, endpoint.parent_device_ipv6.map(Into::into))
            }
        };
        let (address, host) = (address?, host?);
        match mac.parse() {
            Ok(mac) => Some(End { address, mac, host }),
            Err(error) => {
                tracing::error!(node, %error, "a node's tunnel end cannot be used");
                None
            }
        }
    }

    fn update(
        &mut self,
        node: &NodeName,
        endpoint: Option<&VxlanTunnelEndpoint>,
        desired: &mut VersionDesired,
    ) {
        let new = endpoint.and_then(|endpoint| self.end(node, endpoint));
        if *node == self.settings.host {
            self.own = new;
            self.routes.set_parent_address(new.map(|end| end.host));
            self.device_changed = true;
            return;
        }
        let old = match new {
            Some(new) => self.peers.insert(node.clone(), new),
            None => self.peers.remove(node),
        };
        if old == new {
            return;
        }
        let peer =
            |end: End| TunnelPeer { tunnel_address: end.address, mac: end.mac, host_address: end.host };
        desired.tunnel_peers.set(node.clone(), new.map(peer));
        let member = |end: Option<End>| -> Vec<IpSetMember> {
            end.into_iter().map(|end| IpSetMember::Net(IpNet::from(end.host))).collect()
        };
        self.sources.exchange(&member(old), &member(new), desired);
        self.routes.set_gateway(node, new.map(|end| end.address));
    }

    /// The desired tunnel device; `None` while it is not known.
    pub(super) fn wanted_device(&self, interfaces: &Interfaces) -> Option<TunnelDevice> {
        let own = self.own?;
        let parent = interfaces.with_address(&own.host)?;
        let vxlan = Vxlan {
            vni: self.settings.vni,
            parent: interfaces.index(&parent.name),
            local: Some(own.host),
            port: self.settings.port,
            learning: false,
            ..Vxlan::default()
        };
        Some(TunnelDevice {
            name: self.device.to_string(),
            kind: TunnelKind::Vxlan(vxlan, own.mac),
            address: (!self.settings.sends_as_host).then_some(own.address),
            mtu: Some(self.settings.mtu),
        })
    }
}

/// The VXLAN device of an IP version.
#[must_use]
pub(crate) fn vxlan_device(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => VXLAN_INTERFACE,
        IpVersion::V6 => VXLAN_INTERFACE_V6,
    }
}

impl Manager for VxlanManager {
    fn hear(&mut self, news: &News<'_>, now: Instant, desired: &mut Desired) {
        match *news {
            News::Vtep(node, endpoint) => {
                if let Some(desired) = desired.of(self.version) {
                    self.update(node, endpoint, desired);
                }
            }
            News::Addresses => self.device_changed = true,
            _ => {}
        }
        self.routes.hear(news, now, desired);
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if std::mem::take(&mut self.device_changed) {
            desired.devices.set(self.device.clone(), self.wanted_device(&world.interfaces));
        }
        self.routes.write(world, desired);
    }
}
