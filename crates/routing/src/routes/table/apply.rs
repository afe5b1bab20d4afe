//! Brings the kernel to the desired routes: read, remove, create, and interpret refusals.

use super::{DOUBT, GRACE, RouteTable, key_of, normalised, single_address};
use crate::routes::connections::ConnectionCleanup;
use crate::routes::{Outcome, RouteKey};
use delta::Operation as Pending;
use netlink::{Errno, Error, Family, Kernel, Neighbour, Operation, Route, RouteFilter};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

impl RouteTable {
    /// Reads the table, or the parts that may have changed. Returns the addresses whose routes are gone.
    fn read(&mut self, kernel: &mut dyn Kernel) -> Result<(), Error> {
        let all = RouteFilter { table: Some(self.settings.table), ..RouteFilter::all(self.settings.family) };
        if self.read_all {
            let found: BTreeMap<RouteKey, Route> = kernel
                .routes(&all)?
                .into_iter()
                .map(normalised)
                .filter(|route| self.is_ours(route))
                .map(|route| (key_of(&route), route))
                .collect();
            self.routes.replace_actual(found);
            self.read_all = false;
            self.read_devices.clear();
            self.dirty_neighbours = self.neighbours.keys().cloned().collect();
            return Ok(());
        }
        for name in self.read_devices.clone() {
            let Some((index, _)) = self.devices.get(&name).copied() else { continue };
            let found = kernel.routes(&RouteFilter { device: Some(index), ..all })?;
            let mut seen = BTreeSet::new();
            for route in found.into_iter().map(normalised) {
                if !self.is_ours(&route) {
                    continue;
                }
                let key = key_of(&route);
                seen.insert(key);
                self.routes.set_actual(key, route);
            }
            // Unwanted routes, too: the plugin may have created a route that was removed with the device.
            let unwanted = self.routes.pending().filter_map(|pending| match pending {
                Pending::Remove(key, route) if route.device == Some(index) => Some(*key),
                _ => None,
            });
            let known: BTreeSet<RouteKey> = unwanted.chain(self.wanted_of(&name)).collect();
            for key in known.into_iter().filter(|key| !seen.contains(key)) {
                if self.routes.actual(&key).is_some_and(|route| route.device == Some(index)) {
                    self.routes.remove_actual(&key);
                }
            }
            if self.neighbours.contains_key(&name) {
                self.dirty_neighbours.insert(name.clone());
            }
            self.read_devices.remove(&name);
        }
        Ok(())
    }

    /// How long routes by this device are still left alone.
    fn grace_left(&self, index: Option<u32>, now: Instant) -> Option<Duration> {
        let index = index?;
        let grace = self.grace.get(&index).filter(|grace| !grace.over)?;
        let name = self.names.get(&index)?;
        if !self.settings.ownership.is_workload(name) {
            return None;
        }
        GRACE.checked_sub(now.saturating_duration_since(grace.first_seen)).filter(|left| !left.is_zero())
    }

    /// Brings the kernel to the desired state.
    pub fn apply(
        &mut self,
        kernel: &mut dyn Kernel,
        connections: &mut dyn ConnectionCleanup,
        now: Instant,
    ) -> Outcome {
        if let Err(error) = self.read(kernel) {
            self.read_all = true;
            return Outcome::failed(&error);
        }
        self.trust_again();
        let mut outcome = Outcome::default();
        self.remove(kernel, connections, now, &mut outcome);
        self.make(kernel, connections, &mut outcome);
        self.make_neighbours(kernel, &mut outcome);
        if !outcome.is_done() {
            self.read_all = true;
        }
        if !self.doubted.is_empty() {
            outcome.again_in = outcome.again_in.into_iter().chain([DOUBT]).min();
        }
        outcome
    }

    /// Removes undesired routes, and those that have to be gone before connections are removed.
    fn remove(
        &mut self,
        kernel: &mut dyn Kernel,
        connections: &mut dyn ConnectionCleanup,
        now: Instant,
        outcome: &mut Outcome,
    ) {
        let mut operations = Vec::new();
        let mut removed = Vec::new();
        for pending in self.routes.pending() {
            match pending {
                Pending::Remove(key, route) => {
                    if let Some(left) = self.grace_left(route.device, now) {
                        outcome.again_in = outcome.again_in.into_iter().chain([left]).min();
                        continue;
                    }
                    removed.push((*key, route.device.unwrap_or(0)));
                    operations.push(Operation::DeleteRoute(route.clone()));
                }
                Pending::Replace(key, _, route) if self.moves(*key, route.device.unwrap_or(0)) => {
                    removed.push((*key, route.device.unwrap_or(0)));
                    operations.push(Operation::DeleteRoute(route.clone()));
                }
                Pending::Replace(..) | Pending::Create(..) => {}
            }
        }
        let (mut forget, mut stay) = (BTreeSet::new(), BTreeSet::new());
        for ((key, index), result) in removed.into_iter().zip(kernel.apply(&operations)) {
            match result {
                Err(error) if !error.is_missing() => {
                    outcome.failures.push(error.to_string());
                    stay.extend(single_address(key));
                }
                Ok(()) | Err(_) => {
                    self.routes.remove_actual(&key);
                    forget.extend(single_address(key).filter(|address| self.is_moved(address, index)));
                }
            }
        }
        // Addresses whose route was removed with its device are gone, too. An address whose old route still exists
        // keeps its owner: connections that begin in the meantime are the old owner's, and have to be removed as well.
        let mut settled = Vec::new();
        for pending in self.address_owners.pending() {
            let (address, is_gone) = match pending {
                Pending::Remove(address, _) => (*address, true),
                Pending::Replace(address, (index, class), (old, old_class)) => {
                    (*address, index != old && !(class.is_remote() && old_class.is_remote()))
                }
                Pending::Create(address, _) => (*address, false),
            };
            if !stay.contains(&address) {
                settled.push(address);
                forget.extend(is_gone.then_some(address));
            }
        }
        connections.start(forget);
        settled.iter().for_each(|address| self.address_owners.accept(address));
    }

    /// Whether an address's route has to be removed before it is created again: it moves to another device, and not
    /// merely from one way to a remote node to another.
    fn moves(&self, key: RouteKey, old_index: u32) -> bool {
        let Some(address) = single_address(key) else { return false };
        let Some((index, class)) = self.address_owners.desired(&address) else { return true };
        let known = self.address_owners.actual(&address);
        if *index == old_index || known.is_some_and(|(known, _)| known == index) {
            return false;
        }
        !(class.is_remote() && known.is_some_and(|(_, known)| known.is_remote()))
    }

    /// Whether the connections of an address whose route was removed from a device belong to a former owner.
    fn is_moved(&self, address: &IpAddr, from: u32) -> bool {
        match self.address_owners.desired(address) {
            None => true,
            Some((index, _)) => {
                *index != from && self.address_owners.actual(address).is_none_or(|(known, _)| known != index)
            }
        }
    }

    fn make(
        &mut self,
        kernel: &mut dyn Kernel,
        connections: &mut dyn ConnectionCleanup,
        outcome: &mut Outcome,
    ) {
        let (mut keys, mut operations) = (Vec::new(), Vec::new());
        for pending in self.routes.pending() {
            let (key, route) = match pending {
                // The old route should be gone by now; as long as it exists, its address stays where it is.
                Pending::Replace(key, _, old) if self.moves(*key, old.device.unwrap_or(0)) => continue,
                Pending::Create(key, route) | Pending::Replace(key, route, _) => (key, route),
                Pending::Remove(..) => continue,
            };
            keys.push(*key);
            operations.push(Operation::ReplaceRoute(route.clone()));
        }
        if operations.is_empty() {
            return;
        }
        connections.wait(&keys.iter().filter_map(|key| single_address(*key)).collect());
        let mut in_its_own_way = Vec::new();
        for (key, result) in keys.into_iter().zip(kernel.apply(&operations)) {
            match result {
                Ok(()) => self.routes.accept(&key),
                Err(error) if self.is_in_its_own_way(key, &error) => in_its_own_way.push(key),
                Err(error) => self.refused(key, &error, outcome),
            }
        }
        self.make_anew(kernel, in_its_own_way, outcome);
    }

    /// IPv6 accepts a gateway only if no route leads to it by another device, and the old route to a block covers the
    /// tunnel address that is to be the new route's gateway: a block whose node moves behind a tunnel.
    fn is_in_its_own_way(&self, key: RouteKey, error: &Error) -> bool {
        let (Some(old), Some(new)) = (self.routes.actual(&key), self.routes.desired(&key)) else {
            return false;
        };
        self.settings.family == Family::V6
            && error.errno() == Some(Errno::INVAL)
            && (old.kind != new.kind || old.device != new.device)
            && new.gateway.is_some_and(|gateway| key.destination.contains(&gateway))
    }

    /// Removes routes and creates them again, where the kernel cannot replace them.
    fn make_anew(&mut self, kernel: &mut dyn Kernel, keys: Vec<RouteKey>, outcome: &mut Outcome) {
        for key in keys {
            let (Some(old), Some(new)) = (self.routes.actual(&key), self.routes.desired(&key)) else {
                continue;
            };
            let operations = [Operation::DeleteRoute(old.clone()), Operation::ReplaceRoute(new.clone())];
            let mut results = kernel.apply(&operations).into_iter();
            if results
                .next()
                .is_some_and(|removed| removed.is_ok() || removed.is_err_and(|error| error.is_missing()))
            {
                self.routes.remove_actual(&key);
            }
            match results.next() {
                Some(Ok(())) => self.routes.accept(&key),
                Some(Err(error)) => self.refused(key, &error, outcome),
                None => {}
            }
        }
    }

    /// A device may go down or disappear at any time. Its events trigger the next attempt; if they are lost, a timer
    /// does.
    fn refused(&mut self, key: RouteKey, error: &Error, outcome: &mut Outcome) {
        let device = self.routes.desired(&key).and_then(|route| route.device);
        let gone = matches!(error.errno(), Some(Errno::NODEV | Errno::NETDOWN | Errno::NXIO));
        match device.and_then(|index| self.names.get(&index)).filter(|_| gone) {
            Some(name) => {
                tracing::debug!(%error, device = %name, "a device disappeared under its route");
                let name = name.clone();
                if let Some((_, up)) = self.devices.get_mut(&name) {
                    *up = false;
                }
                self.choose_all_of(&name);
                self.doubted.insert(name);
            }
            None => outcome.failures.push(error.to_string()),
        }
    }

    fn make_neighbours(&mut self, kernel: &mut dyn Kernel, outcome: &mut Outcome) {
        let (mut places, mut operations) = (Vec::new(), Vec::new());
        for name in &self.dirty_neighbours {
            let Some((index, true)) = self.devices.get(name).copied() else { continue };
            for (address, mac) in self.neighbours.get(name).into_iter().flatten() {
                places.push(name.clone());
                operations.push(Operation::ReplaceNeighbour(Neighbour::permanent(index, *address, *mac)));
            }
        }
        let mut failed = BTreeSet::new();
        for (name, result) in places.iter().zip(kernel.apply(&operations)) {
            if let Err(error) = result {
                failed.insert(name.clone());
                if !matches!(error.errno(), Some(Errno::NODEV | Errno::NETDOWN)) {
                    outcome.failures.push(error.to_string());
                }
            }
        }
        self.dirty_neighbours.retain(|name| failed.contains(name) || !places.contains(name));
    }
}
