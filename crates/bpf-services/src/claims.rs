//! Resolves conflicts between services that claim the same address and port, as a map has one value for it.

use crate::render::Rank;
use bpf::layout::Family;
use bpf::layout::nat::{Frontend, FrontendKey};
use model::feed::NamespacedName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of a port of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortName {
    pub(crate) service: NamespacedName,
    pub(crate) port: Box<str>,
    pub(crate) protocol: u8,
}

/// The precedence of a claim: the address's role in the service, then the older service, then its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Precedence {
    pub(crate) rank: Rank,
    pub(crate) created: Box<str>,
    pub(crate) port: Arc<PortName>,
}

/// Frontends with all their claims, best first.
#[derive(Debug)]
pub(crate) struct Claims<F: Family>(BTreeMap<FrontendKey<F>, Vec<(Precedence, Frontend)>>);

impl<F: Family> Default for Claims<F> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<F: Family> Claims<F> {
    /// The winning claim.
    pub(crate) fn get(&self, key: &FrontendKey<F>) -> Option<&(Precedence, Frontend)> {
        self.0.get(key)?.first()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FrontendKey<F>, &Frontend)> {
        self.0.iter().filter_map(|(key, claims)| Some((key, &claims.first()?.1)))
    }

    pub(crate) fn insert(&mut self, key: FrontendKey<F>, precedence: Precedence, value: Frontend) {
        let claims = self.0.entry(key).or_default();
        match claims.binary_search_by(|(other, _)| other.cmp(&precedence)) {
            // The same service names an address twice.
            Ok(at) => claims[at].1 = value,
            Err(at) => claims.insert(at, (precedence, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: &FrontendKey<F>, precedence: &Precedence) {
        if let Some(claims) = self.0.get_mut(key) {
            claims.retain(|(other, _)| other != precedence);
            if claims.is_empty() {
                self.0.remove(key);
            }
        }
    }
}
