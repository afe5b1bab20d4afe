//! Policies and profiles in the form that lists need: the conditions of their rules, by direction and IP version. Equal
//! conditions are stored once, however many rules have them.
//!
//! Messages are not kept: a rule has dozens of fields, and its conditions are computed once for all lists that contain
//! the policy.

use crate::conditions::Conditions;
use crate::layout::Action;
use crate::list::rule_id;
use hashbrown::HashMap;
use messages::Rule;
use model::IpVersion;
use model::feed::RuleAction;
use rules::Direction;
use rules::nflog::{self, OwnerKind, Verdict};
use sha2::{Digest as _, Sha256};
use std::ops::Deref;
use std::sync::Arc;

const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];

/// A hash that identifies conditions.
pub(crate) type ConditionsId = [u8; 32];

/// Conditions with their id.
#[derive(Debug)]
pub(crate) struct Shared {
    conditions: Conditions,
    id: ConditionsId,
}

/// The part of a rule that lists consist of.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) conditions: Arc<Shared>,
    /// The rule's id in counters; 0 for a rule that logs.
    pub(crate) id: u64,
    pub(crate) action: Action,
}

/// The rules of a policy or profile, by direction and IP version.
#[derive(Debug, Default)]
pub(crate) struct Parts([[Box<[Part]>; 2]; 2]);

/// All conditions in use.
#[derive(Debug)]
pub(crate) struct Pool {
    all: HashMap<ConditionsId, Arc<Shared>>,
    /// The conditions that every packet matches.
    always: Arc<Shared>,
}

impl Shared {
    fn new(conditions: Conditions) -> Self {
        let mut bytes = Vec::new();
        conditions.encode(&mut bytes);
        Self { conditions, id: Sha256::digest(&bytes).into() }
    }

    pub(crate) fn id(&self) -> &ConditionsId {
        &self.id
    }
}

impl Deref for Shared {
    type Target = Conditions;

    fn deref(&self) -> &Conditions {
        &self.conditions
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self { all: HashMap::new(), always: Arc::new(Shared::new(Conditions::default())) }
    }
}

impl Parts {
    pub(crate) fn of(&self, direction: Direction, version: IpVersion) -> &[Part] {
        &self.0[usize::from(direction == Direction::Outbound)][usize::from(version == IpVersion::V6)]
    }
}

impl Pool {
    /// The conditions that every packet matches.
    pub(crate) fn always(&self) -> &Arc<Shared> {
        &self.always
    }

    /// Adds the rules of a policy or profile, inbound and outbound.
    pub(crate) fn take(&mut self, rules: [&[Rule]; 2], owner: OwnerKind, name: &str) -> Parts {
        let mut parts = Parts::default();
        for ((direction, rules), by_version) in DIRECTIONS.into_iter().zip(rules).zip(&mut parts.0) {
            for (version, own) in IpVersion::BOTH.into_iter().zip(by_version) {
                let mut all = Vec::with_capacity(rules.len());
                for (index, rule) in rules.iter().enumerate() {
                    let (action, verdict) = match rule.action {
                        RuleAction::Allow => (Action::Allow, Some(Verdict::Allow)),
                        RuleAction::Deny => (Action::Deny, Some(Verdict::Deny)),
                        RuleAction::Pass => (Action::Pass, Some(Verdict::Pass)),
                        RuleAction::Log => (Action::Log, None),
                    };
                    let prefix = |verdict| nflog::rule_prefix(verdict, owner, direction, index, name);
                    let id = verdict.map_or(0, |verdict| rule_id(&prefix(verdict)));
                    let conditions = Conditions::of(rule, version).into_iter();
                    all.extend(conditions.map(|one| Part { conditions: self.share(one), id, action }));
                }
                *own = all.into();
            }
        }
        parts
    }

    fn share(&mut self, conditions: Conditions) -> Arc<Shared> {
        if conditions.is_always() {
            return self.always.clone();
        }
        let new = Shared::new(conditions);
        self.all.entry(new.id).or_insert_with(|| Arc::new(new)).clone()
    }

    /// Removes rules, and conditions that no other rule uses.
    pub(crate) fn release(&mut self, parts: Parts) {
        for part in parts.0.into_iter().flatten().flatten() {
            let Part { conditions, .. } = part;
            let id = conditions.id;
            drop(conditions);
            if self.all.get(&id).is_some_and(|shared| Arc::strong_count(shared) == 1) {
                self.all.remove(&id);
            }
        }
    }

    /// The number of different conditions.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
