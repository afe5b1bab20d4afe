//! Neighbours and forwarding entries of a VXLAN device.
//!
//! For each peer: a neighbour entry maps its tunnel address to the hardware address of its tunnel device, and a
//! forwarding entry sends packets for that hardware address to the peer's host. Permanent entries of the device that
//! are not desired are removed; entries that the kernel learnt by itself stay.

use super::Outcome;
use delta::{Delta, Operation as Pending};
use messages::{InterfaceName, NodeName};
use netlink::{Errno, Family, Kernel, MacAddress, Neighbour, NeighbourState, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The tunnel end of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelPeer {
    /// The address of its tunnel device.
    pub tunnel_address: IpAddr,
    /// The hardware address of its tunnel device.
    pub mac: MacAddress,
    /// The host's own address.
    pub host_address: IpAddr,
}

/// The entries of one device.
#[derive(Debug)]
pub struct TunnelNeighbours {
    family: Family,
    device: InterfaceName,
    index: Option<u32>,
    peers: BTreeMap<NodeName, TunnelPeer>,
    /// The nodes that claim an address: for a while it may be more than one.
    by_address: BTreeMap<IpAddr, BTreeSet<NodeName>>,
    by_mac: BTreeMap<MacAddress, BTreeSet<NodeName>>,
    neighbours: Delta<IpAddr, MacAddress>,
    forwarding: Delta<MacAddress, IpAddr>,
    in_sync: bool,
}

impl TunnelNeighbours {
    /// A device without peers.
    #[must_use]
    pub fn new(family: Family, device: InterfaceName) -> Self {
        Self {
            family,
            device,
            index: None,
            peers: BTreeMap::new(),
            by_address: BTreeMap::new(),
            by_mac: BTreeMap::new(),
            neighbours: Delta::new(),
            forwarding: Delta::new(),
            in_sync: false,
        }
    }

    /// Sets or, with `None`, removes the tunnel end of a node. The desired state depends on what all nodes have now,
    /// not on the order of the calls: an address may move from one node to another. If two nodes have the same address,
    /// the node whose name sorts first wins.
    pub fn set_peer(&mut self, node: &NodeName, new: Option<TunnelPeer>) {
        let old = match new {
            Some(new) => self.peers.insert(node.clone(), new),
            None => self.peers.remove(node),
        };
        if let Some(old) = old {
            disclaim(&mut self.by_address, &old.tunnel_address, node);
            disclaim(&mut self.by_mac, &old.mac, node);
        }
        if let Some(new) = new {
            self.by_address.entry(new.tunnel_address).or_default().insert(node.clone());
            self.by_mac.entry(new.mac).or_default().insert(node.clone());
        }
        for one in [old, new].into_iter().flatten() {
            match self.owner(self.by_address.get(&one.tunnel_address)).map(|peer| peer.mac) {
                Some(mac) => self.neighbours.set_desired(one.tunnel_address, mac),
                None => _ = self.neighbours.remove_desired(&one.tunnel_address),
            }
            match self.owner(self.by_mac.get(&one.mac)).map(|peer| peer.host_address) {
                Some(host) => self.forwarding.set_desired(one.mac, host),
                None => _ = self.forwarding.remove_desired(&one.mac),
            }
        }
    }

    fn owner(&self, nodes: Option<&BTreeSet<NodeName>>) -> Option<&TunnelPeer> {
        self.peers.get(nodes?.first()?)
    }

    /// Notes whether the device exists and is up.
    pub fn device_is(&mut self, name: &str, index: Option<u32>) {
        if *name == *self.device && self.index != index {
            self.index = index;
            self.in_sync = false;
        }
    }

    /// Marks all entries as possibly changed by other programs.
    pub fn invalidate(&mut self) {
        self.in_sync = false;
    }

    /// Brings the kernel to the desired state; nothing is done while the device is not up.
    pub fn apply(&mut self, kernel: &mut dyn Kernel) -> Outcome {
        let Some(index) = self.index else { return Outcome::default() };
        if !self.in_sync {
            let lasting = |found: &Neighbour| found.state == NeighbourState::Permanent;
            let neighbours = match kernel.neighbours(self.family, Some(index)) {
                Ok(found) => found,
                Err(error) => return Outcome::failed(&error),
            };
            let forwarding = match kernel.forwarding(index) {
                Ok(found) => found,
                Err(error) => return Outcome::failed(&error),
            };
            let neighbours = neighbours.into_iter().filter(lasting);
            self.neighbours.replace_actual(neighbours.filter_map(|found| Some((found.address?, found.mac?))));
            let forwarding = forwarding.into_iter().filter(lasting);
            self.forwarding.replace_actual(forwarding.filter_map(|found| Some((found.mac?, found.address?))));
            self.in_sync = true;
        }
        let mut outcome = Outcome::default();
        apply(kernel, &mut self.neighbours, &mut outcome, |address, mac| {
            Neighbour::permanent(index, *address, *mac)
        });
        apply(kernel, &mut self.forwarding, &mut outcome, |mac, address| {
            Neighbour::forwarding(index, *mac, *address)
        });
        self.in_sync = outcome.is_done();
        outcome
    }
}

fn disclaim<K: Ord>(claims: &mut BTreeMap<K, BTreeSet<NodeName>>, key: &K, node: &NodeName) {
    if let Some(nodes) = claims.get_mut(key) {
        nodes.remove(node);
        if nodes.is_empty() {
            claims.remove(key);
        }
    }
}

fn apply<K: Ord + Copy, V: Eq + Copy>(
    kernel: &mut dyn Kernel,
    entries: &mut Delta<K, V>,
    outcome: &mut Outcome,
    entry: impl Fn(&K, &V) -> Neighbour,
) {
    let (mut keys, mut operations) = (Vec::new(), Vec::new());
    // Removals come last: a hardware address may have moved to another peer.
    for pending in entries.pending() {
        if let Pending::Create(key, value) | Pending::Replace(key, value, _) = pending {
            keys.push(*key);
            operations.push(Operation::ReplaceNeighbour(entry(key, value)));
        }
    }
    for pending in entries.pending() {
        if let Pending::Remove(key, value) = pending {
            keys.push(*key);
            operations.push(Operation::DeleteNeighbour(entry(key, value)));
        }
    }
    for ((key, operation), result) in keys.iter().zip(&operations).zip(kernel.apply(&operations)) {
        match result {
            Ok(()) => entries.accept(key),
            Err(error) if error.is_missing() && matches!(operation, Operation::DeleteNeighbour(_)) => {
                entries.accept(key);
            }
            // The device was removed or went down; its event triggers the next attempt.
            Err(error) if matches!(error.errno(), Some(Errno::NODEV | Errno::NETDOWN)) => {}
            Err(error) => outcome.failures.push(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TunnelNeighbours, TunnelPeer};
    use messages::NodeName;
    use netlink::{Family, MacAddress};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    /// A node, and its address, hardware address and host, if it has an end.
    type Step = (u8, Option<(u8, u8, u8)>);

    /// Sets the ends of nodes in turn; returns the final desired state.
    fn desired(steps: &[Step]) -> (BTreeMap<IpAddr, MacAddress>, BTreeMap<MacAddress, IpAddr>) {
        let mut all = TunnelNeighbours::new(Family::V4, "vxlan.calico".into());
        for (node, end) in steps {
            let end = end.map(|(address, mac, host)| TunnelPeer {
                tunnel_address: [10, 244, address, 1].into(),
                mac: MacAddress([0x66, 0, 0, 0, 0, mac]),
                host_address: [10, 65, 0, host].into(),
            });
            all.set_peer(&NodeName::from(format!("n{node}")), end);
        }
        (
            all.neighbours.all_desired().map(|(address, mac)| (*address, *mac)).collect(),
            all.forwarding.all_desired().map(|(mac, host)| (*mac, *host)).collect(),
        )
    }

    #[test]
    fn an_address_that_moves_to_another_node_stays() {
        let before = [(2, Some((2, 2, 2))), (3, Some((3, 3, 3)))];
        let (n2, n3) = ((2, Some((3, 2, 2))), (3, Some((4, 3, 3))));
        let expected = desired(&[(2, Some((3, 2, 2))), (3, Some((4, 3, 3)))]);
        assert_eq!(expected.0.len(), 2);
        for order in [[n2, n3], [n3, n2]] {
            assert_eq!(desired(&[before, order].concat()), expected);
        }
        // The node that had it is removed, before or after the other node takes it.
        let gone = (3, None);
        for order in [[n2, gone], [gone, n2]] {
            assert_eq!(desired(&[before, order].concat()), desired(&[n2]));
        }
    }

    proptest! {
        #[test]
        fn only_the_current_ends_of_nodes_count(
            steps in prop::collection::vec((0..4_u8, prop::option::of((0..4_u8, 0..4_u8, 0..3_u8))), 0..20)
        ) {
            let last: BTreeMap<u8, Option<(u8, u8, u8)>> = steps.iter().copied().collect();
            let last: Vec<_> = last.into_iter().rev().collect();
            prop_assert_eq!(desired(&steps), desired(&last));
        }
    }
}
