//! The calculation's knowledge of the cluster: the parts of each object that matter for BGP, parsed.
//!
//! A change that affects none of them (a node's heartbeat, a pool's condition) leaves the facts equal, and nothing is
//! recalculated.

use crate::extras::Extras;
use crate::intent::{BlockState, Filter, FilterName, Problem};
use crate::values::{AsNumber, ClusterId, Password, Prefix};
use api::{BGPConfigurationSpec, BGPPeerSpec};
use model::IpVersion;
use model::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The settings from this node's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The node's name in Calico.
    pub node: NodeName,
    /// The node's name in Kubernetes, if different (`CALICO_K8S_NODE_REF`).
    pub kubernetes_node: Option<String>,
    /// `CALICO_ROUTER_ID`: an address, `hash`, or nothing.
    pub router_id: String,
    /// `CALICO_ADVERTISE_CLUSTER_IPS`: replaces the cluster networks of the BGPConfiguration.
    pub advertise_cluster_ips: Option<String>,
    /// Whether Kubernetes assigns each node its range, so that there are no blocks (`USE_POD_CIDR`).
    pub use_pod_cidr: bool,
}

impl Settings {
    /// The name of this node in endpoint slices.
    pub(crate) fn kubernetes_node(&self) -> &str {
        self.kubernetes_node.as_deref().unwrap_or(&self.node)
    }
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) v4: Option<NodeAddress>,
    pub(crate) v6: Option<NodeAddress>,
    pub(crate) as_number: Option<AsNumber>,
    pub(crate) cluster_id: Option<ClusterId>,
    pub(crate) wireguard_v4: bool,
    pub(crate) wireguard_v6: bool,
    pub(crate) pod_networks: Vec<Prefix>,
    pub(crate) problems: Vec<Problem>,
}

/// The address of a node with its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    pub(crate) address: IpAddr,
    pub(crate) network: Prefix,
}

impl NodeFacts {
    pub(crate) fn address(&self, version: IpVersion) -> Option<IpAddr> {
        self.on(version).map(|at| at.address)
    }

    pub(crate) fn network(&self, version: IpVersion) -> Option<Prefix> {
        self.on(version).map(|at| at.network)
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        [self.v4, self.v6].into_iter().flatten().any(|at| at.address == address)
    }

    pub(crate) fn has_wireguard(&self, version: IpVersion) -> bool {
        match version {
            IpVersion::V4 => self.wireguard_v4,
            IpVersion::V6 => self.wireguard_v6,
        }
    }

    fn on(&self, version: IpVersion) -> Option<NodeAddress> {
        match version {
            IpVersion::V4 => self.v4,
            IpVersion::V6 => self.v6,
        }
    }
}

/// A pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolFacts {
    pub(crate) prefix: Prefix,
    pub(crate) encapsulation: PoolEncapsulation,
    pub(crate) exported: bool,
}

/// How packets of a pool travel between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolEncapsulation {
    None,
    IpIp,
    IpIpCrossSubnet,
    Vxlan,
}

/// The part of a Kubernetes service that determines its announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Whether its type is `ClusterIP`, `NodePort` or `LoadBalancer`, and it has a cluster address.
    pub announceable: bool,
    /// Whether its type is `LoadBalancer`.
    pub load_balancer: bool,
    /// Where traffic from outside may be served.
    pub policy: TrafficPolicy,
    /// The addresses within the cluster.
    pub cluster_ips: Vec<IpAddr>,
    /// External addresses of the service.
    pub external_ips: Vec<IpAddr>,
    /// The requested address of the load balancer.
    pub load_balancer_ip: Option<IpAddr>,
    /// The addresses of the load balancer.
    pub ingress_ips: Vec<IpAddr>,
    /// The families it serves.
    pub families: BTreeSet<IpVersion>,
}

/// Where traffic from outside may be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// Not set: the service has no traffic from outside.
    #[default]
    Unset,
    /// On any node.
    Cluster,
    /// On the node at which it arrives.
    Local,
}

/// The part of an endpoint slice that determines the announcement of its service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The service.
    pub service: ObjectName,
    /// The family of its addresses; `None` for host names.
    pub family: Option<IpVersion>,
    /// Whether any endpoint is ready.
    pub any_ready: bool,
    /// The nodes with a ready endpoint.
    pub ready_nodes: BTreeSet<String>,
}

/// A namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A workload on this node that a BGPPeer selects (`localWorkloadSelector`), as Felix reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPeer {
    /// The BGPPeer.
    pub peer: String,
    /// The workload's IPv4 address.
    pub v4: Option<IpAddr>,
    /// The workload's IPv6 address.
    pub v6: Option<IpAddr>,
}

/// All known facts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) settings: Settings,
    pub(crate) nodes: BTreeMap<NodeName, NodeFacts>,
    pub(crate) pools: BTreeMap<String, PoolFacts>,
    /// Blocks of this node.
    pub(crate) blocks: BTreeMap<Prefix, BlockState>,
    pub(crate) default: Option<Arc<BGPConfigurationSpec>>,
    pub(crate) node_configurations: BTreeMap<NodeName, Arc<BGPConfigurationSpec>>,
    pub(crate) peers: BTreeMap<String, Arc<BGPPeerSpec>>,
    /// The annotations of BGPPeers, if any.
    pub(crate) extras: BTreeMap<String, Extras>,
    /// The annotations for the mesh.
    pub(crate) mesh_extras: Extras,
    pub(crate) filters: BTreeMap<FilterName, Arc<Filter>>,
    pub(crate) filter_problems: BTreeMap<FilterName, Problem>,
    pub(crate) services: BTreeMap<ObjectName, Service>,
    /// By service, then by slice.
    pub(crate) slices: BTreeMap<ObjectName, BTreeMap<ObjectName, Slice>>,
    /// The service of each slice.
    pub(crate) slice_services: BTreeMap<ObjectName, ObjectName>,
    pub(crate) secrets: BTreeMap<String, BTreeMap<String, Password>>,
    pub(crate) local_peers: BTreeMap<String, LocalPeer>,
}

impl Facts {
    /// The AS number of nodes without one of their own.
    pub(crate) const DEFAULT_AS: AsNumber = AsNumber(64512);

    pub(crate) fn global_as(&self) -> AsNumber {
        let configured = self.default.as_ref().and_then(|spec| spec.as_number);
        configured.map_or(Self::DEFAULT_AS, AsNumber::from)
    }

    pub(crate) fn as_of(&self, node: &NodeFacts) -> AsNumber {
        node.as_number.unwrap_or_else(|| self.global_as())
    }

    /// The configured port that a node listens on, if any.
    pub(crate) fn listen_port(&self, node: &NodeName) -> Option<u16> {
        let of = |spec: &Arc<BGPConfigurationSpec>| Some(spec.listen_port).filter(|port| *port != 0);
        self.node_configurations.get(node).and_then(of).or_else(|| self.default.as_ref().and_then(of))
    }
}
