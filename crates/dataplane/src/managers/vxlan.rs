//! VXLAN for one IP version: which hosts may send us packets of the tunnel, the tunnel device, and who is behind it.

use super::{ClusterRoutes, ClusterRoutesSettings, CountedSet, Interfaces, Plane};
use crate::routes::device::{TunnelDevice, TunnelKind};
use crate::routes::{TunnelNeighbours, TunnelPeer};
use ipnet::IpNet;
use messages::{IpPoolType, IpSetMember, IpSetType, Text, VxlanTunnelEndpoint};
use netlink::{Family, MacAddress, Vxlan};
use rules::names::sets;
use rules::tree::IpVersion;
use rules::{VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What does not change.
#[derive(Clone, Debug)]
pub struct VxlanSettings {
    /// This host.
    pub host: Text,
    /// The network identifier.
    pub vni: u32,
    /// The UDP port.
    pub port: u16,
    /// The largest packet in the tunnel.
    pub mtu: u32,
    /// The protocol number of routes that are not by the tunnel device.
    pub protocol: u8,
    /// Hosts outside of the cluster that may send us packets of the tunnel.
    pub external: Vec<IpNet>,
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
pub struct VxlanManager {
    settings: VxlanSettings,
    version: IpVersion,
    device: Text,
    peers: BTreeMap<Text, End>,
    own: Option<End>,
    sources: CountedSet,
    /// Neighbours and forwarding entries.
    pub neighbours: TunnelNeighbours,
    /// Routes.
    pub routes: ClusterRoutes,
}

impl VxlanManager {
    /// No peers; the set of hosts is defined.
    pub fn new(settings: VxlanSettings, plane: &mut Plane) -> Self {
        let version = plane.version;
        let (name, family) = match version {
            IpVersion::V4 => (VXLAN_INTERFACE, Family::V4),
            IpVersion::V6 => (VXLAN_INTERFACE_V6, Family::V6),
        };
        let device = Text::from(name);
        let sources = CountedSet::new(sets::ALL_VXLAN, IpSetType::Net, &settings.external, &mut *plane.sets);
        let routes = ClusterRoutes::new(ClusterRoutesSettings {
            version,
            pool_type: IpPoolType::Vxlan,
            tunnel_device: Some(device.clone()),
            tunnel_mtu: Some(settings.mtu),
            protocol: settings.protocol,
        });
        Self {
            settings,
            version,
            neighbours: TunnelNeighbours::new(family, device.clone()),
            device,
            peers: BTreeMap::new(),
            own: None,
            sources,
            routes,
        }
    }

    /// The tunnel device.
    #[must_use]
    pub fn device(&self) -> &Text {
        &self.device
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

    /// A node's tunnel end is new, changed, or gone.
    pub fn update(&mut self, node: &Text, endpoint: Option<&VxlanTunnelEndpoint>, plane: &mut Plane) {
        let new = endpoint.and_then(|endpoint| self.end(node, endpoint));
        if *node == self.settings.host {
            self.own = new;
            self.routes.set_parent_address(new.map(|end| end.host));
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
        self.neighbours.set_peer(node, new.map(peer));
        let member = |end: Option<End>| -> Vec<IpSetMember> {
            end.into_iter().map(|end| IpSetMember::Net(IpNet::from(end.host))).collect()
        };
        self.sources.exchange(&member(old), &member(new), &mut *plane.sets);
        self.routes.set_gateway(node, new.map(|end| end.address));
    }

    /// What the tunnel device should be; none while that is not known.
    #[must_use]
    pub fn wanted_device(&self, interfaces: &Interfaces) -> Option<TunnelDevice> {
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
            address: own.address,
            mtu: Some(self.settings.mtu),
        })
    }
}
