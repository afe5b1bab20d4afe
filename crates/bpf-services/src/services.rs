//! The state of all services, and the effect of changes of objects.

mod batch;
mod start;

use self::batch::Batch;
use crate::address;
use crate::changes::MapChanges;
use crate::choice::{self, Candidate};
use crate::claims::{Claims, PortName, Precedence};
use crate::ids::Ids;
use crate::maglev;
use crate::read::{Port, Service, Slice};
use crate::render::{self, Around, Pool, Rendered};
use api::{KubernetesEndpointSlice, KubernetesService};
use bpf::layout::Family;
use hashbrown::HashMap;
use ipnet::IpNet;
use model::feed::NamespacedName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Settings that stay the same as long as the agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This node's name, as in endpoints.
    pub node: String,
    /// `BPFExcludeCIDRsFromNAT`: frontends in them are left to the host.
    pub excluded: Vec<IpNet>,
    /// `BPFMaglevMaxServices`: the maximum number of ports with a table.
    pub maglev_services: usize,
    /// `BPFMaglevMaxEndpointsPerService`.
    pub maglev_endpoints: u32,
    /// The seconds for which the connect-time balancer keeps clients of UDP services at a backend; 0 if it leaves UDP
    /// alone.
    pub udp_affinity: u32,
}

/// Facts of this node that may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Its zone, from the label `topology.kubernetes.io/zone`; empty if it has none.
    pub zone: String,
    /// The addresses at which node ports are served.
    pub addresses: Vec<IpAddr>,
}

/// A change of an object; `None` if it was removed.
#[derive(Clone, Debug)]
pub enum Update {
    /// A service.
    Service(NamespacedName, Option<Box<KubernetesService>>),
    /// An endpoint slice.
    Slice(NamespacedName, Option<Box<KubernetesEndpointSlice>>),
    /// The address of a node, by the node's name.
    Host(String, Option<IpAddr>),
    /// This node.
    Here(Here),
}

/// The owner of an id: a port's own backends, or those on one other node.
pub(crate) type Owner<F> = (Arc<PortName>, Option<<F as Family>::Address>);

/// A port that is served.
#[derive(Debug, PartialEq)]
pub(crate) struct Served<F: Family> {
    created: Box<str>,
    pub(crate) rendered: Rendered<F>,
}

#[derive(Debug)]
pub(crate) struct Entry<F: Family> {
    pub(crate) service: Option<Service<F>>,
    /// By name.
    pub(crate) slices: BTreeMap<Box<str>, Slice<F>>,
    pub(crate) served: BTreeMap<Arc<PortName>, Served<F>>,
}

/// All services in one IP version.
#[derive(Debug)]
pub struct Services<F: Family> {
    pub(crate) settings: Settings,
    zone: Box<str>,
    addresses: Vec<F::Address>,
    hosts: BTreeMap<Box<str>, F::Address>,
    pub(crate) entries: HashMap<NamespacedName, Entry<F>>,
    /// The service of each slice.
    slices: HashMap<NamespacedName, NamespacedName>,
    pub(crate) claims: Claims<F>,
    pub(crate) ids: Ids<Owner<F>>,
    /// Services with a frontend for each node.
    by_node: BTreeSet<NamespacedName>,
    /// Services with a health port.
    pub(crate) checked: BTreeSet<NamespacedName>,
    /// Ports that request a Maglev table; the first ones get it.
    maglev: BTreeSet<Arc<PortName>>,
    /// The backends of the API's service that the maps contained at the start.
    adopted: BTreeMap<Arc<PortName>, Pool<F>>,
    refused_ids: BTreeSet<u32>,
    pub(crate) has_begun: bool,
    /// How often services were recomputed.
    pub(crate) generation: u64,
}

impl<F: Family> Services<F> {
    /// Creates an empty state. Nothing is computed before [`Self::begin`].
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            zone: Box::default(),
            addresses: Vec::new(),
            hosts: BTreeMap::new(),
            entries: HashMap::new(),
            slices: HashMap::new(),
            claims: Claims::default(),
            ids: Ids::default(),
            by_node: BTreeSet::new(),
            checked: BTreeSet::new(),
            maglev: BTreeSet::new(),
            adopted: BTreeMap::new(),
            refused_ids: BTreeSet::new(),
            has_begun: false,
            generation: 0,
        }
    }

    /// Ids that two services shared in the maps at the start: both got new ones.
    #[must_use]
    pub fn refused_ids(&self) -> &BTreeSet<u32> {
        &self.refused_ids
    }

    /// Takes in changes of objects, and returns the writes.
    pub fn apply(&mut self, updates: impl IntoIterator<Item = Update>) -> MapChanges<F> {
        let mut dirty = BTreeSet::new();
        for update in updates {
            self.take(update, &mut dirty);
        }
        if !self.has_begun {
            return MapChanges::default();
        }
        self.refresh_all(dirty)
    }

    fn take(&mut self, update: Update, dirty: &mut BTreeSet<NamespacedName>) {
        match update {
            Update::Service(name, object) => {
                let service = object.as_deref().and_then(Service::read);
                if service.is_some() || self.entries.contains_key(&name) {
                    self.entry(&name).service = service;
                    dirty.insert(name);
                }
            }
            Update::Slice(name, object) => {
                let slice = object.as_deref().and_then(Slice::read);
                let service = slice.as_ref().map(|slice| NamespacedName {
                    namespace: name.namespace.clone(),
                    name: slice.service.to_string(),
                });
                let before = self.slices.get(&name).cloned();
                if let Some(before) = before.filter(|before| Some(before) != service.as_ref()) {
                    self.slices.remove(&name);
                    self.entry(&before).slices.remove(name.name.as_str());
                    dirty.insert(before);
                }
                if let (Some(slice), Some(service)) = (slice, service) {
                    self.entry(&service).slices.insert(name.name.as_str().into(), slice);
                    dirty.insert(service.clone());
                    self.slices.insert(name, service);
                }
            }
            Update::Host(name, host) => {
                let host = host.and_then(address::bytes::<F>);
                let name = name.into_boxed_str();
                let before = match host {
                    Some(host) => self.hosts.insert(name, host),
                    None => self.hosts.remove(&name),
                };
                if before != host {
                    dirty.extend(self.by_node.iter().cloned());
                }
            }
            Update::Here(here) => {
                let mut addresses: Vec<_> =
                    here.addresses.into_iter().filter_map(address::bytes::<F>).collect();
                addresses.sort_unstable();
                addresses.dedup();
                if *self.zone != *here.zone || self.addresses != addresses {
                    (self.zone, self.addresses) = (here.zone.into(), addresses);
                    dirty.extend(self.entries.keys().cloned());
                }
            }
        }
    }

    fn entry(&mut self, name: &NamespacedName) -> &mut Entry<F> {
        let empty = || Entry { service: None, slices: BTreeMap::new(), served: BTreeMap::new() };
        self.entries.entry_ref(name).or_insert_with(empty)
    }

    /// Recomputes services, and those that gain or lose a Maglev table by it.
    fn refresh_all(&mut self, mut dirty: BTreeSet<NamespacedName>) -> MapChanges<F> {
        let mut batch = Batch { frontends: BTreeMap::new(), pools: BTreeMap::new() };
        let with_table = |services: &Self| -> BTreeSet<Arc<PortName>> {
            services.maglev.iter().take(services.settings.maglev_services).cloned().collect()
        };
        let before = with_table(self);
        for name in &dirty {
            self.note(name);
        }
        let after = with_table(self);
        dirty.extend(before.symmetric_difference(&after).map(|port| port.service.clone()));
        self.generation += u64::from(!dirty.is_empty());
        for name in &dirty {
            self.refresh(name, &mut batch);
        }
        self.finish(batch)
    }

    /// Updates the sets that a service belongs to.
    fn note(&mut self, name: &NamespacedName) {
        let Some(entry) = self.entries.get(name) else { return };
        for port in entry.served.keys() {
            self.maglev.remove(port);
        }
        let (mut by_node, mut is_checked) = (false, false);
        if let Some(service) = &entry.service {
            by_node = service.is_internal_local && service.ports.iter().any(|port| port.node_port != 0);
            is_checked = service.health_port.is_some();
            if service.has_maglev {
                self.maglev.extend(service.ports.iter().map(|port| Arc::new(port_name(name, port))));
            }
        }
        for (set, is_in) in [(&mut self.by_node, by_node), (&mut self.checked, is_checked)] {
            if is_in {
                set.insert(name.clone());
            } else {
                set.remove(name);
            }
        }
    }

    fn refresh(&mut self, name: &NamespacedName, batch: &mut Batch<F>) {
        let Some(mut entry) = self.entries.remove(name) else { return };
        let after = self.serve(name, &entry);
        for (port, old) in &entry.served {
            if after.get(port) != Some(old) {
                self.retract(port, old, after.get(port), batch);
            }
        }
        for (port, new) in &after {
            if entry.served.get(port) != Some(new) {
                self.install(port, new, batch);
            }
        }
        entry.served = after;
        if entry.service.is_some() || !entry.slices.is_empty() {
            self.entries.insert(name.clone(), entry);
        }
    }

    /// Computes all ports of a service.
    fn serve(&self, name: &NamespacedName, entry: &Entry<F>) -> BTreeMap<Arc<PortName>, Served<F>> {
        let Some(service) = &entry.service else { return BTreeMap::new() };
        // If it lost the API, a node would never learn of returning backends.
        let is_api = name.namespace == "default" && name.name == "kubernetes";
        let ports = service.ports.iter().map(|port| {
            let port_name = Arc::new(port_name(name, port));
            let kept = || entry.served.get(&port_name).map(|served| &served.rendered.main);
            let around = Around {
                node: &self.settings.node,
                zone: &self.zone,
                addresses: &self.addresses,
                hosts: &self.hosts,
                excluded: &self.settings.excluded,
                maglev: self
                    .has_table(service, &port_name)
                    .then(|| maglev::table_size(self.settings.maglev_endpoints)),
                fallback: if is_api { kept().or_else(|| self.adopted.get(&port_name)) } else { None },
            };
            let candidates = candidates(entry, port, &self.settings.node);
            let rendered = render::render(service, port, &candidates, &around);
            (port_name, Served { created: service.created.clone(), rendered })
        });
        ports.collect()
    }

    fn has_table(&self, service: &Service<F>, port: &Arc<PortName>) -> bool {
        service.has_maglev
            && self.maglev.iter().take(self.settings.maglev_services).any(|other| other == port)
    }

    pub(crate) fn served(&self, port: &Arc<PortName>) -> Option<&Served<F>> {
        self.entries.get(&port.service)?.served.get(port)
    }
}

impl<F: Family> Served<F> {
    fn precedence(&self, port: &Arc<PortName>, rank: render::Rank) -> Precedence {
        Precedence { rank, created: self.created.clone(), port: port.clone() }
    }
}

impl<F: Family> Rendered<F> {
    fn pools(&self) -> impl Iterator<Item = (Option<F::Address>, &Pool<F>)> {
        let nodes = self.nodes.iter().map(|(node, pool)| (Some(*node), pool));
        std::iter::once((None, &self.main)).chain(nodes)
    }

    pub(crate) fn pool(&self, node: Option<F::Address>) -> Option<&Pool<F>> {
        node.map_or(Some(&self.main), |node| self.nodes.get(&node))
    }
}

fn port_name(service: &NamespacedName, port: &Port) -> PortName {
    PortName { service: service.clone(), port: port.name.clone(), protocol: port.protocol }
}

/// The endpoints of a port in all slices.
fn candidates<'a, F: Family>(entry: &'a Entry<F>, port: &Port, node: &str) -> Vec<Candidate<'a, F>> {
    let mut all = Vec::new();
    for slice in entry.slices.values() {
        let numbers =
            slice.ports.iter().filter(|(name, protocol, _)| (name, *protocol) == (&port.name, port.protocol));
        for (_, _, number) in numbers {
            all.extend(slice.endpoints.iter().map(|endpoint| Candidate::new(endpoint, *number, node)));
        }
    }
    choice::merge(all)
}
