//! A list: the rules that packets of one direction meet at one endpoint, in order, and what of its tables does not depend on
//! who is in which set.
//!
//! Tiers follow each other, then come the profiles, then the end. The end of a tier is a rule without conditions, and so is the
//! end of the list, so that a packet always meets a decision. A rule that an earlier one of its tier or profile hides is
//! left out.

mod ports;
mod segments;

use crate::conditions::Conditions;
use crate::layout::{
    Action, ListId, MAX_PARTS, MAX_SEGMENTS, PortKey, Row, RowKey, RuleEntry, SEGMENT_RULES, Segment,
};
use crate::spec::{Kind, Spec};
use hashbrown::HashSet;
use messages::{Policy, PolicyId, Profile, ProfileName, Rule};
use model::feed::RuleAction;
use rules::nflog::{self, OwnerKind, Verdict};
use rules::{Direction, names};
use sha2::{Digest, Sha256};

/// The tables' form. A change of it changes the names of all lists.
const FORM: u8 = 1;

/// A rule of a list.
#[derive(Clone, Debug)]
pub(crate) struct ListRule {
    pub(crate) conditions: Conditions,
    pub(crate) entry: RuleEntry,
}

/// A list with what follows from it alone.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) id: ListId,
    pub(crate) rules: Vec<ListRule>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) ports: Vec<(PortKey, u32)>,
    pub(crate) port_rows: Vec<(RowKey, Row)>,
}

/// Why a list could not be made as it should be; its endpoints' packets are denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TooLarge {
    /// So many rules.
    Rules(usize),
    /// So many tiers and profiles.
    Parts(usize),
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rules(rules) => {
                write!(f, "{rules} rules apply, the eBPF dataplane takes {}", MAX_SEGMENTS * SEGMENT_RULES)
            }
            Self::Parts(parts) => {
                write!(f, "{parts} tiers and profiles apply, the eBPF dataplane takes {MAX_PARTS}")
            }
        }
    }
}

/// Where policies and profiles are looked up.
pub(crate) trait Owners {
    fn policy(&self, id: &PolicyId) -> Option<&Policy>;
    fn profile(&self, name: &ProfileName) -> Option<&Profile>;
}

/// The name of a rule in counters: FNV-1a, 64 bit, of its NFLOG prefix.
#[must_use]
pub fn rule_id(prefix: &str) -> u64 {
    prefix.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl List {
    /// The list that a spec asks for.
    pub(crate) fn of(spec: &Spec, owners: &impl Owners) -> (Self, Option<TooLarge>) {
        let mut builder =
            Builder { spec, owners, rules: Vec::new(), seen: HashSet::new(), closed: false, start: 0 };
        builder.fill();
        let parts = spec.tiers.len() + spec.profiles.len();
        let rules = builder.rules;
        if parts > MAX_PARTS {
            return (Self::denying(), Some(TooLarge::Parts(parts)));
        }
        if rules.len() > MAX_SEGMENTS * SEGMENT_RULES {
            return (Self::denying(), Some(TooLarge::Rules(rules.len())));
        }
        (Self::of_rules(rules), None)
    }

    /// The list that denies everything.
    pub(crate) fn denying() -> Self {
        Self::of_rules(vec![always(Action::Deny, 0)])
    }

    fn of_rules(rules: Vec<ListRule>) -> Self {
        let id = content_id(&rules);
        let (ports, values) = ports::ports(id, &rules);
        let segments = segments::segments(&rules);
        let port_rows = segments::port_rows(id, &segments, &values);
        Self { id, rules, segments, ports, port_rows }
    }
}

fn always(action: Action, id: u64) -> ListRule {
    ListRule { conditions: Conditions::default(), entry: RuleEntry { id, next: 0, action } }
}

/// Never 0.
fn content_id(rules: &[ListRule]) -> ListId {
    let mut hash = Sha256::new();
    hash.update([FORM]);
    let mut bytes = Vec::new();
    for rule in rules {
        bytes.clear();
        bytes.extend(rule.entry.id.to_le_bytes());
        bytes.extend(rule.entry.next.to_le_bytes());
        bytes.push(rule.entry.action as u8);
        rule.conditions.encode(&mut bytes);
        hash.update(&bytes);
    }
    first_eight(hash).max(1)
}

/// The first eight bytes of a hash as a number.
pub(crate) fn first_eight(hash: Sha256) -> u64 {
    hash.finalize().iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

struct Builder<'a, O> {
    spec: &'a Spec,
    owners: &'a O,
    rules: Vec<ListRule>,
    /// Conditions of rules of this tier or profile that decide.
    seen: HashSet<Conditions>,
    /// Whether one of them has none.
    closed: bool,
    /// Where this tier or profile starts.
    start: usize,
}

impl<O: Owners> Builder<'_, O> {
    fn fill(&mut self) {
        let Spec { kind, direction, .. } = *self.spec;
        for tier in &self.spec.tiers {
            for id in &tier.policies {
                let Some(policy) = self.owners.policy(id) else { continue };
                let rules = match direction {
                    Direction::Inbound => &policy.inbound_rules,
                    Direction::Outbound => &policy.outbound_rules,
                };
                self.add_rules(rules, OwnerKind::Policy, &names::policy_id(id));
            }
            // Before NAT and connection tracking ordinary policy is still to come, so nothing is refused there.
            if matches!(kind, Kind::Normal | Kind::Forward) {
                let (verdict, action) = match tier.end {
                    RuleAction::Pass => (Verdict::Pass, Action::Pass),
                    _ => (Verdict::Deny, Action::Deny),
                };
                let id = rule_id(&nflog::tier_prefix(verdict, direction, &tier.name));
                self.add(always(action, id));
            }
            self.end_part();
        }
        for name in &self.spec.profiles {
            let Some(profile) = self.owners.profile(name) else { continue };
            let rules = match direction {
                Direction::Inbound => &profile.inbound_rules,
                Direction::Outbound => &profile.outbound_rules,
            };
            self.add_rules(rules, OwnerKind::Profile, name);
            self.end_part();
        }
        self.add(match kind {
            Kind::Normal => always(Action::Deny, rule_id(&nflog::no_profile_prefix(direction))),
            Kind::Disabled => always(Action::Deny, 0),
            Kind::Forward | Kind::BeforeNat | Kind::Untracked => always(Action::None, 0),
        });
    }

    fn add_rules(&mut self, rules: &[Rule], owner: OwnerKind, name: &str) {
        for (index, rule) in rules.iter().enumerate() {
            let (action, verdict) = match rule.action {
                RuleAction::Allow => (Action::Allow, Some(Verdict::Allow)),
                RuleAction::Deny => (Action::Deny, Some(Verdict::Deny)),
                RuleAction::Pass => (Action::Pass, Some(Verdict::Pass)),
                RuleAction::Log => (Action::Log, None),
            };
            let prefix = |verdict| nflog::rule_prefix(verdict, owner, self.spec.direction, index, name);
            let id = verdict.map_or(0, |verdict| rule_id(&prefix(verdict)));
            for conditions in Conditions::of(rule, self.spec.version) {
                self.add(ListRule { conditions, entry: RuleEntry { id, next: 0, action } });
            }
        }
    }

    /// Adds a rule unless no packet can get to it and meet it.
    fn add(&mut self, rule: ListRule) {
        if self.closed || self.seen.contains(&rule.conditions) {
            return;
        }
        if rule.entry.action != Action::Log {
            self.closed = rule.conditions.is_always();
            self.seen.insert(rule.conditions.clone());
        }
        self.rules.push(rule);
    }

    /// The tier or profile is complete: its rules that pass go on behind it.
    fn end_part(&mut self) {
        let next = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        for rule in &mut self.rules[self.start..] {
            if rule.entry.action == Action::Pass {
                rule.entry.next = next;
            }
        }
        self.seen.clear();
        self.closed = false;
        self.start = self.rules.len();
    }
}
