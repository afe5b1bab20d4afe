//! Everything that is remembered between events, and how events change it. Does no requests.

use super::facts::CalicoNodes;
use api::scalars::IpOrCidr;
use api::{IPPoolSpec, IPReservationSpec, Kind, NodeSpec, Resource};
use ipam_core::garbage::{Collector, PoolRange};
use ipnet::IpNet;
use model::feed::{FeedEntry, Status};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the controller.
#[derive(Debug)]
pub(crate) struct State {
    /// Blocks, allocations and suspicions.
    pub collector: Collector,
    /// Calico's nodes.
    pub calico_nodes: CalicoNodes,
    /// Pools by name.
    pub pools: BTreeMap<String, PoolRange>,
    /// Reserved ranges by the name of their reservation.
    pub reservations: BTreeMap<String, Vec<IpNet>>,
    /// How many leaked addresses were released, by pool and node.
    pub reclaimed: BTreeMap<(String, String), u64>,
    /// Whether the datastore is unlocked.
    pub is_ready: bool,
    /// Whether the feed has reported everything that is stored.
    pub is_in_sync: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            collector: Collector::default(),
            calico_nodes: CalicoNodes::new(),
            pools: BTreeMap::new(),
            reservations: BTreeMap::new(),
            reclaimed: BTreeMap::new(),
            // Assumed until the ClusterInformation says otherwise.
            is_ready: true,
            is_in_sync: false,
        }
    }
}

impl State {
    /// Processes the feed's sync status.
    pub(crate) fn status(&mut self, status: Status) {
        self.is_in_sync = status == Status::InSync;
    }

    /// Processes an entry of the feed.
    pub(crate) fn update(&mut self, entry: &FeedEntry) {
        match entry {
            FeedEntry::Block(_, Some(block)) => self.collector.block_changed(block),
            FeedEntry::Block(cidr, None) => self.collector.block_gone(cidr),
            FeedEntry::Resource(key, resource) => self.resource(key.kind, &key.name, resource.as_deref()),
            _ => {}
        }
    }

    fn resource(&mut self, kind: Kind, name: &str, resource: Option<&Resource>) {
        match (kind, resource) {
            (Kind::Node, Some(Resource::Node(node))) => self.node(name, Some(&node.spec)),
            (Kind::Node, None) => self.node(name, None),
            (Kind::IPPool, Some(Resource::IPPool(pool))) => {
                let is_leaving = pool.metadata.deletion_timestamp.is_some();
                match range_of(name, &pool.spec).filter(|_| !is_leaving) {
                    Some(range) => drop(self.pools.insert(name.to_owned(), range)),
                    None => self.forget_pool(name),
                }
            }
            (Kind::IPPool, None) => self.forget_pool(name),
            (Kind::IPReservation, Some(Resource::IPReservation(reservation))) => {
                self.reservations.insert(name.to_owned(), reserved(&reservation.spec));
            }
            (Kind::IPReservation, None) => drop(self.reservations.remove(name)),
            (Kind::ClusterInformation, Some(Resource::ClusterInformation(information))) => {
                if let Some(is_ready) = information.spec.datastore_ready {
                    self.is_ready = is_ready;
                }
            }
            (Kind::ClusterInformation, None) => self.is_ready = false,
            _ => {}
        }
    }

    fn node(&mut self, name: &str, spec: Option<&NodeSpec>) {
        let known = match spec {
            Some(spec) => self.calico_nodes.insert(name.to_owned(), kubernetes_name(spec)),
            None => self.calico_nodes.remove(name),
        };
        if known.as_ref() != self.calico_nodes.get(name) {
            self.collector.touch(name);
        }
    }

    fn forget_pool(&mut self, name: &str) {
        self.pools.remove(name);
        self.reclaimed.retain(|(pool, _), _| pool != name);
    }

    /// Counts the release of a leaked address of this block and node.
    pub(crate) fn count_reclaimed(&mut self, block: &IpNet, node: &str) {
        use ipam_core::garbage::figures::{NO_POOL, UNKNOWN_NODE};
        let pool = self.pools.values().find(|pool| pool.cidr.contains(block));
        let pool = pool.map_or(NO_POOL, |pool| pool.name.as_str()).to_owned();
        let node = if node.is_empty() { UNKNOWN_NODE } else { node };
        *self.reclaimed.entry((pool, node.to_owned())).or_default() += 1;
    }

    /// Forgets a node that is gone for good: figures about it would accumulate.
    pub(crate) fn forget_node(&mut self, node: &str) {
        self.collector.node_released(node);
        self.reclaimed.retain(|(_, of), _| of != node);
    }

    /// The Calico nodes that correspond to one Kubernetes node.
    #[must_use]
    pub(crate) fn calico_names(&self, kubernetes: &str) -> BTreeSet<String> {
        let is_it = |(_, name): &(&String, &Option<String>)| name.as_deref() == Some(kubernetes);
        let mut names: BTreeSet<String> =
            self.calico_nodes.iter().filter(is_it).map(|(name, _)| name.clone()).collect();
        // The node's record may be gone already.
        names.insert(kubernetes.to_owned());
        names
    }
}

/// The node's name in Kubernetes; `None` if it is not a Kubernetes node.
#[must_use]
pub(crate) fn kubernetes_name(spec: &NodeSpec) -> Option<String> {
    spec.orch_refs
        .iter()
        .find(|orch| orch.orchestrator == api::words::KUBERNETES)
        .map(|orch| orch.node_name.clone())
}

fn range_of(name: &str, spec: &IPPoolSpec) -> Option<PoolRange> {
    match spec.cidr.parse() {
        Ok(network) => Some(PoolRange { name: name.to_owned(), cidr: network.masked() }),
        Err(reason) => {
            tracing::warn!(pool = name, %reason, "the range of this pool cannot be read: it has no figures");
            None
        }
    }
}

fn reserved(spec: &IPReservationSpec) -> Vec<IpNet> {
    let ranges = spec.reserved_cidrs.iter().filter_map(|cidr| {
        // A single address is accepted, too.
        let parsed = IpOrCidr::from(cidr.as_str().trim()).parse();
        parsed
            .map(|network| network.masked())
            .map_err(|reason| {
                tracing::warn!(%cidr, %reason, "ignoring this reserved range");
            })
            .ok()
    });
    ranges.collect()
}
