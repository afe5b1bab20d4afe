//! Which endpoints a policy selects, and which policies apply to an endpoint: the same selection as for packets,
//! without a packet.

use crate::report::Direction;
use crate::world::{Item, ItemKind, Policy, World};
use api::{Kind, StagedAction};

/// A policy that applies to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applying {
    /// Its tier.
    pub tier: String,
    /// Its kind and name.
    pub policy: String,
    /// The directions that it applies to.
    pub directions: Vec<Direction>,
    /// Whether it is staged.
    pub staged: bool,
}

impl World<'_> {
    /// The endpoints that a policy selects, by name; `None` if the policy is not in the cluster.
    #[must_use]
    pub fn endpoints_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Vec<String>> {
        let identity = (kind, namespace.to_owned(), name.to_owned());
        let policy = self.policies.iter().find(|policy| policy.identity == identity)?;
        let mut names: Vec<String> =
            self.items.iter().filter(|item| applies(policy, item)).map(|item| item.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// The policies that apply to an endpoint, in the order of evaluation; `None` if the endpoint is not in the
    /// cluster, or has no address.
    #[must_use]
    pub fn policies_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Vec<Applying>> {
        let identity = (kind, namespace.to_owned(), name.to_owned());
        let item = self.items.iter().find(|item| item.identity == identity)?;
        let mut found = Vec::new();
        for tier in &self.tiers {
            let policies =
                self.policies.iter().filter(|policy| policy.tier == tier.name && applies(policy, item));
            found.extend(policies.map(|policy| {
                Applying {
                    tier: tier.name.clone(),
                    policy: policy.name(),
                    directions: [Direction::Ingress, Direction::Egress]
                        .into_iter()
                        .filter(|direction| policy.rules(*direction).is_some())
                        .collect(),
                    staged: policy.staged.is_some(),
                }
            }));
        }
        Some(found)
    }
}

fn applies(policy: &Policy, item: &Item) -> bool {
    // Before connection tracking and address translation, only the host's own endpoints have policy.
    let is_here = match item.kind {
        ItemKind::Workload => !policy.do_not_track && !policy.pre_dnat,
        ItemKind::Host => true,
        ItemKind::Set => false,
    };
    is_here
        && policy.staged != Some(StagedAction::Delete)
        && policy.selection.faults.is_empty()
        && policy.selection.selects(&item.labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use api::Resource;

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new();
        for (kind, json) in [
            (
                Kind::WorkloadEndpoint,
                r#"{"metadata":{"name":"w","namespace":"shop","labels":{"app":"web","projectcalico.org/namespace":"shop"}},"spec":{"pod":"web","node":"n1","ipNetworks":["10.0.0.1/32"]}}"#,
            ),
            (
                Kind::HostEndpoint,
                r#"{"metadata":{"name":"h","labels":{"app":"web"}},"spec":{"node":"n1","expectedIPs":["10.1.0.1"]}}"#,
            ),
            (
                Kind::GlobalNetworkSet,
                r#"{"metadata":{"name":"s","labels":{"app":"web"}},"spec":{"nets":["10.2.0.0/16"]}}"#,
            ),
            (
                Kind::NetworkPolicy,
                r#"{"metadata":{"name":"np","namespace":"shop"},"spec":{"tier":"default","selector":"app == 'web'","types":["Ingress"]}}"#,
            ),
            (
                Kind::GlobalNetworkPolicy,
                r#"{"metadata":{"name":"raw"},"spec":{"tier":"default","order":1,"selector":"app == 'web'","doNotTrack":true,"applyOnForward":true,"types":["Ingress","Egress"]}}"#,
            ),
            (
                Kind::StagedGlobalNetworkPolicy,
                r#"{"metadata":{"name":"tried"},"spec":{"stagedAction":"Set","tier":"default","order":2,"selector":"all()","types":["Egress"]}}"#,
            ),
        ] {
            cluster.add(Resource::from_json(kind, json.as_bytes()).expect("an object"));
        }
        cluster.complete();
        cluster
    }

    #[test]
    fn policies_and_endpoints_find_each_other() {
        let cluster = cluster();
        let world = World::new(&cluster);
        let endpoints = |kind, namespace: &str, name: &str| world.endpoints_of(kind, namespace, name);
        assert_eq!(endpoints(Kind::NetworkPolicy, "shop", "np"), Some(vec!["pod shop/web".to_owned()]));
        assert_eq!(
            endpoints(Kind::GlobalNetworkPolicy, "", "raw"),
            Some(vec!["host endpoint h".to_owned()]),
            "what is not tracked is the host's"
        );
        assert_eq!(endpoints(Kind::NetworkPolicy, "shop", "nosuch"), None);
        let policies = world.policies_of(Kind::WorkloadEndpoint, "shop", "w").expect("the endpoint");
        let shown: Vec<(&str, usize, bool)> = policies
            .iter()
            .map(|policy| (policy.policy.as_str(), policy.directions.len(), policy.staged))
            .collect();
        assert_eq!(
            shown,
            [("StagedGlobalNetworkPolicy tried", 1, true), ("NetworkPolicy shop/np", 1, false)]
        );
        assert_eq!(world.policies_of(Kind::WorkloadEndpoint, "shop", "nosuch"), None);
    }
}
