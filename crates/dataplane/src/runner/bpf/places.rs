//! Where addresses are, for the programs: the calculation's ranges, this host's workloads and its own addresses; and
//! the networks besides their own that workloads may send from. A round examines all interfaces of this host; of the
//! cluster only what changed. Pure.

use super::Owners;
use bpf_driver::routes::{Elements, Place, Routes, sources};
use felix_config::Config;
use ipnet::IpNet;
use messages::{InterfaceName, ToDataplane, WorkloadEndpointId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The locations of addresses.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) routes: Routes,
    nets: BTreeMap<WorkloadEndpointId, Vec<IpNet>>,
    /// Foreign networks that workloads may send from; few workloads have any.
    lent: BTreeMap<WorkloadEndpointId, Vec<IpNet>>,
    /// Workloads whose interfaces limit packets.
    limited: BTreeSet<WorkloadEndpointId>,
    /// Workload interfaces that have been added to the routes.
    told: BTreeSet<InterfaceName>,
}

impl Places {
    /// No locations yet.
    pub(super) fn new(config: &Config) -> Self {
        let mut routes = Routes::new(config.wireguard_enabled);
        routes.set_answers_back(config.bpf_dsr_optout_cidrs.iter().copied());
        Self {
            routes,
            nets: BTreeMap::new(),
            lent: BTreeMap::new(),
            limited: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }

    /// Processes a message; returns the addresses of a removed workload.
    pub(super) fn hear(&mut self, message: &ToDataplane) -> Vec<IpAddr> {
        match message {
            ToDataplane::RouteUpdate(route) => self.routes.set(route.clone()),
            ToDataplane::RouteRemove(net) => self.routes.remove(net),
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                let nets = endpoint.ipv4_nets.iter().chain(&endpoint.ipv6_nets);
                self.nets.insert(id.clone(), nets.copied().collect());
                match endpoint.qos_controls.is_some() {
                    true => _ = self.limited.insert(id.clone()),
                    false => _ = self.limited.remove(id),
                }
                match endpoint.allow_spoofed_source_prefixes.as_slice() {
                    [] => _ = self.lent.remove(id),
                    lent => _ = self.lent.insert(id.clone(), lent.to_vec()),
                }
            }
            ToDataplane::WorkloadEndpointRemove(id) => {
                self.lent.remove(id);
                self.limited.remove(id);
                return self.nets.remove(id).iter().flatten().map(IpNet::addr).collect();
            }
            _ => {}
        }
        Vec::new()
    }

    /// The networks besides their own addresses that workloads may send from, once they have an interface.
    pub(super) fn sources(&self, owners: &Owners<'_>) -> Elements {
        if self.lent.is_empty() {
            return Elements::default();
        }
        let lent = owners.workloads.iter().filter_map(|(interface, id)| {
            let index = owners.interfaces.index(interface)?;
            Some(self.lent.get(id)?.iter().map(move |net| (index, net)))
        });
        sources(lent.flatten())
    }

    /// Follows changes of interfaces and their owners.
    pub(super) fn follow(&mut self, owners: &Owners<'_>) {
        for (interface, id) in owners.workloads {
            let index = owners.interfaces.index(interface).unwrap_or_default();
            let nets = self.nets.get(id).map(Vec::as_slice).unwrap_or_default();
            let place = Place { index, is_limited: self.limited.contains(id) };
            self.routes.set_workload(interface, place, nets);
            if !self.told.contains(interface) {
                self.told.insert(interface.clone());
            }
        }
        let routes = &mut self.routes;
        self.told.retain(|interface| {
            let stays = owners.workloads.contains_key(interface);
            if !stays {
                routes.set_workload(interface, Place::default(), &[]);
            }
            stays
        });
        let hosts = owners.interfaces.all().filter(|one| !(owners.is_workload)(&one.name));
        self.routes.set_host(hosts.flat_map(|one| &one.addresses).copied().collect());
    }
}
