//! Neighbours and forwarding entries of a VXLAN device.
//!
//! For each peer: its tunnel address has its tunnel device's hardware address (neighbour), and packets for that hardware
//! address go to the peer's host (forwarding entry). Lasting entries of the device that are not wanted are removed;
//! whatever the kernel learnt by itself stays.

use super::Outcome;
use delta::{Delta, Operation as Pending};
use messages::Text;
use netlink::{Errno, Family, Kernel, MacAddress, Neighbour, NeighbourState, Operation};
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
    device: Text,
    index: Option<u32>,
    neighbours: Delta<IpAddr, MacAddress>,
    forwarding: Delta<MacAddress, IpAddr>,
    in_sync: bool,
}

impl TunnelNeighbours {
    /// A device without peers.
    #[must_use]
    pub fn new(family: Family, device: Text) -> Self {
        Self {
            family,
            device,
            index: None,
            neighbours: Delta::new(),
            forwarding: Delta::new(),
            in_sync: false,
        }
    }

    /// Sets or, with `None`, removes a peer; `old` is what it was.
    pub fn set_peer(&mut self, old: Option<&TunnelPeer>, new: Option<&TunnelPeer>) {
        if let Some(old) = old {
            self.neighbours.remove_desired(&old.tunnel_address);
            self.forwarding.remove_desired(&old.mac);
        }
        if let Some(new) = new {
            self.neighbours.set_desired(new.tunnel_address, new.mac);
            self.forwarding.set_desired(new.mac, new.host_address);
        }
    }

    /// The device is there and up, or not.
    pub fn device_is(&mut self, name: &str, index: Option<u32>) {
        if *name == *self.device && self.index != index {
            self.index = index;
            self.in_sync = false;
        }
    }

    /// Says that somebody else may have changed the entries.
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

fn apply<K: Ord + Copy, V: Eq + Copy>(
    kernel: &mut dyn Kernel,
    entries: &mut Delta<K, V>,
    outcome: &mut Outcome,
    entry: impl Fn(&K, &V) -> Neighbour,
) {
    let (mut keys, mut operations) = (Vec::new(), Vec::new());
    // Removals last: a hardware address may have moved to another peer.
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
            // The device went away or down; its event says when to try again.
            Err(error) if matches!(error.errno(), Some(Errno::NODEV | Errno::NETDOWN)) => {}
            Err(error) => outcome.failures.push(error.to_string()),
        }
    }
}
