//! A snapshot of everything that decides about packets, as the resources that users and Kubernetes write.
//!
//! Objects are kept as they are. Adding an object replaces the one with the same kind and name, which is how a manifest
//! is tried on top of stored objects.

use crate::kubernetes_policy::RuleOrigins;
use crate::settings::ToHost;
use api::{Kind, Resource, Tier, TierSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Kind, namespace and name.
pub(crate) type Identity = (Kind, String, String);

/// The snapshot.
#[derive(Clone, Debug)]
pub struct Cluster {
    resources: BTreeMap<Identity, Resource>,
    /// Where the rules of converted Kubernetes policies are in the user's object.
    pub(crate) origins: BTreeMap<Identity, RuleOrigins>,
    /// Pods in their node's network, by namespace and name: they count as the node.
    pub(crate) host_pods: BTreeMap<(String, String), String>,
    /// Ports that the containers of a pod declare, by namespace and name: the protocol's number and the port. A stored
    /// endpoint keeps only named ports.
    pub(crate) declared_ports: BTreeMap<(String, String), BTreeSet<(u8, u16)>>,
    /// Endpoints with an assumed address, because they have none yet.
    pub(crate) assumed: BTreeSet<Identity>,
    /// Namespaces that manifests use, whether or not they define them.
    pub(crate) used_namespaces: BTreeSet<String>,
    /// Objects in manifests that do not affect packets, by kind.
    pub(crate) ignored: BTreeMap<String, usize>,
    problems: Vec<String>,
    notes: Vec<String>,
    endpoint_to_host: Option<ToHost>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// The kinds in every datastore that decide about packets.
    pub const STORED: [Kind; 14] = [
        Kind::FelixConfiguration,
        Kind::GlobalNetworkPolicy,
        Kind::GlobalNetworkSet,
        Kind::HostEndpoint,
        Kind::IPPool,
        Kind::NetworkPolicy,
        Kind::NetworkSet,
        Kind::Node,
        Kind::Profile,
        Kind::StagedGlobalNetworkPolicy,
        Kind::StagedKubernetesNetworkPolicy,
        Kind::StagedNetworkPolicy,
        Kind::Tier,
        Kind::WorkloadEndpoint,
    ];

    /// The kinds only in Kubernetes that decide about packets.
    pub const OF_KUBERNETES: [Kind; 4] = [
        Kind::KubernetesNetworkPolicy,
        Kind::KubernetesClusterNetworkPolicy,
        Kind::KubernetesService,
        Kind::KubernetesEndpointSlice,
    ];

    /// Adds an unreadable entry. Like in Felix, its readable part counts, which restricts at least as much.
    pub fn add_unreadable(&mut self, key: &str, reason: &str, readable_part: Option<Resource>) {
        self.add_problem(format!("{key} cannot be read: {reason}"));
        if let Some(resource) = readable_part {
            self.add(resource);
        }
    }

    /// A cluster with the objects that every cluster has: the built-in tiers, and the profile that allows everything.
    #[must_use]
    pub fn new() -> Self {
        let mut cluster = Self {
            resources: BTreeMap::new(),
            origins: BTreeMap::new(),
            host_pods: BTreeMap::new(),
            declared_ports: BTreeMap::new(),
            assumed: BTreeSet::new(),
            used_namespaces: BTreeSet::new(),
            ignored: BTreeMap::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            endpoint_to_host: None,
        };
        for tier in api::BUILT_IN_TIERS {
            let spec = TierSpec {
                order: Some(api::scalars::GoFloat(tier.order)),
                default_action: Some(tier.default_action.into()),
                ..TierSpec::default()
            };
            cluster.add(Tier::new("", tier.name, spec).into());
        }
        if let Some(profile) = model::kubernetes::profile::default_allow_profile().as_resource() {
            cluster.add(profile.clone());
        }
        cluster
    }

    /// Adds an object, or replaces the one with the same kind and name.
    pub fn add(&mut self, resource: Resource) {
        let identity = (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
        self.origins.remove(&identity);
        self.assumed.remove(&identity);
        self.resources.insert(identity, resource);
    }

    /// Removes an object; returns whether it existed.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.resources.remove(&(kind, namespace.to_owned(), name.to_owned())).is_some()
    }

    /// The object of this kind and name.
    #[must_use]
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Resource> {
        self.resources.get(&(kind, namespace.to_owned(), name.to_owned()))
    }

    /// All objects, by kind, namespace and name.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.resources.values()
    }

    /// The policies in the order of evaluation, each with its tier.
    #[must_use]
    pub fn policy_names(&self) -> Vec<String> {
        let world = crate::World::new(self);
        let mut names = Vec::new();
        for tier in &world.tiers {
            let policies = world.policies.iter().filter(|policy| policy.tier == tier.name);
            names.extend(policies.map(|policy| format!("tier {}: {}", tier.name, policy.name())));
        }
        names
    }

    /// The objects of a kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Resource> {
        let first = (kind, String::new(), String::new());
        self.resources
            .range(first..)
            .take_while(move |((found, ..), _)| *found == kind)
            .map(|(_, value)| value)
    }

    /// Adds all objects of another cluster, which override existing ones: the cluster as it would be after an apply.
    pub fn overlay(&mut self, other: &Self) {
        for (identity, resource) in &other.resources {
            // The other cluster was not given the built-in objects explicitly.
            let built_in = matches!(identity.0, Kind::Tier | Kind::Profile)
                && Self::new().resources.get(identity) == Some(resource);
            if !built_in {
                self.add(resource.clone());
            }
        }
        self.origins.extend(other.origins.clone());
        self.assumed.extend(other.assumed.clone());
        self.host_pods.extend(other.host_pods.clone());
        self.declared_ports.extend(other.declared_ports.clone());
        self.used_namespaces.extend(other.used_namespaces.clone());
        for (kind, count) in &other.ignored {
            *self.ignored.entry(kind.clone()).or_default() += count;
        }
        self.problems.extend(other.problems.clone());
        self.notes.extend(other.notes.clone());
        self.endpoint_to_host = other.endpoint_to_host.or(self.endpoint_to_host);
    }

    /// Sets `DefaultEndpointToHostAction` for every node, for callers who know it better than the datastore.
    pub fn set_endpoint_to_host_action(&mut self, action: ToHost) {
        self.endpoint_to_host = Some(action);
    }

    pub(crate) fn endpoint_to_host_action(&self) -> Option<ToHost> {
        self.endpoint_to_host
    }

    /// Mistakes in the added objects: unknown fields, rules that had to be left out.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Adds a mistake, such as an object that could not be read at all.
    pub fn add_problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// The assumptions that were made.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if !self.ignored.is_empty() {
            let kinds: Vec<String> =
                self.ignored.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            notes.push(format!("objects that do not affect packets were left out: {}", kinds.join(", ")));
        }
        notes
    }

    pub(crate) fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Action, GlobalNetworkSet, GlobalNetworkSetSpec};

    #[test]
    fn later_objects_win_but_built_in_ones_do_not() {
        let mut stored = Cluster::new();
        let spec = TierSpec { default_action: Some(Action::Pass), ..TierSpec::default() };
        stored.add(Tier::new("", "default", spec.clone()).into());
        let set = |net: &str| {
            let spec = GlobalNetworkSetSpec { nets: vec![net.into()], ..GlobalNetworkSetSpec::default() };
            Resource::from(GlobalNetworkSet::new("", "s", spec))
        };
        stored.add(set("10.0.0.0/8"));
        let mut wanted = Cluster::new();
        wanted.add(set("11.0.0.0/8"));
        stored.overlay(&wanted);
        assert_eq!(stored.get(Kind::GlobalNetworkSet, "", "s"), Some(&set("11.0.0.0/8")));
        assert_eq!(stored.get(Kind::Tier, "", "default"), Some(&Tier::new("", "default", spec).into()));
        assert_eq!(stored.of_kind(Kind::Tier).count(), 3);
    }
}
