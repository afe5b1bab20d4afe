//! Routes step by step: only what changed since the maps were last written is computed and written again.

use super::{Facts, Known, Place, key, route, value, version};
use crate::error::Error;
use crate::plan::Plan;
use crate::store::Store;
use ipnet::IpNet;
use messages::{InterfaceName, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const MAPS: [&str; 2] = ["cali_v4_routes", "cali_v6_routes"];

/// The desired contents of the maps of routes, and their actual contents if known.
#[derive(Debug, Default)]
pub struct Routes {
    facts: Facts,
    /// The holders of a range by interface. While there are two, the last one counts.
    holders: BTreeMap<IpNet, BTreeMap<InterfaceName, Place>>,
    /// The ranges of an interface.
    held: BTreeMap<InterfaceName, (Place, Vec<IpNet>)>,
    /// Ranges with changes.
    changed: BTreeSet<IpNet>,
    /// The contents of the maps; `None` before they were read.
    there: Option<[BTreeMap<IpNet, Known>; 2]>,
}

impl Routes {
    /// Starts empty. `is_encrypted`: packets to other nodes' workloads are encrypted.
    #[must_use]
    pub fn new(is_encrypted: bool) -> Self {
        Self { facts: Facts { is_encrypted, ..Facts::default() }, ..Self::default() }
    }

    /// Sets the clients that get answers only by the path of their requests (`BPFDSROptoutCIDRs`).
    pub fn set_answers_back(&mut self, nets: impl IntoIterator<Item = IpNet>) {
        let nets: BTreeSet<IpNet> = nets.into_iter().map(|net| net.trunc()).collect();
        self.changed.extend(self.facts.answers_back.symmetric_difference(&nets));
        self.facts.answers_back = nets;
    }

    /// The current input.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Sets a route of the calculation.
    pub fn set(&mut self, route: Route) {
        self.changed.insert(route.dst);
        self.facts.routes.insert(route.dst, route);
    }

    /// Removes a route of the calculation.
    pub fn remove(&mut self, net: &IpNet) {
        self.changed.insert(*net);
        self.facts.routes.remove(net);
    }

    /// Sets the addresses of an interface's workload; an interface without any is removed.
    pub fn set_workload(&mut self, interface: &InterfaceName, place: Place, nets: &[IpNet]) {
        if self.held.get(interface).is_some_and(|(old, held)| *old == place && held == nets) {
            return;
        }
        for net in self.held.remove(interface).into_iter().flat_map(|(_, nets)| nets) {
            self.hold(net, interface, None);
        }
        for net in nets {
            self.hold(*net, interface, Some(place));
        }
        if !nets.is_empty() {
            self.held.insert(interface.clone(), (place, nets.to_vec()));
        }
    }

    fn hold(&mut self, net: IpNet, interface: &InterfaceName, place: Option<Place>) {
        let holders = self.holders.entry(net).or_default();
        match place {
            Some(place) => _ = holders.insert(interface.clone(), place),
            None => _ = holders.remove(interface),
        }
        match holders.last_key_value() {
            Some((_, place)) => _ = self.facts.workloads.insert(net, *place),
            None => {
                self.holders.remove(&net);
                self.facts.workloads.remove(&net);
            }
        }
        self.changed.insert(net);
    }

    /// Sets the addresses of this host.
    pub fn set_host(&mut self, addresses: BTreeSet<IpAddr>) {
        self.changed.extend(self.facts.host.symmetric_difference(&addresses).copied().map(IpNet::from));
        self.facts.host = addresses;
    }

    /// Makes the next write read the maps, as others may have changed them.
    pub fn invalidate(&mut self) {
        self.there = None;
    }

    /// Updates the maps; returns how many ranges were computed.
    ///
    /// # Errors
    /// When they do not fit, or the kernel refuses; then everything is read with the next attempt.
    pub fn write(&mut self, store: &mut impl Store) -> Result<usize, Error> {
        let Some(mut there) = self.there.take() else { return self.write_all(store) };
        let mut plans = [Plan::default(), Plan::default()];
        let mut changes = Vec::new();
        for net in &self.changed {
            let new = route(&self.facts, net);
            if there[version(net)].get(net) != new.as_ref() {
                let plan = &mut plans[version(net)];
                match new {
                    Some(known) => plan.writes.push((key(net), value(net, known))),
                    None => plan.removals.push(key(net)),
                }
                changes.push((*net, new));
            }
        }
        for (version, plan) in plans.iter().enumerate() {
            let is_new = |(net, new): &&(IpNet, Option<Known>)| {
                super::version(net) == version && new.is_some() && !there[version].contains_key(net)
            };
            let added = changes.iter().filter(is_new).count();
            bring(store, MAPS[version], plan, there[version].len() + added)?;
        }
        for (net, new) in changes {
            match new {
                Some(known) => _ = there[version(&net)].insert(net, known),
                None => _ = there[version(&net)].remove(&net),
            }
        }
        self.there = Some(there);
        let steps = self.changed.len();
        self.changed.clear();
        Ok(steps)
    }

    /// Updates the maps when their contents are not known.
    fn write_all(&mut self, store: &mut impl Store) -> Result<usize, Error> {
        let mut wanted = [BTreeMap::new(), BTreeMap::new()];
        let nets = self.facts.nets();
        for net in &nets {
            if let Some(known) = route(&self.facts, net) {
                wanted[version(net)].insert(*net, known);
            }
        }
        for (map, wanted) in MAPS.into_iter().zip(&wanted) {
            if store.room(map).is_some() {
                let found = store.read(map)?;
                let elements = wanted.iter().map(|(net, known)| (key(net), value(net, *known)));
                let plan = Plan::between(found, elements);
                // The desired elements, and the present ones that are not desired.
                bring(store, map, &plan, wanted.len() + plan.removals.len())?;
            }
        }
        self.there = Some(wanted);
        self.changed.clear();
        Ok(nets.len())
    }
}

/// Executes a plan. `both` is the number of elements in the map if nothing is removed before writing.
fn bring(store: &mut impl Store, map: &'static str, plan: &Plan, both: usize) -> Result<(), Error> {
    let Some(room) = store.room(map) else { return Ok(()) };
    let wanted = both - plan.removals.len();
    if wanted > room {
        return Err(Error::TooMany { map, wanted, room });
    }
    // Removals come first if both together would not fit: a missing route denies.
    let is_tight = both > room;
    if is_tight && !plan.removals.is_empty() {
        store.remove(map, &plan.removals)?;
    }
    if !plan.writes.is_empty() {
        store.write(map, &plan.writes)?;
    }
    if !is_tight && !plan.removals.is_empty() {
        store.remove(map, &plan.removals)?;
    }
    Ok(())
}
