//! Policies of this node, by the texts that rules report: the tier of each, and the policy because of which a tier
//! applies.
//!
//! A removed policy is still known for a while: packets that its rules reported arrive after its removal.

use flows::collector::{End, EndKind};
use flows::nflog::{Owner, Prefix, PrefixTable};
use flows::pending::{no_profile, policy_name, profile_name};
use flows::{Action, Decider, Direction, PolicyHit, PolicyName, Text};
use messages::{HostEndpointName, PolicyId, ProfileName, Rule, TierInfo, ToDataplane};
use model::feed::RuleAction;
use rules::names::{is_staged, policy_id};
use std::collections::{BTreeMap, HashMap};

/// How long a policy is known after its removal, in seconds.
const MEMORY: i64 = 10;

#[derive(Debug)]
struct Known {
    name: PolicyName,
    /// Texts of its rules that do not parse as what they mean.
    odd: Vec<Prefix>,
    /// When it was removed; the time is filled in by the next tick.
    gone: Option<Option<i64>>,
}

/// The policy because of which a tier applies, by direction and tier.
type Triggers = BTreeMap<(Direction, Text), PolicyName>;

/// The policies.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// By the name in texts: `np/namespace/name`.
    known: HashMap<Text, Known>,
    profiles: HashMap<ProfileName, Vec<Prefix>>,
    prefixes: PrefixTable,
    /// By workload.
    of_workloads: HashMap<Text, Triggers>,
    /// By host endpoint, all on this host.
    of_hosts: BTreeMap<HostEndpointName, Triggers>,
}

impl Policies {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn take(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::PolicyUpdate(id, policy) => {
                let text = Text::from(policy_id(id));
                self.forget_odd(&text);
                let owner = |rule| Owner::Policy { id: text.clone(), rule };
                let odd = self.note_odd(&owner, &policy.inbound_rules, &policy.outbound_rules);
                let name = policy_name(id, &policy.tier);
                self.known.insert(text, Known { name, odd, gone: None });
            }
            ToDataplane::PolicyRemove(id) => {
                if let Some(known) = self.known.get_mut(policy_id(id).as_str()) {
                    known.gone.get_or_insert(None);
                }
            }
            ToDataplane::ProfileUpdate(name, profile) => {
                self.forget_profile(name);
                let owner = |rule| Owner::Profile { name: name.text().clone(), rule };
                let odd = self.note_odd(&owner, &profile.inbound_rules, &profile.outbound_rules);
                self.profiles.insert(name.clone(), odd);
            }
            ToDataplane::ProfileRemove(name) => self.forget_profile(name),
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                let triggers = self.triggers(endpoint.tiers.iter());
                self.of_workloads.insert(id.workload.clone(), triggers);
            }
            ToDataplane::WorkloadEndpointRemove(id) => drop(self.of_workloads.remove(&id.workload)),
            ToDataplane::HostEndpointUpdate(name, endpoint) => {
                let tiers =
                    endpoint.forward_tiers.iter().chain(&endpoint.pre_dnat_tiers).chain(&endpoint.tiers);
                let triggers = self.triggers(tiers);
                self.of_hosts.insert(name.clone(), triggers);
            }
            ToDataplane::HostEndpointRemove(name) => drop(self.of_hosts.remove(name)),
            _ => {}
        }
    }

    /// Forgets policies that have been gone for long enough.
    pub(super) fn tick(&mut self, now: i64) {
        let mut old = Vec::new();
        for (text, known) in &mut self.known {
            if let Some(gone) = &mut known.gone
                && now - *gone.get_or_insert(now) >= MEMORY
            {
                old.push(text.clone());
            }
        }
        for text in old {
            self.forget_odd(&text);
            self.known.remove(&text);
        }
    }

    /// The meaning of a reported packet's text.
    pub(super) fn prefix(&self, text: &str) -> Option<Prefix> {
        self.prefixes.resolve(text)
    }

    /// The decision that a text represents, at a local end.
    pub(super) fn decision(&self, prefix: &Prefix, local: &End) -> Option<PolicyHit> {
        let number = |rule: usize| i64::try_from(rule).unwrap_or(i64::MAX);
        let by = match &prefix.owner {
            Owner::Policy { id, rule } => {
                Decider::Rule { policy: self.known.get(id)?.name.clone(), rule: number(*rule) }
            }
            Owner::Profile { name, rule } => {
                Decider::Rule { policy: profile_name(name), rule: number(*rule) }
            }
            Owner::EndOfTier(tier) => {
                let key = (prefix.direction, tier.clone());
                let own = match &local.kind {
                    EndKind::Workload { namespace, name, .. } => {
                        self.of_workloads.get(format!("{namespace}/{name}").as_str())
                    }
                    EndKind::Host { .. } | EndKind::NetworkSet { .. } | EndKind::Network => None,
                };
                // Host endpoints decide about packets that pass through the host, wherever they go.
                let trigger = own
                    .into_iter()
                    .chain(self.of_hosts.values())
                    .find_map(|triggers| triggers.get(&key))
                    .cloned();
                // A tier whose policies are all staged decides nothing.
                Decider::EndOfTier { tier: tier.clone(), trigger: Some(trigger?) }
            }
            Owner::NoProfile => return Some(no_profile()),
        };
        Some(PolicyHit { index: 0, action: prefix.action, by })
    }

    /// Records the texts that do not parse as what they mean.
    fn note_odd(&mut self, owner: &dyn Fn(usize) -> Owner, ingress: &[Rule], egress: &[Rule]) -> Vec<Prefix> {
        let mut odd = Vec::new();
        for (direction, rules) in [(Direction::Ingress, ingress), (Direction::Egress, egress)] {
            for (place, rule) in rules.iter().enumerate() {
                let action = match rule.action {
                    RuleAction::Allow => Action::Allow,
                    RuleAction::Deny => Action::Deny,
                    RuleAction::Pass => Action::Pass,
                    RuleAction::Log => continue,
                };
                let prefix = Prefix { action, direction, owner: owner(place) };
                if self.note(&prefix) {
                    odd.push(prefix);
                }
            }
        }
        odd
    }

    /// Records a text; returns whether that was necessary.
    fn note(&mut self, prefix: &Prefix) -> bool {
        let is_odd = prefix.text().is_some_and(|text| Prefix::parse(&text).as_ref() != Some(prefix));
        if is_odd {
            self.prefixes.insert(prefix.clone());
        }
        is_odd
    }

    fn forget_odd(&mut self, text: &str) {
        for prefix in self.known.get_mut(text).map(|known| std::mem::take(&mut known.odd)).unwrap_or_default()
        {
            self.prefixes.remove(&prefix);
        }
    }

    fn forget_profile(&mut self, name: &ProfileName) {
        for prefix in self.profiles.remove(name).unwrap_or_default() {
            self.prefixes.remove(&prefix);
        }
    }

    /// The last enforced policy of each tier and direction.
    fn triggers<'a>(&mut self, tiers: impl Iterator<Item = &'a TierInfo>) -> Triggers {
        let mut triggers = Triggers::new();
        for tier in tiers {
            let name = tier.name.text().clone();
            for (direction, policies) in
                [(Direction::Ingress, &tier.ingress_policies), (Direction::Egress, &tier.egress_policies)]
            {
                for action in [Action::Deny, Action::Pass] {
                    self.note(&Prefix { action, direction, owner: Owner::EndOfTier(name.clone()) });
                }
                let last = policies.iter().rfind(|id: &&PolicyId| !is_staged(id.kind));
                if let Some(id) = last {
                    triggers.insert((direction, name.clone()), policy_name(id, &tier.name));
                }
            }
        }
        triggers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;
    use messages::{Policy, WorkloadEndpoint, WorkloadEndpointId};
    use model::v1::PolicyKey;
    use std::sync::Arc;

    fn id(kind: Kind, name: &str) -> PolicyId {
        let namespace = if kind == Kind::NetworkPolicy { "shop" } else { "" };
        Arc::new(PolicyKey { kind, namespace: namespace.into(), name: name.into() })
    }

    fn local(name: &str) -> End {
        let kind =
            EndKind::Workload { namespace: "shop".into(), name: name.into(), generate_name: "".into() };
        End { kind, is_local: true, labels: flows::Labels::default() }
    }

    fn shown(policies: &Policies, text: &str) -> Option<String> {
        let prefix = policies.prefix(text)?;
        policies.decision(&prefix, &local("web")).map(|hit| hit.to_string())
    }

    #[test]
    fn texts_are_read_with_the_tiers_of_their_policies() {
        let mut policies = Policies::default();
        let rules = vec![Rule { action: RuleAction::Allow, ..Rule::default() }];
        let policy = |tier: &str| {
            let policy = Policy { tier: tier.into(), inbound_rules: rules.clone(), ..Policy::default() };
            Arc::new(policy)
        };
        let long = id(Kind::NetworkPolicy, &"long-name-".repeat(8));
        let (first, staged) =
            (id(Kind::GlobalNetworkPolicy, "first"), id(Kind::StagedGlobalNetworkPolicy, "tried"));
        for (id, tier) in [(&long, "default"), (&first, "platform"), (&staged, "platform")] {
            policies.take(&ToDataplane::PolicyUpdate(Arc::clone(id), policy(tier)));
        }
        let tiers = vec![
            TierInfo {
                name: "platform".into(),
                ingress_policies: vec![Arc::clone(&first), Arc::clone(&staged)],
                ..TierInfo::default()
            },
            TierInfo {
                name: "trial".into(),
                ingress_policies: vec![Arc::clone(&staged)],
                ..TierInfo::default()
            },
        ];
        let endpoint = WorkloadEndpoint { tiers, ..WorkloadEndpoint::default() };
        let name = WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: "shop/web".into(),
            endpoint: "eth0".into(),
        };
        policies.take(&ToDataplane::WorkloadEndpointUpdate(name, Box::new(endpoint)));
        let owner = Owner::Policy { id: policy_id(&long).into(), rule: 0 };
        let shortened =
            Prefix { action: Action::Allow, direction: Direction::Ingress, owner }.text().unwrap();
        assert_eq!(shortened.len(), 63);
        let long_hit = format!("0|default|np:shop/{}|allow|0", "long-name-".repeat(8));
        for (text, expected) in [
            ("PPI3|gnp/first", Some("0|platform|gnp:first|pass|3")),
            ("DPI|platform", Some("0|platform|gnp:first|deny|-1")),
            ("PPI|trial", None),
            ("ARE1|kns.shop", Some("0|__PROFILE__|pro:kns.shop|allow|1")),
            ("DRI", Some("0|__PROFILE__|pro:__NO_MATCH__|deny|-1")),
            ("API0|gnp/unknown", None),
            (shortened.as_str(), Some(long_hit.as_str())),
        ] {
            assert_eq!(shown(&policies, text).as_deref(), expected, "{text}");
        }
        policies.take(&ToDataplane::PolicyRemove(Arc::clone(&long)));
        policies.tick(5);
        assert!(shown(&policies, &shortened).is_some(), "for a while");
        policies.tick(15);
        assert_eq!(shown(&policies, &shortened), None);
        assert_eq!(policies.len(), 2);
    }
}
