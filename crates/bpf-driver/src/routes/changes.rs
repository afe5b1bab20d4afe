//! Routes step by step: what changed since the maps were written last, and only that, is worked out and written again.

use super::{Facts, Known, Place, key, route, value, version};
use crate::error::Error;
use crate::plan::Plan;
use crate::store::Store;
use ipnet::IpNet;
use messages::{InterfaceName, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const MAPS: [&str; 2] = ["cali_v4_routes", "cali_v6_routes"];

/// What the maps of routes should hold, and what they hold as far as that is known.
#[derive(Debug, Default)]
pub struct Routes {
    facts: Facts,
    /// Who has a range, by range and interface. While two have one, the last counts.
    holders: BTreeMap<IpNet, BTreeMap<InterfaceName, Place>>,
    /// The ranges of an interface.
    held: BTreeMap<InterfaceName, (Place, Vec<IpNet>)>,
    /// Ranges of which something changed.
    changed: BTreeSet<IpNet>,
    /// What is in the maps; none before they were read.
    there: Option<[BTreeMap<IpNet, Known>; 2]>,
}

impl Routes {
    /// Nothing yet. `is_encrypted`: packets to other nodes' workloads are encrypted.
    #[must_use]
    pub fn new(is_encrypted: bool) -> Self {
        Self { facts: Facts { is_encrypted, ..Facts::default() }, ..Self::default() }
    }

    /// These clients get answers by the way of their questions only (`BPFDSROptoutCIDRs`).
    pub fn set_answers_back(&mut self, nets: impl IntoIterator<Item = IpNet>) {
        let nets: BTreeSet<IpNet> = nets.into_iter().map(|net| net.trunc()).collect();
        self.changed.extend(self.facts.answers_back.symmetric_difference(&nets));
        self.facts.answers_back = nets;
    }

    /// What everything follows from.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The calculation says something about a range.
    pub fn set(&mut self, route: Route) {
        self.changed.insert(route.dst);
        self.facts.routes.insert(route.dst, route);
    }

    /// The calculation says nothing about a range any more.
    pub fn remove(&mut self, net: &IpNet) {
        self.changed.insert(*net);
        self.facts.routes.remove(net);
    }

    /// An interface is a workload's with these addresses; without any it is nobody's.
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

    /// These are the addresses of this host.
    pub fn set_host(&mut self, addresses: BTreeSet<IpAddr>) {
        self.changed.extend(self.facts.host.symmetric_difference(&addresses).copied().map(IpNet::from));
        self.facts.host = addresses;
    }

    /// Others may have changed the maps: they are read again.
    pub fn invalidate(&mut self) {
        self.there = None;
    }

    /// Brings the maps to what is wanted; how many ranges were worked out for it.
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

    /// The same when nothing is known of the maps.
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
                // What is wanted, and what was there and is not wanted.
                bring(store, map, &plan, wanted.len() + plan.removals.len())?;
            }
        }
        self.there = Some(wanted);
        self.changed.clear();
        Ok(nets.len())
    }
}

/// Carries out a plan after which, before anything is removed, a map has so many elements.
fn bring(store: &mut impl Store, map: &'static str, plan: &Plan, both: usize) -> Result<(), Error> {
    let Some(room) = store.room(map) else { return Ok(()) };
    let wanted = both - plan.removals.len();
    if wanted > room {
        return Err(Error::TooMany { map, wanted, room });
    }
    // Removed first where both together would not fit: a missing route denies.
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
