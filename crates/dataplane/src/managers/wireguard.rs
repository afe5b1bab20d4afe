//! WireGuard for one IP version: which nodes are peers, the networks behind each, and the destinations that use the
//! device.
//!
//! A node is a peer when it has an address and a key that no other node claims. Networks behind a peer use the device;
//! networks behind other nodes, and those on this host, are "thrown" back to the other tables. So encryption is
//! switched on and off node by node, and packets find their way in the meantime. Each change touches only what depends
//! on it; no IO here.

use super::{Manager, News, World, host_address};
use crate::desired::{Desired, VersionDesired};
use ipnet::IpNet;
use messages::{InterfaceName, NodeName, Route, RouteTypes};
use netlink::wireguard::PublicKey;
use routing::routes::{Device, RouteClass, RouteKey, Target, Way};
use routing::wireguard::WantedPeer;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// The fixed settings.
#[derive(Clone, Debug)]
pub(crate) struct WireguardSettings {
    /// This host.
    pub(crate) host: NodeName,
    /// The IP version.
    pub(crate) version: IpVersion,
    /// The device.
    pub(crate) interface: InterfaceName,
    /// The UDP port, of this host and of all others.
    pub(crate) port: u16,
    /// Whether packets of the hosts themselves are encrypted too.
    pub(crate) encrypt_hosts: bool,
    /// The interval of keepalive packets to peers in seconds, which keep paths open; 0 for never.
    pub(crate) keepalive: u16,
}

#[derive(Debug, Default)]
struct Node {
    address: Option<IpAddr>,
    key: Option<PublicKey>,
    nets: BTreeSet<IpNet>,
    /// The key under which it is a peer, if it is one.
    peer: Option<PublicKey>,
}

/// WireGuard of one IP version.
#[derive(Debug)]
pub(crate) struct WireguardManager {
    settings: WireguardSettings,
    nodes: BTreeMap<NodeName, Node>,
    claims: BTreeMap<PublicKey, BTreeSet<NodeName>>,
    owners: BTreeMap<IpNet, NodeName>,
    local: Local,
    host_address: Option<IpAddr>,
    device_address: Option<IpAddr>,
    written_address: Option<Option<IpAddr>>,
    own_key: Option<PublicKey>,
    /// Our key as the datastore has it, if received since the last time.
    published: Option<Option<PublicKey>>,
    changed_nodes: BTreeSet<NodeName>,
    changed_nets: BTreeSet<IpNet>,
    /// The wanted routes: `true` for the device, `false` for thrown.
    placed: BTreeMap<IpNet, bool>,
}

impl WireguardManager {
    /// A manager without peers.
    #[must_use]
    pub(crate) fn new(settings: WireguardSettings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            owners: BTreeMap::new(),
            local: Local::default(),
            host_address: None,
            device_address: None,
            written_address: None,
            own_key: None,
            published: None,
            changed_nodes: BTreeSet::new(),
            changed_nets: BTreeSet::new(),
            placed: BTreeMap::new(),
        }
    }

    /// Sets or removes the address of a host.
    fn set_host(&mut self, host: &NodeName, address: Option<IpAddr>) {
        let address =
            address.filter(|address| IpVersion::of(&IpNet::from(*address)) == self.settings.version);
        if *host == self.settings.host {
            self.host_address = address;
            return;
        }
        self.change_node(host, |node| node.address = address);
    }

    /// Sets the published key and device address of a node. An invalid key counts as not published.
    fn set_endpoint(&mut self, host: &NodeName, key: Option<&str>, device_address: Option<IpAddr>) {
        let key = key.and_then(|text| match text.parse::<PublicKey>() {
            Ok(key) => Some(key),
            Err(error) => {
                tracing::error!(node = %host, %error, "a node's WireGuard key cannot be used; traffic to it is not encrypted");
                None
            }
        });
        if *host == self.settings.host {
            self.published = Some(key);
            self.device_address = device_address;
            return;
        }
        let old = self.nodes.get(host).and_then(|node| node.key);
        if old == key {
            return;
        }
        if let Some(old) = old
            && let Some(claims) = self.claims.get_mut(&old)
        {
            claims.remove(host);
            self.changed_nodes.extend(claims.iter().cloned());
            if claims.is_empty() {
                self.claims.remove(&old);
            }
        }
        if let Some(key) = key {
            let claims = self.claims.entry(key).or_default();
            self.changed_nodes.extend(claims.iter().cloned());
            claims.insert(host.clone());
            if claims.len() > 1 {
                tracing::error!(nodes = ?claims, %key, "several nodes claim one WireGuard key; traffic to them is not encrypted");
            }
        }
        self.change_node(host, |node| node.key = key);
    }

    /// Sets the kernel's key of our own device. A node that claims it cannot be a peer: the kernel would not accept it.
    fn set_own_key(&mut self, key: Option<PublicKey>) {
        for key in [self.own_key, key].into_iter().flatten() {
            self.changed_nodes.extend(self.claims.get(&key).into_iter().flatten().cloned());
        }
        self.own_key = key;
    }

    /// Adds or changes a range of addresses.
    fn set_route(&mut self, route: &Route) {
        if IpVersion::of(&route.dst) != self.settings.version {
            return;
        }
        let is = |types: RouteTypes| route.types.0 & types.0 != 0;
        let counts = match is(RouteTypes::REMOTE_HOST) {
            // A route to a host's address would also carry the tunnel's own packets, were they not marked.
            true => self.settings.encrypt_hosts,
            false => is(RouteTypes::LOCAL_WORKLOAD
                | RouteTypes::REMOTE_WORKLOAD
                | RouteTypes::LOCAL_TUNNEL
                | RouteTypes::REMOTE_TUNNEL),
        };
        self.set_owner(route.dst, route.dst_node_name.as_ref().filter(|_| counts));
    }

    /// Removes a range of addresses.
    fn remove_route(&mut self, destination: &IpNet) {
        if IpVersion::of(destination) == self.settings.version {
            self.set_owner(*destination, None);
        }
    }

    fn set_owner(&mut self, net: IpNet, owner: Option<&NodeName>) {
        if self.owners.get(&net) == owner {
            return;
        }
        let old = match owner {
            Some(owner) => self.owners.insert(net, owner.clone()),
            None => self.owners.remove(&net),
        };
        for (owner, has) in [(old.as_ref(), false), (owner, true)] {
            match owner {
                Some(owner) if *owner == self.settings.host => {
                    self.local.set(net, has, &mut self.changed_nets);
                }
                Some(owner) => self.change_node(&owner.clone(), |node| match has {
                    true => _ = node.nets.insert(net),
                    false => _ = node.nets.remove(&net),
                }),
                None => {}
            }
        }
        self.changed_nets.insert(net);
    }

    fn change_node(&mut self, name: &NodeName, change: impl FnOnce(&mut Node)) {
        change(self.nodes.entry(name.clone()).or_default());
        self.changed_nodes.insert(name.clone());
    }

    /// The address that our device should have.
    fn device_address(&self) -> Option<IpAddr> {
        self.device_address.or(self.host_address.filter(|_| self.settings.encrypt_hosts))
    }

    fn peer_key(&self, node: &Node) -> Option<PublicKey> {
        let key = node.key.filter(|_| node.address.is_some())?;
        let is_its_own = self.claims.get(&key).is_some_and(|claims| claims.len() == 1);
        (is_its_own && self.own_key != Some(key)).then_some(key)
    }

    /// Computes the consequences of the changes: address, peers, and routes in the device's table.
    fn complete(&mut self, desired: &mut VersionDesired) {
        let wanted = &mut desired.wireguard;
        let address = self.device_address();
        if self.written_address.replace(address) != Some(address) {
            wanted.address = Some(address);
        }
        if let Some(published) = self.published.take() {
            wanted.published = Some(published);
        }
        let mut gone = BTreeSet::new();
        for name in std::mem::take(&mut self.changed_nodes) {
            let Some(node) = self.nodes.get(&name) else { continue };
            let (old, new) = (node.peer, self.peer_key(node));
            if old.is_some() != new.is_some() {
                self.changed_nets.extend(node.nets.iter().copied());
            }
            if let (Some(key), Some(address)) = (new, node.address) {
                let peer = WantedPeer {
                    endpoint: SocketAddr::new(address, self.settings.port),
                    keepalive: self.settings.keepalive,
                    allowed: node.nets.clone(),
                };
                wanted.peers.set(key, Some(peer));
            }
            gone.extend(old.filter(|old| Some(*old) != new));
            let is_unknown = node.address.is_none() && node.key.is_none() && node.nets.is_empty();
            if is_unknown {
                self.nodes.remove(&name);
            } else if let Some(node) = self.nodes.get_mut(&name) {
                node.peer = new;
            }
        }
        for key in gone {
            // The key may have moved to another node.
            let holder = self.claims.get(&key).and_then(|claims| claims.first());
            if holder.and_then(|name| self.nodes.get(name)).is_none_or(|node| node.peer != Some(key)) {
                wanted.peers.set(key, None);
            }
        }
        for net in std::mem::take(&mut self.changed_nets) {
            let by_device = self.placement(&net);
            let old = match by_device {
                Some(by_device) => self.placed.insert(net, by_device),
                None => self.placed.remove(&net),
            };
            if old == by_device {
                continue;
            }
            let place = |by_device: bool| -> (Device, Way) {
                match by_device {
                    true => (Some(self.settings.interface.clone()), Way::Direct),
                    false => (None, Way::Throw),
                }
            };
            if let Some((device, _)) = old.map(place) {
                wanted.routes.set(RouteClass::Wireguard, device, RouteKey::new(net), None);
            }
            if let Some((device, way)) = by_device.map(place) {
                wanted.routes.set(RouteClass::Wireguard, device, RouteKey::new(net), Some(Target::new(way)));
            }
        }
    }

    /// Whether a destination uses the device; `None` when it needs no route.
    fn placement(&self, net: &IpNet) -> Option<bool> {
        let owner = self.owners.get(net)?;
        if *owner == self.settings.host {
            return self.local.needs_route(net).then_some(false);
        }
        Some(self.nodes.get(owner).is_some_and(|node| node.peer.is_some()))
    }
}

impl Manager for WireguardManager {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        match *news {
            News::Route(_, Some(route)) => self.set_route(route),
            News::Route(destination, None) => self.remove_route(destination),
            News::Node(node, metadata) => {
                let version = self.settings.version;
                self.set_host(node, metadata.and_then(|metadata| host_address(metadata, version)));
            }
            News::Wireguard(version, node, endpoint) if version == self.settings.version => {
                self.set_endpoint(node, endpoint.map(|one| one.0), endpoint.and_then(|one| one.1));
            }
            News::OwnKey(version, key) if version == self.settings.version => self.set_own_key(key),
            _ => {}
        }
    }

    fn write(&mut self, _: &mut World, desired: &mut Desired) {
        if let Some(desired) = desired.of(self.settings.version) {
            self.complete(desired);
        }
    }
}

/// The networks on this host: blocks, and single addresses that matter only outside of them.
#[derive(Debug, Default)]
struct Local {
    blocks: BTreeSet<IpNet>,
    addresses: BTreeSet<IpNet>,
}

impl Local {
    fn set(&mut self, net: IpNet, has: bool, changed: &mut BTreeSet<IpNet>) {
        let is_address = net.prefix_len() == net.max_prefix_len();
        let place = if is_address { &mut self.addresses } else { &mut self.blocks };
        match has {
            true => place.insert(net),
            false => place.remove(&net),
        };
        if !is_address {
            changed.extend(self.addresses.iter().filter(|address| net.contains(*address)).copied());
        }
    }

    fn needs_route(&self, net: &IpNet) -> bool {
        self.blocks.contains(net)
            || (self.addresses.contains(net) && !self.blocks.iter().any(|block| block.contains(net)))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod together;
