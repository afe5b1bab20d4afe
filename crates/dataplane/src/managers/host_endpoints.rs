//! Host endpoints: the interface of each, and their chains in three layers.
//!
//! An endpoint applies to the interface that it names, to the interface that has one of its addresses, or with `*` to
//! all interfaces without another endpoint. If several apply to one interface, the first by name wins.

use super::workloads::tiers_use;
use super::{ChainSet, Interfaces, Manager, News, World};
use crate::desired::Desired;
use messages::{HostEndpoint, HostEndpointName, InterfaceName, PolicyId, TierInfo};
use rules::names::ANY_INTERFACE;
use rules::tree::{Chain, Table};
use rules::{HostInterfaces, TierGroups};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// All host endpoints of this host.
#[derive(Debug, Default)]
pub(crate) struct HostEndpoints {
    endpoints: BTreeMap<HostEndpointName, Arc<HostEndpoint>>,
    by_interface: BTreeMap<InterfaceName, HostEndpointName>,
    chains: ChainSet,
    changed: bool,
    started: bool,
    status_changed: BTreeSet<HostEndpointName>,
}

/// The endpoint of each interface; [`ANY_INTERFACE`] stands for all others.
#[must_use]
pub(super) fn resolve<'a>(
    endpoints: &BTreeMap<HostEndpointName, Arc<HostEndpoint>>,
    interfaces: impl Iterator<Item = (&'a InterfaceName, &'a BTreeSet<IpAddr>)>,
) -> BTreeMap<InterfaceName, HostEndpointName> {
    let mut found = BTreeMap::new();
    for (interface, addresses) in interfaces {
        let fits = |endpoint: &HostEndpoint| match endpoint.name.as_str() {
            "*" => false,
            "" => endpoint
                .expected_ipv4_addrs
                .iter()
                .chain(&endpoint.expected_ipv6_addrs)
                .any(|address| addresses.contains(address)),
            name => *name == **interface,
        };
        // The endpoints are in the order of their names, so the first match wins.
        if let Some((id, _)) = endpoints.iter().find(|(_, endpoint)| fits(endpoint)) {
            found.insert(interface.clone(), id.clone());
        }
    }
    if let Some((id, _)) = endpoints.iter().find(|(_, endpoint)| endpoint.name == "*") {
        found.insert(ANY_INTERFACE.into(), id.clone());
    }
    found
}

impl HostEndpoints {
    fn update(&mut self, id: &HostEndpointName, endpoint: Option<&Arc<HostEndpoint>>) {
        match endpoint {
            Some(endpoint) => _ = self.endpoints.insert(id.clone(), Arc::clone(endpoint)),
            None => _ = self.endpoints.remove(id),
        }
        self.status_changed.insert(id.clone());
        self.changed = true;
    }

    /// Records policies whose grouping changed.
    fn regroup(&mut self, policies: &BTreeSet<PolicyId>) {
        let uses = |endpoint: &HostEndpoint| all_tiers(endpoint).any(|tiers| tiers_use(tiers, policies));
        self.changed |= !policies.is_empty() && self.endpoints.values().any(|endpoint| uses(endpoint));
    }

    /// The endpoint of each interface; [`ANY_INTERFACE`] stands for all others.
    pub(crate) fn by_interface(&self) -> &BTreeMap<InterfaceName, HostEndpointName> {
        &self.by_interface
    }

    /// The interfaces with an endpoint of their own.
    #[must_use]
    pub(crate) fn interfaces(&self) -> BTreeSet<InterfaceName> {
        self.by_interface.keys().filter(|name| &***name != ANY_INTERFACE).cloned().collect()
    }

    /// Determines the endpoints of interfaces, and writes their chains. Returns whether the assignment changed.
    fn resolve(&mut self, world: &mut World, desired: &mut Desired) -> bool {
        let hosts = world.interfaces.all().filter(|interface| !world.is_workload(&interface.name));
        let new = resolve(&self.endpoints, hosts.map(|interface| (&interface.name, &interface.addresses)));
        for name in self.by_interface.keys().chain(new.keys()) {
            let (old, new) = (self.by_interface.get(name), new.get(name));
            if old != new {
                tracing::info!(interface = %name, ?old, ?new, "the interface already has another host endpoint");
                self.status_changed.extend(old.into_iter().chain(new).cloned());
            }
        }
        let mut chains: Vec<(Table, Chain)> = Vec::new();
        for (interface, id) in &new {
            let Some(endpoint) = self.endpoints.get(id) else { continue };
            write_endpoint((interface, id, endpoint), world, desired, &mut chains);
        }
        for interface in self.by_interface.keys().filter(|interface| !new.contains_key(*interface)) {
            world.groups.set(interface, [], &world.renderer, desired);
            world.marks.release(interface);
        }
        let with = |wanted: &dyn Fn(&HostEndpoint) -> bool| {
            let named: BTreeSet<InterfaceName> = new
                .iter()
                .filter(|(_, id)| self.endpoints.get(*id).is_some_and(|endpoint| wanted(endpoint)))
                .map(|(interface, _)| interface.clone())
                .collect();
            HostInterfaces {
                any: named.contains(ANY_INTERFACE),
                names: named.into_iter().filter(|name| &**name != ANY_INTERFACE).collect(),
            }
        };
        let all = with(&|_| true);
        let before_nat = with(&|endpoint| !endpoint.pre_dnat_tiers.is_empty());
        let untracked = with(&|endpoint| !endpoint.untracked_tiers.is_empty());
        let renderer = &world.renderer;
        let layer = |layer: Table| move |chain: Chain| (layer, chain);
        chains.extend(renderer.filter_host_dispatch(&all).into_iter().map(layer(Table::Filter)));
        chains.extend(renderer.mangle_host_dispatch(&before_nat, &all).into_iter().map(layer(Table::Mangle)));
        chains.extend(renderer.raw_host_dispatch(&untracked.names).into_iter().map(layer(Table::Raw)));
        self.chains.publish(desired, chains);
        let is_new = self.by_interface != new;
        self.by_interface = new;
        is_new
    }

    /// Marks the endpoints that match this test, so that their status is reported again.
    pub(crate) fn mark_status(&mut self, changed: impl Fn(&HostEndpoint, &[&InterfaceName]) -> bool) {
        let ids: Vec<HostEndpointName> = self
            .endpoints
            .iter()
            .filter(|(id, endpoint)| changed(endpoint, &self.interfaces_of(id)))
            .map(|(id, _)| id.clone())
            .collect();
        self.status_changed.extend(ids);
    }

    fn interfaces_of(&self, id: &HostEndpointName) -> Vec<&InterfaceName> {
        self.by_interface.iter().filter(|(_, one)| *one == id).map(|(name, _)| name).collect()
    }

    /// The endpoints whose status may have changed since the last call; `None` for removed ones.
    pub(crate) fn take_statuses(
        &mut self,
        interfaces: &Interfaces,
        is_refused: impl Fn(&HostEndpoint, &[&InterfaceName]) -> bool,
    ) -> Vec<(HostEndpointName, Option<&'static str>)> {
        let changed = std::mem::take(&mut self.status_changed);
        changed
            .into_iter()
            .map(|id| {
                let status = self.endpoints.get(&id).map(|endpoint| {
                    let names = self.interfaces_of(&id);
                    let is_up = |name: &&InterfaceName| &***name == ANY_INTERFACE || interfaces.is_up(name);
                    match names.is_empty() || is_refused(endpoint, &names) {
                        true => "error",
                        false if names.iter().all(is_up) => "up",
                        false => "down",
                    }
                });
                (id, status)
            })
            .collect()
    }
}

/// Writes the chains of an endpoint on an interface.
fn write_endpoint(
    (interface, id, endpoint): (&InterfaceName, &HostEndpointName, &HostEndpoint),
    world: &mut World,
    desired: &mut Desired,
    chains: &mut Vec<(Table, Chain)>,
) {
    let selector = |id: &PolicyId| world.selector(id);
    let normal = TierGroups::of(&endpoint.tiers, selector);
    let forward = TierGroups::of(&endpoint.forward_tiers, selector);
    let before_nat = TierGroups::of_inbound(&endpoint.pre_dnat_tiers, selector);
    let untracked = TierGroups::of(&endpoint.untracked_tiers, selector);
    let renderer = &world.renderer;
    let filter = renderer.host_endpoint_filter_chains(interface, &normal, &forward, &endpoint.profile_ids);
    chains.extend(filter.into_iter().map(|chain| (Table::Filter, chain)));
    let egress = renderer.host_endpoint_mangle_egress_chain(interface, &normal, &endpoint.profile_ids);
    chains.push((Table::Mangle, egress));
    if !before_nat.is_empty() {
        chains.push((Table::Mangle, renderer.host_endpoint_mangle_ingress_chain(interface, &before_nat)));
    }
    if !untracked.is_empty() {
        if &**interface == ANY_INTERFACE {
            tracing::warn!(endpoint = %id, "policy without connection tracking needs an interface; leaving it out");
        } else {
            let raw = renderer.host_endpoint_raw_chains(interface, &untracked);
            chains.extend(raw.into_iter().map(|chain| (Table::Raw, chain)));
        }
    }
    if renderer.config().ipvs_support {
        chains.push((Table::Filter, renderer.set_endpoint_mark_chain(interface, world.marks.get(interface))));
    }
    let all = normal.iter().chain(&forward).chain(&before_nat).chain(&untracked);
    world.groups.set(interface, all, renderer, desired);
}

impl Manager for HostEndpoints {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        match *news {
            News::Host(id, endpoint) => self.update(id, endpoint),
            News::Addresses => self.changed = true,
            News::Interface(name) => {
                if let Some(id) = self.by_interface.get(name) {
                    self.status_changed.insert(id.clone());
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        self.regroup(&world.changed.selectors);
        let is_first = !std::mem::replace(&mut self.started, true);
        if std::mem::take(&mut self.changed) || is_first {
            world.changed.hosts |= self.resolve(world, desired);
            world.hosts = self.interfaces();
        }
    }
}

/// All tiers of an endpoint, of all kinds.
pub(crate) fn all_tiers(endpoint: &HostEndpoint) -> impl Iterator<Item = &[TierInfo]> {
    [&endpoint.tiers, &endpoint.forward_tiers, &endpoint.pre_dnat_tiers, &endpoint.untracked_tiers]
        .into_iter()
        .map(Vec::as_slice)
}
