//! WireGuard for one IP version: which nodes are peers, what is behind each, and which destinations go by the device.
//!
//! A node is a peer when it has an address and a key that nobody else claims. What is behind a peer goes by the device;
//! what is behind other nodes, and what is here, is "thrown" back to the other tables. So encryption comes and goes node
//! by node, and packets find their way meanwhile. Each change touches what depends on it and nothing else; no IO here.

use crate::routes::{Device, RouteClass, RouteKey, RouteTable, Target, Way};
use delta::Delta;
use ipnet::IpNet;
use messages::{Route, RouteTypes, Text};
use netlink::wireguard::{Peer, PublicKey};
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// What does not change.
#[derive(Clone, Debug)]
pub struct WireguardSettings {
    /// This host.
    pub host: Text,
    /// The IP version.
    pub version: IpVersion,
    /// The device.
    pub interface: Text,
    /// The UDP port, of this host and of all others.
    pub port: u16,
    /// Whether packets of the hosts themselves are encrypted too.
    pub encrypt_hosts: bool,
    /// How often peers are sent something so that paths to them stay open, in seconds; 0 for never.
    pub keepalive: u16,
}

/// A peer as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPeer {
    /// Where it is reached.
    pub endpoint: SocketAddr,
    /// How often it is sent something, in seconds.
    pub keepalive: u16,
    /// What is behind it.
    pub allowed: BTreeSet<IpNet>,
}

impl WantedPeer {
    /// What the kernel has, in the same words; an endpoint that it lacks is one that nobody wants.
    #[must_use]
    pub fn found(peer: &Peer) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
        Self {
            endpoint: peer.endpoint.unwrap_or(nowhere),
            keepalive: peer.keepalive,
            allowed: peer.allowed.clone(),
        }
    }
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
pub struct WireguardManager {
    settings: WireguardSettings,
    nodes: BTreeMap<Text, Node>,
    claims: BTreeMap<PublicKey, BTreeSet<Text>>,
    owners: BTreeMap<IpNet, Text>,
    local: Local,
    host_address: Option<IpAddr>,
    device_address: Option<IpAddr>,
    own_key: Option<PublicKey>,
    published: Option<PublicKey>,
    is_published_new: bool,
    changed_nodes: BTreeSet<Text>,
    changed_nets: BTreeSet<IpNet>,
    /// Which routes are asked for: by the device, or thrown.
    placed: BTreeMap<IpNet, bool>,
    /// Peers as they should be and as they are.
    pub peers: Delta<PublicKey, WantedPeer>,
}

impl WireguardManager {
    /// No peers.
    #[must_use]
    pub fn new(settings: WireguardSettings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            owners: BTreeMap::new(),
            local: Local::default(),
            host_address: None,
            device_address: None,
            own_key: None,
            published: None,
            is_published_new: false,
            changed_nodes: BTreeSet::new(),
            changed_nets: BTreeSet::new(),
            placed: BTreeMap::new(),
            peers: Delta::new(),
        }
    }

    /// What does not change.
    #[must_use]
    pub fn settings(&self) -> &WireguardSettings {
        &self.settings
    }

    /// A host has this address, or none.
    pub fn set_host(&mut self, host: &Text, address: Option<IpAddr>) {
        let address =
            address.filter(|address| IpVersion::of(&IpNet::from(*address)) == self.settings.version);
        if *host == self.settings.host {
            self.host_address = address;
            return;
        }
        self.change_node(host, |node| node.address = address);
    }

    /// A node publishes this key and device address, or nothing. A key that is none counts as not published.
    pub fn set_endpoint(&mut self, host: &Text, key: Option<&str>, device_address: Option<IpAddr>) {
        let key = key.and_then(|text| match text.parse::<PublicKey>() {
            Ok(key) => Some(key),
            Err(error) => {
                tracing::error!(node = %host, %error, "a node's WireGuard key cannot be used, and nothing to it is encrypted");
                None
            }
        });
        if *host == self.settings.host {
            self.published = key;
            self.is_published_new = true;
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
                tracing::error!(nodes = ?claims, %key, "several nodes claim one WireGuard key, and nothing to them is encrypted");
            }
        }
        self.change_node(host, |node| node.key = key);
    }

    /// The kernel has this key for our own device. A node that claims it cannot be a peer: the kernel would not take it.
    pub fn set_own_key(&mut self, key: Option<PublicKey>) {
        for key in [self.own_key, key].into_iter().flatten() {
            self.changed_nodes.extend(self.claims.get(&key).into_iter().flatten().cloned());
        }
        self.own_key = key;
    }

    /// Whether the datastore said since the last question that our key is another one than this.
    pub fn take_contradiction(&mut self, key: Option<PublicKey>) -> bool {
        std::mem::take(&mut self.is_published_new) && self.published != key
    }

    /// A range of addresses is there.
    pub fn set_route(&mut self, route: &Route) {
        if IpVersion::of(&route.dst) != self.settings.version {
            return;
        }
        let is = |types: RouteTypes| route.types.0 & types.0 != 0;
        let counts = match is(RouteTypes::REMOTE_HOST) {
            // With a host's address go the packets of the tunnel itself, unless they are marked.
            true => self.settings.encrypt_hosts,
            false => is(RouteTypes::LOCAL_WORKLOAD
                | RouteTypes::REMOTE_WORKLOAD
                | RouteTypes::LOCAL_TUNNEL
                | RouteTypes::REMOTE_TUNNEL),
        };
        self.set_owner(route.dst, route.dst_node_name.as_ref().filter(|_| counts));
    }

    /// A range of addresses is nowhere.
    pub fn remove_route(&mut self, destination: &IpNet) {
        if IpVersion::of(destination) == self.settings.version {
            self.set_owner(*destination, None);
        }
    }

    fn set_owner(&mut self, net: IpNet, owner: Option<&Text>) {
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

    fn change_node(&mut self, name: &Text, change: impl FnOnce(&mut Node)) {
        change(self.nodes.entry(name.clone()).or_default());
        self.changed_nodes.insert(name.clone());
    }

    /// The address that our device should have.
    #[must_use]
    pub fn device_address(&self) -> Option<IpAddr> {
        self.device_address.or(self.host_address.filter(|_| self.settings.encrypt_hosts))
    }

    /// How many nodes are peers.
    #[must_use]
    pub fn peer_count(&self) -> usize {
        self.peers.desired_count()
    }

    fn peer_key(&self, node: &Node) -> Option<PublicKey> {
        let key = node.key.filter(|_| node.address.is_some())?;
        let is_its_own = self.claims.get(&key).is_some_and(|claims| claims.len() == 1);
        (is_its_own && self.own_key != Some(key)).then_some(key)
    }

    /// Works out what follows from the changes: peers, and routes in `table`.
    pub fn complete(&mut self, mut table: Option<&mut RouteTable>) {
        let mut gone = BTreeSet::new();
        for name in std::mem::take(&mut self.changed_nodes) {
            let Some(node) = self.nodes.get(&name) else { continue };
            let (old, new) = (node.peer, self.peer_key(node));
            if old.is_some() != new.is_some() {
                self.changed_nets.extend(node.nets.iter().copied());
            }
            if let (Some(key), Some(address)) = (new, node.address) {
                let wanted = WantedPeer {
                    endpoint: SocketAddr::new(address, self.settings.port),
                    keepalive: self.settings.keepalive,
                    allowed: node.nets.clone(),
                };
                self.peers.set_desired(key, wanted);
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
            // The key may have gone over to another node.
            let holder = self.claims.get(&key).and_then(|claims| claims.first());
            if holder.and_then(|name| self.nodes.get(name)).is_none_or(|node| node.peer != Some(key)) {
                self.peers.remove_desired(&key);
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
            let Some(table) = &mut table else { continue };
            let place = |by_device: bool| -> (Device, Way) {
                match by_device {
                    true => (Some(self.settings.interface.clone()), Way::Direct),
                    false => (None, Way::Throw),
                }
            };
            if let Some((device, _)) = old.map(place) {
                table.set_route(RouteClass::Wireguard, &device, RouteKey::new(net), None);
            }
            if let Some((device, way)) = by_device.map(place) {
                table.set_route(RouteClass::Wireguard, &device, RouteKey::new(net), Some(Target::new(way)));
            }
        }
    }

    /// Whether a destination goes by the device; none when it needs no route.
    fn placement(&self, net: &IpNet) -> Option<bool> {
        let owner = self.owners.get(net)?;
        if *owner == self.settings.host {
            return self.local.needs_route(net).then_some(false);
        }
        Some(self.nodes.get(owner).is_some_and(|node| node.peer.is_some()))
    }
}

/// What is on this host: blocks, and single addresses that matter only outside of them.
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
