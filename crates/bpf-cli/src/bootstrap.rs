//! Writes the Kubernetes API's service to the maps before an agent can learn of it: `node init`.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::{Family, V4, V6};
use bpf::{Definition, Kind, Layout as _};
use bpf_services::{Contents, NatMap, bootstrap};

/// The sizes of the maps, as in Calico.
const FRONTENDS: u32 = 65_536;
const BACKENDS: u32 = 262_144;

/// Writes the service's addresses (`KUBERNETES_SERVICE_IPS_PORTS`) and its backends (`KUBERNETES_APISERVER_ENDPOINTS`).
/// Existing maps are kept with their contents.
///
/// # Errors
/// When an address cannot be parsed or has no backend, or the kernel refuses.
pub fn bootstrap(services: &str, endpoints: &str, maps: &mut dyn Maps) -> Result<(), Failure> {
    let read = |text: &str, name: &str| {
        bootstrap::addresses(text).map_err(|error| Failure::Wrong(format!("{name}: {error}")))
    };
    let services = read(services, "KUBERNETES_SERVICE_IPS_PORTS")?;
    let endpoints = read(endpoints, "KUBERNETES_APISERVER_ENDPOINTS")?;
    // Everything is checked before anything is written.
    for is_v4 in [true, false] {
        let has = |list: &[std::net::SocketAddr]| list.iter().any(|one| one.is_ipv4() == is_v4);
        if has(&services) && !has(&endpoints) {
            let version = if is_v4 { 4 } else { 6 };
            let message = format!(
                "KUBERNETES_APISERVER_ENDPOINTS has no IPv{version} address, but the service has one"
            );
            return Err(Failure::Wrong(message));
        }
    }
    if services.iter().any(std::net::SocketAddr::is_ipv4) {
        write::<V4>(&services, &endpoints, maps)?;
    }
    if services.iter().any(std::net::SocketAddr::is_ipv6) {
        write::<V6>(&services, &endpoints, maps)?;
    }
    Ok(())
}

fn write<F: Family>(
    services: &[std::net::SocketAddr],
    endpoints: &[std::net::SocketAddr],
    maps: &mut dyn Maps,
) -> Result<(), Failure> {
    let fronts = format!("cali_v{}_nat_fe3", F::NUMBER);
    let backs = format!("cali_v{}_nat_be", F::NUMBER);
    let definition = |name: &str, kind, key, value, entries| Definition {
        name: name.to_owned(),
        kind,
        key,
        value,
        entries,
        flags: Definition::NO_PREALLOCATION,
    };
    maps.create(definition(&fronts, Kind::Lpm, FrontendKey::<F>::SIZE, Frontend::SIZE, FRONTENDS))?;
    maps.create(definition(&backs, Kind::Hash, BackendKey::SIZE, Backend::<F>::SIZE, BACKENDS))?;
    let mut actual = Contents::<F>::default();
    for (key, value) in maps.entries(&fronts)? {
        actual.frontends.insert(text::read(&fronts, &key)?, text::read(&fronts, &value)?);
    }
    for step in bootstrap::entries(services, endpoints, &actual).steps() {
        let map = if step.map == NatMap::Frontends { &fronts } else { &backs };
        for (key, value) in &step.set {
            maps.set(map, key, value)?;
        }
    }
    Ok(())
}
