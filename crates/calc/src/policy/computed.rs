//! The parts of an endpoint's message that are not in its entry: the BGP peer for the workload, its role in a live
//! migration, and whether it is in Istio's ambient mesh.
//!
//! All of this concerns few workloads and few resources, so it is simply computed again for each workload in question.

use crate::matching::Labelled as _;
use crate::population::{Inherited, Item, Population};
use api::words::{KUBERNETES, LABEL_ORCHESTRATOR, NAMESPACE_LABEL_PREFIX};
use messages::{LiveMigrationRole, NodeName, WorkloadEndpointId};
use model::feed::{BgpPeer, LiveMigration, NamespacedName};
use selector::{Labels, Selector};
use std::collections::BTreeMap;

/// The label with which a namespace or a pod joins a mesh, or stays out of it.
const ISTIO_MODE: &str = "istio.io/dataplane-mode";

/// The id of the set of all workloads in the mesh.
pub(crate) const ISTIO_SET: &str = "all-istio-weps";

/// The selector of that set: Kubernetes workloads whose namespace is in the ambient mesh and that do not opt out, or
/// that opt in themselves.
pub(crate) fn istio_selector() -> Selector {
    let of_namespace = format!("{NAMESPACE_LABEL_PREFIX}{ISTIO_MODE}");
    let text = format!(
        "{LABEL_ORCHESTRATOR} == '{KUBERNETES}' && \
         ({of_namespace} == 'ambient' && {ISTIO_MODE} != 'none' || {ISTIO_MODE} == 'ambient')"
    );
    Selector::parse(&text).unwrap_or_else(|_| Selector::nothing())
}

/// The computed parts of one workload's message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Computed {
    pub(crate) bgp_peer: String,
    pub(crate) is_istio_ambient: bool,
    pub(crate) migration_role: LiveMigrationRole,
    pub(crate) migration_uid: String,
}

#[derive(Debug)]
struct Peer {
    node: NodeName,
    nodes: Option<Selector>,
    local_workloads: Option<Selector>,
}

/// A workload (without endpoint), or one endpoint of it.
#[derive(Debug, PartialEq)]
struct Owner {
    host: NodeName,
    orchestrator: String,
    workload: String,
    endpoint: Option<String>,
}

impl Owner {
    /// In Kubernetes a pod's name is unique, so the host is ignored.
    fn new(host: &str, orchestrator: &str, workload: &str, endpoint: Option<&str>) -> Self {
        let host = if orchestrator == KUBERNETES { NodeName::default() } else { host.into() };
        Self {
            host,
            orchestrator: orchestrator.to_owned(),
            workload: workload.to_owned(),
            endpoint: endpoint.filter(|endpoint| !endpoint.is_empty()).map(str::to_owned),
        }
    }

    fn is(&self, host: &NodeName, id: &WorkloadEndpointId) -> bool {
        (self.orchestrator == KUBERNETES || self.host == *host)
            && self.orchestrator == *id.orchestrator
            && self.workload == *id.workload
            && self.endpoint.as_ref().is_none_or(|endpoint| **endpoint == *id.endpoint)
    }
}

#[derive(Debug)]
struct Migration {
    uid: String,
    source: Option<Owner>,
    target: Option<Owner>,
    target_selector: Option<Selector>,
}

/// The resources that these parts of messages depend on.
#[derive(Debug, Default)]
pub(crate) struct ComputedSources {
    host: NodeName,
    node_labels: BTreeMap<String, String>,
    peers: BTreeMap<String, Peer>,
    migrations: BTreeMap<NamespacedName, Migration>,
    istio: Option<Selector>,
    /// Whether anything changed since [`Self::take_changed`].
    changed: bool,
}

impl ComputedSources {
    pub(crate) fn new(host: NodeName, istio_ambient: bool) -> Self {
        let istio = istio_ambient.then(istio_selector);
        Self { host, istio, ..Self::default() }
    }

    /// Returns whether anything changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Sets the labels of this host's node; empty if there is no node.
    pub(crate) fn set_node_labels(&mut self, labels: BTreeMap<String, String>) {
        if labels != self.node_labels {
            self.node_labels = labels;
            self.changed = !self.peers.is_empty();
        }
    }

    /// Adds, changes or removes a BGPPeer.
    pub(crate) fn set_peer(&mut self, name: &str, peer: Option<BgpPeer>) {
        self.changed = true;
        let Some(peer) = peer else {
            self.peers.remove(name);
            return;
        };
        let BgpPeer { object, nodes, local_workloads } = peer;
        self.peers.insert(name.to_owned(), Peer { node: object.spec.node.into(), nodes, local_workloads });
    }

    /// Adds, changes or removes a LiveMigration.
    pub(crate) fn set_migration(&mut self, key: NamespacedName, migration: Option<LiveMigration>) {
        self.changed = true;
        let Some(LiveMigration { object, target: target_selector }) = migration else {
            self.migrations.remove(&key);
            return;
        };
        let source = object.spec.source.as_ref();
        let target = object.spec.target.as_ref();
        let whole = source.and_then(|source| source.workload.as_ref());
        let one = |id: &api::WorkloadEndpointIdentifier| {
            Owner::new(&id.hostname, &id.orchestrator_id, &id.workload_id, Some(&id.endpoint_id))
        };
        let migration = Migration {
            uid: object.metadata.uid.clone(),
            source: whole
                .map(|id| Owner::new(&id.hostname, &id.orchestrator_id, &id.workload_id, None))
                .or_else(|| source.and_then(|source| source.workload_endpoint.as_ref()).map(one)),
            target: target.and_then(|target| target.workload_endpoint.as_ref()).map(one),
            target_selector,
        };
        self.migrations.insert(key, migration);
    }

    /// Computes the parts for a local workload.
    pub(crate) fn compute(&self, population: &Population, item: &Item, id: &WorkloadEndpointId) -> Computed {
        let labels = Named { population, labels: population.view(item) };
        let selects = |selector: &Option<Selector>| selector.as_ref().is_some_and(|it| it.evaluate(&labels));
        let peer =
            self.peers.iter().find(|(_, peer)| self.is_for_this_node(peer) && selects(&peer.local_workloads));
        let (migration_role, migration_uid) = self.migration(id, &labels);
        Computed {
            bgp_peer: peer.map(|(name, _)| name.clone()).unwrap_or_default(),
            is_istio_ambient: selects(&self.istio),
            migration_role,
            migration_uid,
        }
    }

    fn is_for_this_node(&self, peer: &Peer) -> bool {
        if peer.node.is_empty() {
            peer.nodes.as_ref().is_some_and(|selector| selector.evaluate(&self.node_labels))
        } else {
            peer.node == self.host
        }
    }

    /// A target found by selector takes precedence over a named target, and a target over a source. If several
    /// migrations agree, the one with the greatest uid is reported.
    fn migration(&self, id: &WorkloadEndpointId, labels: &Named<'_>) -> (LiveMigrationRole, String) {
        let is = |owner: &Option<Owner>| owner.as_ref().is_some_and(|owner| owner.is(&self.host, id));
        let greatest = |applies: &dyn Fn(&Migration) -> bool| {
            self.migrations.values().filter(|it| applies(it)).map(|it| it.uid.clone()).max()
        };
        let by_selector =
            |it: &Migration| it.target_selector.as_ref().is_some_and(|selector| selector.evaluate(labels));
        if let Some(uid) = greatest(&by_selector).or_else(|| greatest(&|it| is(&it.target))) {
            (LiveMigrationRole::Target, uid)
        } else if let Some(uid) = greatest(&|it| is(&it.source)) {
            (LiveMigrationRole::Source, uid)
        } else {
            (LiveMigrationRole::None, String::new())
        }
    }
}

/// The labels of an item by name, for selectors that are not worth compiling.
struct Named<'a> {
    population: &'a Population,
    labels: Inherited<'a>,
}

impl Labels for Named<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let name = self.population.labels.names.find(key)?;
        std::str::from_utf8(self.labels.value(name)?).ok()
    }
}
