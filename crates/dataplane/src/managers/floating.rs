//! Floating addresses: a workload is reached by addresses that it does not have itself.

use super::{Manager, News, World};
use crate::desired::Desired;
use api::words::OPENSTACK;
use messages::{WorkloadEndpoint, WorkloadEndpointId};
use rules::tree::Table;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// The floating addresses of all workloads.
#[derive(Debug)]
pub(crate) struct FloatingAddresses {
    enabled: bool,
    by_endpoint: BTreeMap<WorkloadEndpointId, Vec<(IpAddr, IpAddr)>>,
    changed: bool,
}

impl FloatingAddresses {
    /// A manager without addresses. OpenStack's addresses are used even when it is not `enabled`.
    #[must_use]
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, by_endpoint: BTreeMap::new(), changed: true }
    }

    fn update(&mut self, id: &WorkloadEndpointId, endpoint: Option<&WorkloadEndpoint>) {
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
}

impl Manager for FloatingAddresses {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        if let News::Workload(id, endpoint) = *news {
            self.update(id, endpoint.map(|endpoint| &**endpoint));
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let mut by_external: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
        for (external, internal) in self.by_endpoint.values().flatten() {
            // Addresses should not be shared; if one is, the first workload address by text gets it, as in Calico.
            let best = by_external.entry(*external).or_insert(*internal);
            if internal.to_string() < best.to_string() {
                *best = *internal;
            }
        }
        for one in &mut desired.versions {
            let chains = world.renderer.floating_address_chains(&by_external, one.version);
            one.rules.define_all(Table::Nat, chains);
        }
    }
}
