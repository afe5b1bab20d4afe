//! The kinds that each component follows, and in which form.

use crate::cache::CacheOptions;
use crate::processor::host_endpoint::HostEndpoints;
use crate::processor::node::Nodes;
use crate::processor::pool::Pools;
use crate::processor::settings::Settings;
use crate::processor::{Converted, Processor, Raw};
use api::Kind;
use model::ListOptions;

/// One kind of a feed.
pub struct FollowedKind {
    /// What to list and watch.
    pub list: ListOptions,
    /// How to convert it.
    pub processor: Box<dyn Processor>,
    /// How to follow it.
    pub options: CacheOptions,
}

impl FollowedKind {
    /// Creates a kind whose entries are converted.
    #[must_use]
    pub fn new(list: ListOptions, processor: impl Processor + 'static) -> Self {
        let optional = matches!(
            list,
            // Other projects' kinds, which most clusters do not have, and staged policies, which enforce nothing. The
            // roles of older releases do not permit reading them.
            ListOptions::Resource {
                kind: Kind::KubernetesClusterNetworkPolicy
                    | Kind::LiveMigration
                    | Kind::StagedGlobalNetworkPolicy
                    | Kind::StagedNetworkPolicy
                    | Kind::StagedKubernetesNetworkPolicy,
                ..
            }
        );
        let options = CacheOptions { optional, ..CacheOptions::default() };
        Self { list, processor: Box::new(processor), options }
    }

    fn converted(kind: Kind) -> Self {
        Self::new(ListOptions::resources(kind), Converted)
    }

    fn raw(kind: Kind) -> Self {
        Self::new(ListOptions::resources(kind), Raw)
    }
}

/// What the kinds of Felix's feed depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FelixOptions {
    /// Whether the store is the Kubernetes API: then Kubernetes' own policies and services are followed, too.
    pub kubernetes: bool,
    /// Whether Kubernetes allocates the addresses: then there are no blocks, and nodes take their place.
    pub use_pod_cidr: bool,
    /// Whether this is the active Felix of its node: others only need configuration.
    pub leader: bool,
}

/// Kinds without which Felix would enforce less than configured, and remove what is programmed: the feed waits for a
/// store that does not know one of them, because its definitions are not installed yet. Calico treats them as empty.
/// Every release since v3.26 has them and lets its nodes read them; that is why tiers are not among them.
const REQUIRED: [Kind; 11] = [
    Kind::ClusterInformation,
    Kind::FelixConfiguration,
    Kind::GlobalNetworkPolicy,
    Kind::NetworkPolicy,
    Kind::KubernetesNetworkPolicy,
    Kind::Profile,
    Kind::WorkloadEndpoint,
    Kind::HostEndpoint,
    Kind::GlobalNetworkSet,
    Kind::NetworkSet,
    Kind::IPPool,
];

/// The kinds that Felix follows.
#[must_use]
pub fn felix(options: FelixOptions) -> Vec<FollowedKind> {
    let mut kinds = felix_kinds(options);
    for followed in &mut kinds {
        if let ListOptions::Resource { kind, .. } = &followed.list {
            followed.options.required = REQUIRED.contains(kind);
        }
    }
    kinds
}

fn felix_kinds(options: FelixOptions) -> Vec<FollowedKind> {
    let mut kinds = vec![
        FollowedKind::new(ListOptions::resources(Kind::ClusterInformation), Settings::default()),
        FollowedKind::new(ListOptions::resources(Kind::FelixConfiguration), Settings::default()),
    ];
    if !options.leader {
        return kinds;
    }
    kinds.extend(
        [
            Kind::GlobalNetworkPolicy,
            Kind::StagedGlobalNetworkPolicy,
            Kind::GlobalNetworkSet,
            Kind::Profile,
            Kind::WorkloadEndpoint,
            Kind::NetworkPolicy,
            Kind::StagedNetworkPolicy,
            Kind::StagedKubernetesNetworkPolicy,
            Kind::NetworkSet,
            Kind::Tier,
        ]
        .map(FollowedKind::converted),
    );
    kinds.push(FollowedKind::new(ListOptions::resources(Kind::IPPool), Pools::default()));
    kinds.push(FollowedKind::new(ListOptions::resources(Kind::Node), Nodes::new(options.use_pod_cidr)));
    kinds.push(FollowedKind::new(ListOptions::resources(Kind::HostEndpoint), HostEndpoints::default()));
    kinds.extend([Kind::BGPConfiguration, Kind::BGPPeer, Kind::LiveMigration].map(FollowedKind::raw));
    if options.kubernetes {
        kinds.extend(
            [Kind::KubernetesNetworkPolicy, Kind::KubernetesClusterNetworkPolicy]
                .map(FollowedKind::converted),
        );
        kinds.extend([Kind::KubernetesEndpointSlice, Kind::KubernetesService].map(FollowedKind::raw));
    }
    if !options.use_pod_cidr {
        kinds.push(FollowedKind::new(ListOptions::Block { ip_version: None }, Raw));
    }
    kinds
}

/// What the kinds of BGP's feed depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpOptions {
    /// Follow only the claims of this node; of all nodes if `None`.
    pub node: Option<String>,
    /// Whether Kubernetes allocates the addresses: then there are no claims.
    pub use_pod_cidr: bool,
    /// Whether addresses of services are announced: then the services of Kubernetes and their endpoints are followed,
    /// too. Calico's own feed of this name, which Typha serves, has neither.
    pub services: bool,
}

/// The kinds that confd and BGP follow.
#[must_use]
pub fn bgp(options: &BgpOptions) -> Vec<FollowedKind> {
    let mut kinds = vec![FollowedKind::new(ListOptions::resources(Kind::IPPool), Pools::default())];
    kinds.extend([Kind::BGPConfiguration, Kind::Node, Kind::BGPPeer, Kind::BGPFilter].map(FollowedKind::raw));
    if !options.use_pod_cidr {
        let host = options.node.clone();
        let list = ListOptions::BlockAffinity { host, affinity_type: None, ip_version: None };
        kinds.push(FollowedKind::new(list, Raw));
    }
    if options.services {
        kinds.extend([Kind::KubernetesEndpointSlice, Kind::KubernetesService].map(FollowedKind::raw));
    }
    kinds
}

/// The kinds that the addresses of a node's tunnels depend on: pools, and the named node or all nodes.
#[must_use]
pub fn tunnel_addresses(node: Option<&str>) -> Vec<FollowedKind> {
    let node = ListOptions::Resource {
        kind: Kind::Node,
        namespace: None,
        name: node.map(str::to_owned),
        name_is_prefix: false,
    };
    vec![
        FollowedKind::new(ListOptions::resources(Kind::IPPool), Pools::default()),
        FollowedKind::new(node, Raw),
    ]
}

/// The requests for the state of nodes.
#[must_use]
pub fn node_status() -> Vec<FollowedKind> {
    vec![FollowedKind::raw(Kind::CalicoNodeStatus)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kinds: &[FollowedKind]) -> Vec<String> {
        let mut names: Vec<String> = kinds.iter().map(|kind| kind.list.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn felix_follows_what_it_needs() {
        let felix = |kubernetes, use_pod_cidr, leader| {
            names(&felix(FelixOptions { kubernetes, use_pod_cidr, leader }))
        };
        assert_eq!(felix(true, false, false), ["ClusterInformation(*)", "FelixConfiguration(*)"]);
        let etcd = felix(false, false, true);
        let everywhere = [
            "BGPConfiguration(*)",
            "BGPPeer(*)",
            "Block(*)",
            "ClusterInformation(*)",
            "FelixConfiguration(*)",
            "GlobalNetworkPolicy(*)",
            "GlobalNetworkSet(*)",
            "HostEndpoint(*)",
            "IPPool(*)",
            "LiveMigration(*)",
            "NetworkPolicy(*)",
            "NetworkSet(*)",
            "Node(*)",
            "Profile(*)",
            "StagedGlobalNetworkPolicy(*)",
            "StagedKubernetesNetworkPolicy(*)",
            "StagedNetworkPolicy(*)",
            "Tier(*)",
            "WorkloadEndpoint(*)",
        ];
        assert_eq!(etcd, everywhere);
        let with_kubernetes: Vec<String> =
            felix(true, true, true).into_iter().filter(|name| !etcd.contains(name)).collect();
        let only_there = [
            "KubernetesClusterNetworkPolicy(*)",
            "KubernetesEndpointSlice(*)",
            "KubernetesNetworkPolicy(*)",
            "KubernetesService(*)",
        ];
        assert_eq!(with_kubernetes, only_there);
        assert!(!felix(true, true, true).contains(&"Block(*)".to_owned()));
    }

    #[test]
    fn felix_waits_for_kinds_that_restrict() {
        let kinds = felix(FelixOptions { kubernetes: true, use_pod_cidr: false, leader: true });
        let required: Vec<String> =
            kinds.iter().filter(|kind| kind.options.required).map(|kind| kind.list.to_string()).collect();
        assert_eq!(required.len(), REQUIRED.len(), "{required:?}");
        assert!(required.contains(&"KubernetesNetworkPolicy(*)".to_owned()), "{required:?}");
        assert!(kinds.iter().all(|kind| !(kind.options.required && kind.options.optional)));
    }

    #[test]
    fn the_feed_of_bgp() {
        let bgp = |node: Option<&str>, use_pod_cidr| {
            names(&bgp(&BgpOptions { node: node.map(str::to_owned), use_pod_cidr, services: false }))
        };
        let always = ["BGPConfiguration(*)", "BGPFilter(*)", "BGPPeer(*)", "IPPool(*)", "Node(*)"];
        assert_eq!(bgp(None, true), always);
        assert!(bgp(None, false).contains(&"BlockAffinity(*)".to_owned()));
        assert!(bgp(Some("n1"), false).contains(&"BlockAffinity(n1)".to_owned()));
        let services =
            names(&super::bgp(&BgpOptions { services: true, use_pod_cidr: true, ..BgpOptions::default() }));
        assert!(services.contains(&"KubernetesEndpointSlice(*)".to_owned()), "{services:?}");
        assert!(services.contains(&"KubernetesService(*)".to_owned()), "{services:?}");
    }

    #[test]
    fn the_small_feeds() {
        assert_eq!(names(&tunnel_addresses(None)), ["IPPool(*)", "Node(*)"]);
        assert_eq!(names(&tunnel_addresses(Some("n1"))), ["IPPool(*)", "Node(n1)"]);
        assert_eq!(names(&node_status()), ["CalicoNodeStatus(*)"]);
    }
}
