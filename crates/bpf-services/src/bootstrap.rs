//! The Kubernetes API's service, written by `node init` before an agent can learn of it.
//!
//! `KUBERNETES_SERVICE_IPS_PORTS` has its addresses, `KUBERNETES_APISERVER_ENDPOINTS` its backends. If its frontend
//! already has an id in the map, the id is kept; otherwise it gets the lowest unused one.

use crate::address;
use crate::changes::{self, Contents, MapChanges};
use bpf::layout::Family;
use bpf::layout::nat::{Backend, Frontend, FrontendKey};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Parses a list of addresses with ports, such as `10.96.0.1:443,[fd00::1]:443`.
///
/// # Errors
/// Names the entry that cannot be parsed.
pub fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let entry = |entry: &str| {
        let entry = entry.trim();
        entry.parse().map_err(|_| format!("{entry:?} is not an address with a port, such as 10.96.0.1:443"))
    };
    text.split(',').map(entry).collect()
}

/// The entries to write for one IP version; none if it has no service address or no backend.
#[must_use]
pub fn entries<F: Family>(
    services: &[SocketAddr],
    endpoints: &[SocketAddr],
    actual: &Contents<F>,
) -> MapChanges<F> {
    let of_version = |list: &[SocketAddr]| -> Vec<(F::Address, u16)> {
        list.iter().filter_map(|one| Some((address::bytes::<F>(one.ip())?, one.port()))).collect()
    };
    let (services, endpoints) = (of_version(services), of_version(endpoints));
    let mut changes = MapChanges::default();
    if services.is_empty() || endpoints.is_empty() {
        return changes;
    }
    let keys: Vec<FrontendKey<F>> = services
        .into_iter()
        .map(|(address, port)| FrontendKey { address, port, protocol: 6, ..FrontendKey::default() })
        .collect();
    let used: BTreeSet<u32> = actual.frontends.values().map(|frontend| frontend.id).collect();
    let own = keys.iter().find_map(|key| actual.frontends.get(key).map(|frontend| frontend.id));
    let free = (0..=u32::MAX).find(|id| !used.contains(id)).unwrap_or_default();
    let id = own.unwrap_or(free);
    let backends: Vec<Backend<F>> =
        endpoints.into_iter().map(|(address, port)| Backend { address, port }).collect();
    changes::list(&mut changes.backends, id, &[], &backends);
    let count = u32::try_from(backends.len()).unwrap_or(u32::MAX - 1);
    let frontend = Frontend { id, count, ..Frontend::default() };
    changes.frontends.extend(keys.into_iter().map(|key| (key, Some(frontend))));
    changes
}
