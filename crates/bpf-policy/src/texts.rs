//! Names of rules by id: programs report a rule by the hash of its NFLOG prefix, and this is the reverse mapping.
//!
//! A removed rule stays known for a while, because programs' reports arrive later than the removal.

use crate::list::rule_id;
use messages::{ProfileName, Rule, Text, TierInfo, ToDataplane};
use model::feed::RuleAction;
use rules::nflog::{OwnerKind, Verdict, no_profile_prefix, rule_prefix, tier_prefix};
use rules::{Direction, names};
use std::collections::{BTreeSet, HashMap};

/// How long a removed rule stays known, in seconds.
const MEMORY: i64 = 10;
const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];

/// The owner of rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Policy(String),
    Profile(ProfileName),
}

/// NFLOG prefixes by rule id.
#[derive(Debug)]
pub struct RuleTexts {
    /// With the number of owners that have the rule, including removed ones.
    texts: HashMap<u64, (Text, usize)>,
    owners: HashMap<Owner, Vec<u64>>,
    /// Removed rules, and since when; the next tick fills in the time.
    gone: Vec<(Option<i64>, Vec<u64>)>,
    /// Ids added or removed since changes were last taken.
    changed: BTreeSet<u64>,
}

impl Default for RuleTexts {
    fn default() -> Self {
        let mut all = Self {
            texts: HashMap::new(),
            owners: HashMap::new(),
            gone: Vec::new(),
            changed: BTreeSet::new(),
        };
        for direction in DIRECTIONS {
            all.add(no_profile_prefix(direction));
        }
        all
    }
}

impl RuleTexts {
    /// The NFLOG prefix of a rule, or of the end of a tier.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Text> {
        self.texts.get(&id).map(|(text, _)| text)
    }

    /// Returns the changes since the last call; `None` for a rule that is forgotten.
    pub fn take_changed(&mut self) -> Vec<(u64, Option<Text>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|id| (id, self.get(id).cloned())).collect()
    }

    /// Marks everything as changed.
    pub fn change_all(&mut self) {
        self.changed.extend(self.texts.keys());
    }

    /// Takes in a message.
    pub fn hear(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::PolicyUpdate(id, policy) => {
                let name = names::policy_id(id);
                let rules = [&policy.inbound_rules, &policy.outbound_rules];
                self.set(Owner::Policy(name.clone()), OwnerKind::Policy, &name, rules.map(Vec::as_slice));
            }
            ToDataplane::PolicyRemove(id) => self.forget(&Owner::Policy(names::policy_id(id))),
            ToDataplane::ProfileUpdate(name, profile) => {
                let rules = [&profile.inbound_rules, &profile.outbound_rules];
                self.set(Owner::Profile(name.clone()), OwnerKind::Profile, name, rules.map(Vec::as_slice));
            }
            ToDataplane::ProfileRemove(name) => self.forget(&Owner::Profile(name.clone())),
            ToDataplane::WorkloadEndpointUpdate(_, endpoint) => self.add_tiers(&endpoint.tiers),
            ToDataplane::HostEndpointUpdate(_, endpoint) => {
                self.add_tiers(&endpoint.tiers);
                self.add_tiers(&endpoint.forward_tiers);
            }
            _ => {}
        }
    }

    /// Forgets rules that were removed long enough ago; the time is in seconds.
    pub fn tick(&mut self, now: i64) {
        let mut old = Vec::new();
        self.gone.retain_mut(|(since, ids)| {
            let is_old = now - *since.get_or_insert(now) >= MEMORY;
            if is_old {
                old.append(ids);
            }
            !is_old
        });
        for id in old {
            if let Some((_, owners)) = self.texts.get_mut(&id) {
                *owners -= 1;
                if *owners == 0 {
                    self.texts.remove(&id);
                    self.changed.insert(id);
                }
            }
        }
    }

    fn set(&mut self, owner: Owner, kind: OwnerKind, name: &str, rules: [&[Rule]; 2]) {
        let mut ids = Vec::new();
        for (direction, rules) in DIRECTIONS.into_iter().zip(rules) {
            for (index, rule) in rules.iter().enumerate() {
                let verdict = match rule.action {
                    RuleAction::Allow => Verdict::Allow,
                    RuleAction::Deny => Verdict::Deny,
                    RuleAction::Pass => Verdict::Pass,
                    RuleAction::Log => continue,
                };
                ids.push(self.add(rule_prefix(verdict, kind, direction, index, name)));
            }
        }
        let old = self.owners.insert(owner, ids);
        self.gone.extend(old.map(|ids| (None, ids)));
    }

    fn forget(&mut self, owner: &Owner) {
        let old = self.owners.remove(owner);
        self.gone.extend(old.map(|ids| (None, ids)));
    }

    /// Adds tiers, which are few and never forgotten.
    fn add_tiers(&mut self, tiers: &[TierInfo]) {
        for tier in tiers {
            for direction in DIRECTIONS {
                for verdict in [Verdict::Deny, Verdict::Pass] {
                    let text = tier_prefix(verdict, direction, &tier.name);
                    if !self.texts.contains_key(&rule_id(&text)) {
                        self.add(text);
                    }
                }
            }
        }
    }

    fn add(&mut self, text: String) -> u64 {
        let id = rule_id(&text);
        let changed = &mut self.changed;
        let new = || {
            changed.insert(id);
            (text.into(), 0)
        };
        self.texts.entry(id).or_insert_with(new).1 += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;
    use messages::{Policy, PolicyId, WorkloadEndpoint, WorkloadEndpointId};
    use model::v1::PolicyKey;
    use std::sync::Arc;

    fn policy(actions: &[RuleAction]) -> ToDataplane {
        let rule = |action: &RuleAction| Rule { action: *action, ..Rule::default() };
        let policy = Policy { inbound_rules: actions.iter().map(rule).collect(), ..Policy::default() };
        ToDataplane::PolicyUpdate(id(), Arc::new(policy))
    }

    fn id() -> PolicyId {
        Arc::new(PolicyKey {
            kind: Kind::GlobalNetworkPolicy,
            namespace: String::new(),
            name: "p".to_owned(),
        })
    }

    fn known(texts: &RuleTexts) -> Vec<String> {
        let mut all: Vec<String> = texts.texts.values().map(|(text, _)| text.to_string()).collect();
        all.sort();
        all
    }

    #[test]
    fn rules_are_known_by_id_and_for_a_while_after_removal() {
        let mut texts = RuleTexts::default();
        texts.hear(&policy(&[RuleAction::Allow, RuleAction::Log, RuleAction::Pass]));
        assert_eq!(known(&texts), ["API0|gnp/p", "DRE", "DRI", "PPI2|gnp/p"]);
        assert_eq!(texts.get(rule_id("API0|gnp/p")).map(|text| &**text), Some("API0|gnp/p"));
        texts.hear(&policy(&[RuleAction::Allow]));
        texts.tick(100);
        assert_eq!(known(&texts).len(), 4, "it may still be reported");
        texts.tick(110);
        assert_eq!(known(&texts), ["API0|gnp/p", "DRE", "DRI"]);
        texts.hear(&ToDataplane::PolicyRemove(id()));
        texts.tick(200);
        texts.tick(210);
        assert_eq!(known(&texts), ["DRE", "DRI"]);
        assert_eq!((texts.owners.len(), texts.gone.len()), (0, 0));
        let changed = texts.take_changed();
        assert_eq!(changed.iter().filter(|(_, text)| text.is_some()).count(), 2);
        assert_eq!((changed.len(), texts.take_changed()), (4, Vec::new()));
        texts.change_all();
        assert_eq!(texts.take_changed().len(), 2);
    }

    #[test]
    fn ends_of_tiers_are_known() {
        let mut texts = RuleTexts::default();
        let tier = TierInfo { name: "default".into(), ..TierInfo::default() };
        let endpoint = WorkloadEndpoint { tiers: vec![tier], ..WorkloadEndpoint::default() };
        let id = WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: "ns/pod".into(),
            endpoint: "eth0".into(),
        };
        texts.hear(&ToDataplane::WorkloadEndpointUpdate(id, Box::new(endpoint)));
        assert_eq!(known(&texts), ["DPE|default", "DPI|default", "DRE", "DRI", "PPE|default", "PPI|default"]);
    }
}
