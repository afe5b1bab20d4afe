//! Services into the NAT maps of one IP version: what maps have is read once, and afterwards only what a change touches is
//! written, in the order that the change says.
//!
//! It refuses to believe that a write that failed was not made: the maps are read again.

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

/// The services of an IP version, for the thread of the dataplane and for the one that takes out connections.
#[derive(Debug)]
pub(crate) struct Shared<F: Family>(Arc<Mutex<Services<F>>>);

impl<F: Family> Clone for Shared<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Family> Shared<F> {
    /// For one question, or one change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Services<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys of affinities that lead nowhere any more.
    pub(crate) fn stale_affinities(&self, entries: &[(Vec<u8>, Vec<u8>)], now: u64) -> Vec<Vec<u8>> {
        let services = self.lock();
        let is_stale = |(key, value): &&(Vec<u8>, Vec<u8>)| {
            let (key, value) = (AffinityKey::<F>::read(key), Affinity::<F>::read(value));
            services.is_affinity_stale(&key, &value, now)
        };
        entries.iter().filter(is_stale).map(|(key, _)| key.clone()).collect()
    }
}

/// A pass over connections asks now and then: services change meanwhile, and are not kept waiting for it.
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
    /// What was heard since the last write.
    waiting: Vec<Update>,
    /// Whether the maps have what services say, as far as we know.
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

    /// Whether the next write has something to do.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.is_known || !self.waiting.is_empty()
    }

    /// Others may have changed the maps.
    pub(crate) fn invalidate(&mut self) {
        self.is_known = false;
    }

    /// Brings the maps to what services say; how many elements were written or removed.
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
                            "services shared numbers, and got new ones"
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

/// What the maps have.
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
