//! Answers about services for the sweep of connections, the sweep of affinities, and load balancers.

use crate::address;
use crate::services::{Served, Services};
use bpf::layout::Family;
use bpf::layout::nat::{Affinity, AffinityKey, FrontendKey};
use bpf_conntrack::Destinations;
use std::collections::BTreeSet;

/// The answer for load balancers at a service's health port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port to listen on, on all addresses of the node.
    pub port: u16,
    /// The number of ready endpoints on this node.
    pub endpoints: usize,
}

impl HealthCheck {
    /// The status and body of the answer, as in kube-proxy; the header `X-Load-Balancing-Endpoint-Weight` has the
    /// number of endpoints.
    #[must_use]
    pub fn answer(&self, is_proxy_healthy: bool) -> (u16, String) {
        let status = if self.endpoints > 0 && is_proxy_healthy { 200 } else { 503 };
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {:?},\n\t\t\"name\": {:?}\n\t}},\n\t\"localEndpoints\": \
             {},\n\t\"serviceProxyHealthy\": {is_proxy_healthy}\n}}",
            self.namespace, self.name, self.endpoints
        );
        (status, body)
    }
}

impl<F: Family> Services<F> {
    /// The health checks to serve; the cost is proportional to the services with a health port.
    #[must_use]
    pub fn health_checks(&self) -> Vec<HealthCheck> {
        let checks = self.checked.iter().filter_map(|name| {
            let entry = self.entries.get(name)?;
            let slices = entry.slices.values().filter(|slice| !slice.ports.is_empty());
            let local: BTreeSet<F::Address> = slices
                .flat_map(|slice| &slice.endpoints)
                .filter(|endpoint| endpoint.is_ready && *endpoint.node == *self.settings.node)
                .map(|endpoint| endpoint.address)
                .collect();
            Some(HealthCheck {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
                port: entry.service.as_ref()?.health_port?,
                endpoints: local.len(),
            })
        });
        checks.collect()
    }

    /// Whether an entry of `…_nat_aff` can be removed: its service or backend is gone, or it has expired.
    #[must_use]
    pub fn is_affinity_stale(&self, key: &AffinityKey<F>, value: &Affinity<F>, now: u64) -> bool {
        if !self.has_begun {
            return false;
        }
        let zero = plain::<F>(key.address, key.port, key.protocol);
        let any = plain::<F>(address::any_node::<F>(), key.port, key.protocol);
        let found = self.claims.get(&zero).or_else(|| self.claims.get(&any));
        let Some((precedence, frontend)) = found else { return true };
        let Some(served) = self.served(&precedence.port) else { return true };
        let by_socket = if key.protocol == 17 { self.settings.udp_affinity } else { 0 };
        let seconds = u64::from(served.rendered.affinity.max(by_socket));
        let is_late = now.saturating_sub(value.since) > seconds * 1_000_000_000;
        let mut pools = std::iter::once(None).chain(served.rendered.nodes.keys().map(|node| Some(*node)));
        let pool = pools.find(|node| self.ids.get(&(precedence.port.clone(), *node)) == Some(frontend.id));
        let pool = pool.and_then(|node| served.rendered.pool(node));
        seconds == 0 || is_late || !pool.is_some_and(|pool| pool.backends.contains(&value.backend))
    }

    /// The service at an address, if it has backends. A node port that another node forwarded here has that node's
    /// address.
    fn serving(&self, address: F::Address, port: u16, protocol: u8) -> Option<&Served<F>> {
        let any = plain::<F>(address::any_node::<F>(), port, protocol);
        let found = self.claims.get(&plain::<F>(address, port, protocol)).or_else(|| self.claims.get(&any));
        let served = self.served(&found?.0.port)?;
        (!served.rendered.main.backends.is_empty()).then_some(served)
    }
}

fn plain<F: Family>(address: F::Address, port: u16, protocol: u8) -> FrontendKey<F> {
    FrontendKey { source_bits: 0, address, port, protocol, source: F::Address::default() }
}

impl<F: Family> Destinations<F> for Services<F> {
    fn has_backend(&self, service: (F::Address, u16), backend: (F::Address, u16), protocol: u8) -> bool {
        // Before all services are known, nothing is stale.
        !self.has_begun
            || self
                .serving(service.0, service.1, protocol)
                .is_some_and(|served| served.rendered.live.contains(&backend))
    }

    fn is_service(&self, address: F::Address, port: u16, protocol: u8) -> bool {
        self.has_begun && self.serving(address, port, protocol).is_some()
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}
