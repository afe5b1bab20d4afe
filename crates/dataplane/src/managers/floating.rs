//! Floating addresses: others reach a workload by an address that it does not know itself.

use super::Plane;
use messages::{WorkloadEndpoint, WorkloadEndpointId};
use rules::Renderer;
use rules::tree::Table;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The orchestrator whose floating addresses are always programmed.
const OPENSTACK: &str = "openstack";

/// The floating addresses of all workloads.
#[derive(Debug)]
pub struct FloatingAddresses {
    enabled: bool,
    by_endpoint: BTreeMap<WorkloadEndpointId, Vec<(IpAddr, IpAddr)>>,
    changed: bool,
}

impl FloatingAddresses {
    /// No addresses. Those of OpenStack count even when it is not `enabled`.
    #[must_use]
    pub fn new(enabled: bool) -> Self {
        Self { enabled, by_endpoint: BTreeMap::new(), changed: true }
    }

    /// An endpoint is new, changed, or gone.
    pub fn update(&mut self, id: &WorkloadEndpointId, endpoint: Option<&WorkloadEndpoint>) {
        let counts = self.enabled || &*id.orchestrator == OPENSTACK;
        let pairs: Vec<(IpAddr, IpAddr)> = endpoint
            .into_iter()
            .filter(|_| counts)
            .flat_map(|endpoint| endpoint.ipv4_nat.iter().chain(&endpoint.ipv6_nat))
            .map(|nat| (nat.external, nat.internal))
            .collect();
        let old = match pairs.is_empty() {
            true => self.by_endpoint.remove(id),
            false => self.by_endpoint.insert(id.clone(), pairs.clone()),
        };
        self.changed |= old.unwrap_or_default() != pairs;
    }

    /// Writes what changed to the drivers.
    pub fn complete(&mut self, renderer: &Renderer, planes: &mut [Plane]) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let mut by_external: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
        for (external, internal) in self.by_endpoint.values().flatten() {
            // Nobody should share an address; if it happens, the first by text has it, as with Calico.
            let best = by_external.entry(*external).or_insert(*internal);
            if internal.to_string() < best.to_string() {
                *best = *internal;
            }
        }
        for plane in planes {
            let chains = renderer.floating_address_chains(&by_external, plane.version);
            plane.update_chains(Table::Nat, chains);
        }
    }
}
