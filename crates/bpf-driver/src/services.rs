//! Writes services to the NAT maps of one IP version: the maps' contents are read once, and afterwards only what a
//! change affects is written, in the order that the change prescribes.
//!
//! Does not assume that a failed write had no effect: the maps are read again.

use crate::error::Error;
use crate::store::Store;
use bpf::Layout;
use bpf::layout::Family;
use bpf::layout::nat::{Affinity, AffinityKey};
use bpf_conntrack::Destinations;
use bpf_services::{Contents, NatMap, Services, Settings, Update};
use messages::ToDataplane;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The services of an IP version, shared by the dataplane's thread and the one that sweeps connections.
#[derive(Debug)]
pub(crate) struct Shared<F: Family>(Arc<Mutex<Services<F>>>);

impl<F: Family> Clone for Shared<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Family> Shared<F> {
    /// Locks the services for one query or one change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Services<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys of affinities whose backend no longer exists.
    pub(crate) fn stale_affinities(&self, entries: &[(Vec<u8>, Vec<u8>)], now: u64) -> Vec<Vec<u8>> {
        let services = self.lock();
        let is_stale = |(key, value): &&(Vec<u8>, Vec<u8>)| {
            let (key, value) = (AffinityKey::<F>::read(key), Affinity::<F>::read(value));
            services.is_affinity_stale(&key, &value, now)
        };
        entries.iter().filter(is_stale).map(|(key, _)| key.clone()).collect()
    }
}

/// A pass over connections locks briefly for each query, so that changes of services do not have to wait for it.
impl<F: Family> Destinations<F> for Shared<F> {
    fn has_backend(&self, service: (F::Address, u16), backend: (F::Address, u16), protocol: u8) -> bool {
        self.lock().has_backend(service, backend, protocol)
    }

    fn is_service(&self, address: F::Address, port: u16, protocol: u8) -> bool {
        self.lock().is_service(address, port, protocol)
    }

    fn generation(&self) -> u64 {
        Destinations::<F>::generation(&*self.lock())
    }
}

/// The NAT maps of an IP version.
#[derive(Debug)]
pub(crate) struct ServiceMaps<F: Family> {
    shared: Shared<F>,
    /// Updates since the last write.
    waiting: Vec<Update>,
    /// Whether the maps are known to match the services.
    is_known: bool,
    has_begun: bool,
}

impl<F: Family> ServiceMaps<F> {
    pub(crate) fn new(settings: Settings) -> Self {
        let shared = Shared(Arc::new(Mutex::new(Services::new(settings))));
        Self { shared, waiting: Vec::new(), is_known: false, has_begun: false }
    }

    pub(crate) fn shared(&self) -> &Shared<F> {
        &self.shared
    }

    pub(crate) fn hear(&mut self, message: &ToDataplane) {
        self.waiting.extend(Update::told::<F>(message));
    }

    pub(crate) fn push(&mut self, update: Update) {
        self.waiting.push(update);
    }

    /// Whether the next write has anything to do.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.is_known || !self.waiting.is_empty()
    }

    /// Makes the next write read the maps, as others may have changed them.
    pub(crate) fn invalidate(&mut self) {
        self.is_known = false;
    }

    /// Updates the maps; returns how many elements were written or removed.
    pub(crate) fn write(&mut self, store: &mut impl Store) -> Result<usize, Error> {
        let changes = {
            let mut services = self.shared.lock();
            let changes = services.apply(std::mem::take(&mut self.waiting));
            match self.is_known {
                true => changes,
                false => {
                    let changes = services.begin(&read::<F>(store)?);
                    let is_first = !std::mem::replace(&mut self.has_begun, true);
                    if is_first && !services.refused_ids().is_empty() {
                        let numbers = services.refused_ids();
                        tracing::warn!(
                            ?numbers,
                            version = F::NUMBER,
                            "services with duplicate ids got new ones"
                        );
                    }
                    changes
                }
            }
        };
        self.is_known = false;
        let mut count = 0;
        for step in changes.steps() {
            let map = name::<F>(step.map);
            if store.room(map).is_none() {
                continue;
            }
            if !step.set.is_empty() {
                store.write(map, &step.set)?;
            }
            if !step.remove.is_empty() {
                store.remove(map, &step.remove)?;
            }
            count += step.set.len() + step.remove.len();
        }
        self.is_known = true;
        Ok(count)
    }
}

fn name<F: Family>(map: NatMap) -> &'static str {
    match (F::NUMBER, map) {
        (4, NatMap::Frontends) => "cali_v4_nat_fe3",
        (4, NatMap::Backends) => "cali_v4_nat_be",
        (4, NatMap::Maglev) => "cali_v4_mglv2",
        (_, NatMap::Frontends) => "cali_v6_nat_fe3",
        (_, NatMap::Backends) => "cali_v6_nat_be",
        (_, NatMap::Maglev) => "cali_v6_mglv2",
    }
}

/// Reads the contents of the maps.
fn read<F: Family>(store: &impl Store) -> Result<Contents<F>, Error> {
    fn table<K: Layout + Ord, V: Layout>(store: &impl Store, map: &str) -> Result<BTreeMap<K, V>, Error> {
        if store.room(map).is_none() {
            return Ok(BTreeMap::new());
        }
        let all = store.read(map)?;
        Ok(all.iter().map(|(key, value)| (K::read(key), V::read(value))).collect())
    }
    Ok(Contents {
        frontends: table(store, name::<F>(NatMap::Frontends))?,
        backends: table(store, name::<F>(NatMap::Backends))?,
        maglev: table(store, name::<F>(NatMap::Maglev))?,
    })
}

#[cfg(test)]
mod tests;
