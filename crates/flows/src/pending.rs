//! Evaluates what would be decided about a connection if staged policies were enforced: the pending trace.
//!
//! ```text
//! messages of the calculation ─► Evaluator (rules and sets, compiled) ─► evaluate(endpoint, direction, connection)
//!                                                                             │ cached until anything changes
//!                                                                             ▼
//!                                                                    decisions, in order
//! ```
//!
//! Sees what the kernel sees of a connection's first packet: protocol, addresses, ports, ICMP type and code. Conditions
//! that only a proxy can check (HTTP) match. Does not know interfaces: the caller names the connection's endpoint. For
//! a host, only policy for the host's own traffic is evaluated, not policy for forwarded packets.

mod rule;
mod sets;
mod slots;
#[cfg(test)]
mod tests;

use crate::collector::Tuple;
use crate::key::{Action, Direction, Text};
use crate::trace::{Decider, PolicyHit, PolicyKind, PolicyName};
use hashbrown::HashMap;
use messages::{
    HostEndpoint, HostEndpointName, PolicyId, ProfileName, TierInfo, ToDataplane, WorkloadEndpoint,
    WorkloadEndpointId,
};
use model::feed::RuleAction;
use rule::{CompiledRule, Head};
use rules::names::short_kind;
use sets::{MemberSet, Sets};
use slots::{Slot, Slots};
use std::sync::Arc;

/// The name of the profile that decides when none does.
pub const NO_PROFILE: &str = "__NO_MATCH__";
/// The rule number that stands for "no rule".
const NO_RULE: i64 = -1;
/// The maximum number of cached answers.
const MOST_ANSWERS: usize = 65_536;

/// The name of a policy in traces.
#[must_use]
pub fn policy_name(id: &PolicyId, tier: &str) -> PolicyName {
    PolicyName {
        kind: PolicyKind::from_short(short_kind(id.kind)).unwrap_or_default(),
        tier: Text::from(tier),
        namespace: Text::from(id.namespace.as_str()),
        name: Text::from(id.name.as_str()),
    }
}

/// The name of a profile in traces.
#[must_use]
pub fn profile_name(name: &str) -> PolicyName {
    PolicyName { kind: PolicyKind::Profile, name: Text::from(name), ..PolicyName::default() }
}

/// The decision when no profile decided.
#[must_use]
pub fn no_profile() -> PolicyHit {
    let by = Decider::Rule { policy: profile_name(NO_PROFILE), rule: NO_RULE };
    PolicyHit { index: 0, action: Action::Deny, by }
}

/// A policy or profile with its rules in both directions.
#[derive(Debug, Default)]
struct Compiled {
    name: PolicyName,
    ingress: Rules,
    egress: Rules,
}

/// Rules, and a summary of each that rules out most of them quickly.
#[derive(Debug, Default)]
struct Rules {
    heads: Vec<Head>,
    rules: Vec<CompiledRule>,
}

impl Rules {
    fn new(rules: Vec<CompiledRule>) -> Self {
        Self { heads: rules.iter().map(Head::of).collect(), rules }
    }

    /// Finds the first rule that decides.
    fn find(&self, tuple: &Tuple, sets: &Sets) -> Option<(usize, &CompiledRule)> {
        let worth = self.heads.iter().enumerate().filter(|(_, head)| head.may_match(tuple));
        let mut rules = worth.filter_map(|(place, _)| Some((place, self.rules.get(place)?)));
        rules.find(|(_, rule)| rule.action != RuleAction::Log && rule.matches(tuple, sets))
    }
}

impl Compiled {
    /// Returns the decision of the first rule that decides.
    fn decide(&self, direction: Direction, tuple: &Tuple, sets: &Sets) -> Option<PolicyHit> {
        let rules = match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        };
        let (place, rule) = rules.find(tuple, sets)?;
        let rule_number = i64::try_from(place).unwrap_or(i64::MAX);
        let by = Decider::Rule { policy: self.name.clone(), rule: rule_number };
        Some(PolicyHit { index: 0, action: action(rule.action), by })
    }
}

fn action(action: RuleAction) -> Action {
    match action {
        RuleAction::Allow => Action::Allow,
        RuleAction::Deny => Action::Deny,
        RuleAction::Pass => Action::Pass,
        RuleAction::Log => Action::Unspecified,
    }
}

/// The policies of one tier for one direction.
#[derive(Debug)]
struct TierSteps {
    tier: Text,
    /// What happens to packets that no rule decides about; `None` if evaluation moves on to the next tier without a
    /// decision.
    default_action: Option<Action>,
    policies: Vec<Slot>,
}

/// The name of an endpoint on this node, as in the calculation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LocalEndpoint {
    /// A workload.
    Workload(WorkloadEndpointId),
    /// A host endpoint.
    Host(HostEndpointName),
}

/// The policies and profiles of an endpoint.
#[derive(Debug, Default)]
struct Endpoint {
    ingress: Vec<TierSteps>,
    egress: Vec<TierSteps>,
    profiles: Vec<Slot>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Question {
    endpoint: Slot,
    direction: Direction,
    tuple: Tuple,
}

/// The node's rules and sets, compiled, and the answers cached since they last changed.
#[derive(Debug, Default)]
pub struct Evaluator {
    sets: Sets,
    policies: Slots<PolicyId, Compiled>,
    profiles: Slots<ProfileName, Compiled>,
    endpoints: Slots<LocalEndpoint, Endpoint>,
    generation: u64,
    /// Whether any rule looks at source ports; if not, an answer holds for all of them.
    sees_source_ports: bool,
    answers: HashMap<Question, Arc<[PolicyHit]>>,
    evaluations: u64,
}

impl Evaluator {
    /// Applies a message of the calculation.
    pub fn take(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::IpSetUpdate { id, members, .. } => {
                *self.sets.value(id) = MemberSet::new(members);
            }
            ToDataplane::IpSetDelta { id, added, removed } => self.sets.value(id).change(added, removed),
            ToDataplane::IpSetRemove(id) => self.sets.remove(id),
            ToDataplane::PolicyUpdate(id, policy) => {
                let name = policy_name(id, &policy.tier);
                let compiled = self.compiled(name, &policy.inbound_rules, &policy.outbound_rules);
                *self.policies.value(id) = compiled;
            }
            ToDataplane::PolicyRemove(id) => self.policies.remove(id),
            ToDataplane::ProfileUpdate(name, profile) => {
                let compiled =
                    self.compiled(profile_name(name), &profile.inbound_rules, &profile.outbound_rules);
                *self.profiles.value(name) = compiled;
            }
            ToDataplane::ProfileRemove(name) => self.profiles.remove(name),
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                let endpoint = self.workload(endpoint);
                *self.endpoints.value(&LocalEndpoint::Workload(id.clone())) = endpoint;
            }
            ToDataplane::WorkloadEndpointRemove(id) => {
                self.endpoints.remove(&LocalEndpoint::Workload(id.clone()));
            }
            ToDataplane::HostEndpointUpdate(name, endpoint) => {
                let endpoint = self.host(endpoint);
                *self.endpoints.value(&LocalEndpoint::Host(name.clone())) = endpoint;
            }
            ToDataplane::HostEndpointRemove(name) => {
                self.endpoints.remove(&LocalEndpoint::Host(name.clone()));
            }
            _ => return,
        }
        self.generation += 1;
        self.answers.clear();
    }

    /// A number that changes whenever answers may have changed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How often rules were evaluated because no answer was cached.
    #[must_use]
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// The decisions about a connection at a local endpoint; `None` if the endpoint is not known. The decisions are not
    /// numbered yet. Ports that a host always leaves open (failsafe ports) are not considered: no rule reports packets
    /// to them.
    pub fn evaluate(
        &mut self,
        endpoint: &LocalEndpoint,
        direction: Direction,
        tuple: &Tuple,
    ) -> Option<Arc<[PolicyHit]>> {
        let endpoint = self.endpoints.find(endpoint)?;
        // For ICMP this field is the id, which no rule looks at.
        let is_seen = self.sees_source_ports && !matches!(tuple.protocol, 1 | 58);
        let source_port = if is_seen { tuple.source_port } else { 0 };
        let question = Question { endpoint, direction, tuple: Tuple { source_port, ..*tuple } };
        if let Some(answer) = self.answers.get(&question) {
            return Some(Arc::clone(answer));
        }
        let answer: Arc<[PolicyHit]> = self.decide(self.endpoints.get(endpoint)?, direction, tuple).into();
        self.evaluations += 1;
        if self.answers.len() >= MOST_ANSWERS {
            self.answers.clear();
        }
        self.answers.insert(question, Arc::clone(&answer));
        Some(answer)
    }

    fn decide(&self, endpoint: &Endpoint, direction: Direction, tuple: &Tuple) -> Vec<PolicyHit> {
        let tiers = match direction {
            Direction::Ingress => &endpoint.ingress,
            Direction::Egress => &endpoint.egress,
        };
        let mut hits = Vec::new();
        for tier in tiers {
            let policies = || tier.policies.iter().filter_map(|slot| self.policies.get(*slot));
            let decided = policies().find_map(|policy| policy.decide(direction, tuple, &self.sets));
            let end = || {
                let by = Decider::EndOfTier {
                    tier: Arc::clone(&tier.tier),
                    // The first policy without a match is the one that makes the tier apply.
                    trigger: policies().next().map(|policy| policy.name.clone()),
                };
                Some(PolicyHit { index: 0, action: tier.default_action?, by })
            };
            let Some(hit) = decided.or_else(end) else { continue };
            let is_last = hit.action != Action::Pass;
            hits.push(hit);
            if is_last {
                return hits;
            }
        }
        let profiles = endpoint.profiles.iter().filter_map(|slot| self.profiles.get(*slot));
        // A pass rule ends its profile, and the next profile decides.
        let decided = profiles
            .filter_map(|profile| profile.decide(direction, tuple, &self.sets))
            .find(|hit| hit.action != Action::Pass);
        hits.push(decided.unwrap_or_else(no_profile));
        hits
    }

    fn compiled(
        &mut self,
        name: PolicyName,
        ingress: &[messages::Rule],
        egress: &[messages::Rule],
    ) -> Compiled {
        let mut compile = |rules: &[messages::Rule]| {
            Rules::new(rules.iter().map(|rule| CompiledRule::new(rule, &mut self.sets)).collect())
        };
        let compiled = Compiled { name, ingress: compile(ingress), egress: compile(egress) };
        let mut all = compiled.ingress.rules.iter().chain(&compiled.egress.rules);
        self.sees_source_ports |= all.any(CompiledRule::sees_source_port);
        compiled
    }

    fn workload(&mut self, endpoint: &WorkloadEndpoint) -> Endpoint {
        Endpoint {
            ingress: self.steps(&endpoint.tiers, ingress, true),
            egress: self.steps(&endpoint.tiers, egress, true),
            profiles: self.profiles(&endpoint.profile_ids),
        }
    }

    /// Decisions before connection tracking and before destination translation are final; where no rule decides there,
    /// nothing is traced.
    fn host(&mut self, endpoint: &HostEndpoint) -> Endpoint {
        // Policy without connection tracking needs a named interface.
        let untracked: &[TierInfo] = if endpoint.name == "*" { &[] } else { &endpoint.untracked_tiers };
        let mut all = |side: Side, before_translation: &[TierInfo]| {
            let mut steps = self.steps(untracked, side, false);
            steps.extend(self.steps(before_translation, side, false));
            steps.extend(self.steps(&endpoint.tiers, side, true));
            steps
        };
        Endpoint {
            ingress: all(ingress, &endpoint.pre_dnat_tiers),
            egress: all(egress, &[]),
            profiles: self.profiles(&endpoint.profile_ids),
        }
    }

    fn steps(&mut self, tiers: &[TierInfo], side: Side, decides: bool) -> Vec<TierSteps> {
        let tiers = tiers.iter().filter(|tier| !side(tier).is_empty());
        tiers
            .map(|tier| TierSteps {
                tier: tier.name.text().clone(),
                default_action: decides.then(|| action(tier.default_action)),
                policies: side(tier).iter().map(|id| self.policies.slot(id)).collect(),
            })
            .collect()
    }

    fn profiles(&mut self, names: &[ProfileName]) -> Vec<Slot> {
        names.iter().map(|name| self.profiles.slot(name)).collect()
    }
}

/// The policies of a tier for one direction.
type Side = fn(&TierInfo) -> &[PolicyId];

fn ingress(tier: &TierInfo) -> &[PolicyId] {
    &tier.ingress_policies
}

fn egress(tier: &TierInfo) -> &[PolicyId] {
    &tier.egress_policies
}
