//! Where addresses are, for the programs: what the calculation says about ranges, this host's workloads and its own addresses.
//! A round looks at the interfaces of this host; of the cluster only at what changed. Pure.

use super::Owners;
use bpf_driver::routes::Routes;
use ipnet::IpNet;
use messages::{InterfaceName, ToDataplane, WorkloadEndpointId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Who is where.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) routes: Routes,
    nets: BTreeMap<WorkloadEndpointId, Vec<IpNet>>,
    /// Interfaces of workloads that routes know.
    told: BTreeSet<InterfaceName>,
}

impl Places {
    /// Nobody yet.
    pub(super) fn new(is_encrypted: bool) -> Self {
        Self { routes: Routes::new(is_encrypted), nets: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Takes a message; the addresses of a workload that is gone.
    pub(super) fn hear(&mut self, message: &ToDataplane) -> Vec<IpAddr> {
        match message {
            ToDataplane::RouteUpdate(route) => self.routes.set(route.clone()),
            ToDataplane::RouteRemove(net) => self.routes.remove(net),
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                let nets = endpoint.ipv4_nets.iter().chain(&endpoint.ipv6_nets);
                self.nets.insert(id.clone(), nets.copied().collect());
            }
            ToDataplane::WorkloadEndpointRemove(id) => {
                return self.nets.remove(id).iter().flatten().map(IpNet::addr).collect();
            }
            _ => {}
        }
        Vec::new()
    }

    /// Interfaces, and whose they are, may have changed.
    pub(super) fn follow(&mut self, owners: &Owners<'_>) {
        for (interface, id) in owners.workloads {
            let index = owners.interfaces.index(interface).unwrap_or_default();
            let nets = self.nets.get(id).map(Vec::as_slice).unwrap_or_default();
            self.routes.set_workload(interface, index, nets);
            if !self.told.contains(interface) {
                self.told.insert(interface.clone());
            }
        }
        let routes = &mut self.routes;
        self.told.retain(|interface| {
            let stays = owners.workloads.contains_key(interface);
            if !stays {
                routes.set_workload(interface, 0, &[]);
            }
            stays
        });
        let hosts = owners.interfaces.all().filter(|one| !(owners.is_workload)(&one.name));
        self.routes.set_host(hosts.flat_map(|one| &one.addresses).copied().collect());
    }
}
