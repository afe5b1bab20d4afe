//! What a dataplane knows after the messages so far. It checks, message by message, that each can be applied on
//! arrival: nothing refers to what does not exist, and nothing is removed while it is in use.

use messages::{
    HostEndpoint, HostEndpointName, IpSetId, IpSetMember, IpSetType, Policy, PolicyId, Profile, ProfileName,
    Rule, TierInfo, ToDataplane, WorkloadEndpoint, WorkloadEndpointId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The part of the dataplane's state that policy is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyState {
    pub(crate) sets: BTreeMap<IpSetId, (IpSetType, BTreeSet<IpSetMember>)>,
    pub(crate) policies: BTreeMap<PolicyId, Policy>,
    pub(crate) profiles: BTreeMap<ProfileName, Profile>,
    pub(crate) workloads: BTreeMap<WorkloadEndpointId, WorkloadEndpoint>,
    pub(crate) hosts: BTreeMap<HostEndpointName, HostEndpoint>,
}

/// That state, and everything else as texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dataplane {
    pub(crate) policy: PolicyState,
    /// The latest message about each other thing.
    pub(crate) network: BTreeMap<String, String>,
    pub(crate) in_sync: bool,
}

impl Dataplane {
    pub(crate) fn apply(&mut self, messages: Vec<ToDataplane>) {
        for message in messages {
            self.apply_one(message);
        }
    }

    fn apply_one(&mut self, message: ToDataplane) {
        let state = &mut self.policy;
        match message {
            ToDataplane::InSync => {
                assert!(!self.in_sync, "InSync is sent once");
                self.in_sync = true;
            }
            ToDataplane::IpSetUpdate { id, set_type, members } => {
                assert!(members.is_sorted(), "{id}: members are sorted");
                let count = members.len();
                let members: BTreeSet<_> = members.into_iter().collect();
                assert_eq!(count, members.len(), "{id}: no member twice");
                state.sets.insert(id, (set_type, members));
            }
            ToDataplane::IpSetDelta { id, added, removed } => {
                let Some((_, members)) = state.sets.get_mut(&id) else { panic!("delta of unknown set {id}") };
                assert!(!added.is_empty() || !removed.is_empty(), "{id}: a delta says something");
                for member in removed {
                    assert!(members.remove(&member), "{id}: {member} is removed but was not in the set");
                }
                for member in added {
                    assert!(members.insert(member), "{id}: {member} comes and was there");
                }
            }
            ToDataplane::IpSetRemove(id) => {
                assert!(state.sets.remove(&id).is_some(), "unknown set {id} goes");
                let user = state.users_of(&id);
                assert!(user.is_none(), "set {id} goes and is named by {user:?}");
            }
            ToDataplane::PolicyUpdate(id, policy) => {
                state.check_sets(&policy.inbound_rules, &policy.outbound_rules);
                state.policies.insert(id, Arc::unwrap_or_clone(policy));
            }
            ToDataplane::PolicyRemove(id) => {
                assert!(state.policies.remove(&id).is_some(), "unknown policy {id} goes");
                assert!(
                    !state.endpoint_tiers().any(|tier| names(tier, &id)),
                    "policy {id} goes and is in use"
                );
            }
            ToDataplane::ProfileUpdate(name, profile) => {
                state.check_sets(&profile.inbound_rules, &profile.outbound_rules);
                state.profiles.insert(name, Arc::unwrap_or_clone(profile));
            }
            ToDataplane::ProfileRemove(name) => {
                assert!(state.profiles.remove(&name).is_some(), "unknown profile {name} goes");
                let used = state.workloads.values().any(|it| it.profile_ids.contains(&name))
                    || state.hosts.values().any(|it| it.profile_ids.contains(&name));
                assert!(!used, "profile {name} goes and is in use");
            }
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                state.check_endpoint(&endpoint.profile_ids, &endpoint.tiers);
                state.workloads.insert(id, *endpoint);
            }
            ToDataplane::WorkloadEndpointRemove(id) => {
                assert!(state.workloads.remove(&id).is_some(), "unknown endpoint {id:?} goes");
            }
            ToDataplane::HostEndpointUpdate(name, endpoint) => {
                for tiers in [
                    &endpoint.tiers,
                    &endpoint.untracked_tiers,
                    &endpoint.pre_dnat_tiers,
                    &endpoint.forward_tiers,
                ] {
                    state.check_endpoint(&endpoint.profile_ids, tiers);
                }
                state.hosts.insert(name, *endpoint);
            }
            ToDataplane::HostEndpointRemove(name) => {
                assert!(state.hosts.remove(&name).is_some(), "unknown host endpoint {name} goes");
            }
            ToDataplane::NamespaceUpdate(name, labels) => {
                self.network.insert(format!("namespace {name}"), format!("{labels:?}"));
            }
            ToDataplane::NamespaceRemove(name) => {
                assert!(self.network.remove(&format!("namespace {name}")).is_some());
            }
            ToDataplane::ServiceAccountUpdate(namespace, name, labels) => {
                self.network.insert(format!("serviceaccount {namespace}/{name}"), format!("{labels:?}"));
            }
            ToDataplane::ServiceAccountRemove(namespace, name) => {
                assert!(self.network.remove(&format!("serviceaccount {namespace}/{name}")).is_some());
            }
            // The network half has tests of its own.
            _ => {}
        }
    }
}

impl PolicyState {
    fn check_sets(&self, inbound: &[Rule], outbound: &[Rule]) {
        for id in inbound.iter().chain(outbound).flat_map(sets_of) {
            assert!(self.sets.contains_key(id), "a rule names set {id}, which does not exist");
        }
    }

    fn users_of(&self, id: &IpSetId) -> Option<String> {
        let uses = |rules: &[Rule]| rules.iter().flat_map(sets_of).any(|used| used == id);
        let policy = self.policies.iter().find(|(_, it)| uses(&it.inbound_rules) || uses(&it.outbound_rules));
        let profile =
            self.profiles.iter().find(|(_, it)| uses(&it.inbound_rules) || uses(&it.outbound_rules));
        policy.map(|(id, _)| id.to_string()).or_else(|| profile.map(|(name, _)| name.to_string()))
    }

    fn check_endpoint(&self, profiles: &[ProfileName], tiers: &[TierInfo]) {
        for profile in profiles {
            assert!(self.profiles.contains_key(profile), "an endpoint names unknown profile {profile}");
        }
        for id in tiers.iter().flat_map(|tier| tier.ingress_policies.iter().chain(&tier.egress_policies)) {
            assert!(self.policies.contains_key(id), "an endpoint names unknown policy {id}");
        }
    }

    fn endpoint_tiers(&self) -> impl Iterator<Item = &TierInfo> {
        self.workloads.values().flat_map(|it| &it.tiers).chain(self.hosts.values().flat_map(|it| {
            it.tiers.iter().chain(&it.untracked_tiers).chain(&it.pre_dnat_tiers).chain(&it.forward_tiers)
        }))
    }

    /// The state without ids of rules, which the recomputation does not have.
    pub(crate) fn without_rule_ids(mut self) -> Self {
        let policies = self
            .policies
            .values_mut()
            .flat_map(|it| it.inbound_rules.iter_mut().chain(&mut it.outbound_rules));
        let profiles = self
            .profiles
            .values_mut()
            .flat_map(|it| it.inbound_rules.iter_mut().chain(&mut it.outbound_rules));
        for rule in policies.chain(profiles) {
            assert_eq!(rule.rule_id.len(), 16, "each rule has an id");
            rule.rule_id.clear();
        }
        self
    }
}

fn names(tier: &TierInfo, id: &PolicyId) -> bool {
    tier.ingress_policies.contains(id) || tier.egress_policies.contains(id)
}

/// The sets that a rule names.
pub(crate) fn sets_of(rule: &Rule) -> impl Iterator<Item = &IpSetId> {
    [&rule.source, &rule.destination].into_iter().flat_map(|end| {
        end.named_port_ip_set_ids
            .iter()
            .chain(&end.ip_set_ids)
            .chain(&end.ip_port_set_ids)
            .chain(&end.not_named_port_ip_set_ids)
            .chain(&end.not_ip_set_ids)
    })
}
