//! The next hops in use and their resolutions. Routes refer to next hops by number, so that the many routes of a next
//! hop follow it without being touched.

use crate::host::{Host, Resolution};
use crate::route::Interface;
use bgp_wire::NextHop;
use hashbrown::HashMap;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A next hop, and its link if it is only valid there.
pub(crate) type HopKey = (NextHop, Option<Interface>);

#[derive(Debug, Default)]
pub(crate) struct Slots {
    numbers: HashMap<HopKey, u32>,
    hops: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    key: HopKey,
    /// The number of interned routes that use it.
    users: usize,
    resolution: Resolution,
}

/// The resolutions of all next hops at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolutions(Arc<Vec<Resolution>>);

impl Resolutions {
    pub(crate) fn get(&self, slot: u32) -> &Resolution {
        self.0.get(slot as usize).unwrap_or(&Resolution::Unknown)
    }
}

impl Slots {
    /// Returns the number of a next hop, with one more user.
    pub(crate) fn take(
        &mut self,
        key: HopKey,
        host: &Host,
        gateways: &BTreeMap<IpAddr, IpAddr>,
        resolutions: &mut Resolutions,
    ) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            if let Some(slot) = self.hops.get_mut(*number as usize) {
                slot.users += 1;
            }
            return *number;
        }
        let resolution = host.resolve(key.0, key.1.as_ref(), gateways);
        let slot = Slot { key: key.clone(), users: 1, resolution: resolution.clone() };
        let number = match self.free.pop() {
            Some(number) => {
                self.hops[number as usize] = slot;
                Arc::make_mut(&mut resolutions.0)[number as usize] = resolution;
                number
            }
            None => {
                self.hops.push(slot);
                Arc::make_mut(&mut resolutions.0).push(resolution);
                u32::try_from(self.hops.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.numbers.insert(key, number);
        number
    }

    /// Releases a next hop for one user.
    pub(crate) fn give_back(&mut self, number: u32) {
        let Some(slot) = self.hops.get_mut(number as usize) else { return };
        slot.users -= 1;
        if slot.users == 0 {
            self.numbers.remove(&slot.key);
            self.free.push(number);
        }
    }

    /// Resolves next hops inside this network again, or all of them. Returns the numbers of those that changed.
    pub(crate) fn look_again(
        &mut self,
        within: Option<IpNet>,
        host: &Host,
        gateways: &BTreeMap<IpAddr, IpAddr>,
        resolutions: &mut Resolutions,
    ) -> Vec<u32> {
        let mut moved = Vec::new();
        for (number, slot) in self.hops.iter_mut().enumerate() {
            let address = slot.key.0.address();
            // The next hops behind a gateway follow the gateway.
            let concerned = |net: &IpNet| {
                net.contains(&address) || gateways.get(&address).is_some_and(|via| net.contains(via))
            };
            if slot.users == 0 || !within.as_ref().is_none_or(concerned) {
                continue;
            }
            let resolution = host.resolve(slot.key.0, slot.key.1.as_ref(), gateways);
            if resolution != slot.resolution {
                slot.resolution = resolution.clone();
                Arc::make_mut(&mut resolutions.0)[number] = resolution;
                moved.extend(u32::try_from(number));
            }
        }
        moved
    }
}
