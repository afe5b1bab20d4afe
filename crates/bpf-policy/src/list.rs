//! A list: the rules that apply to packets of one direction at one endpoint, in order, and the part of its tables that
//! does not depend on the members of sets.
//!
//! Tiers are followed by profiles and the end. The end of a tier is a rule without conditions, and so is the end of the
//! list, so that every packet gets a decision. A rule that is hidden by an earlier one of its tier or profile is left
//! out.

mod ports;
mod segments;

use crate::layout::{
    Action, ListId, MAX_PARTS, MAX_SEGMENTS, PortKey, Row, RowKey, RuleEntry, SEGMENT_RULES, Segment,
};
use crate::parts::{ConditionsId, Part, Parts, Shared};
use crate::spec::{Kind, Spec};
use hashbrown::HashSet;
use messages::{PolicyId, ProfileName};
use model::feed::RuleAction;
use rules::nflog::{self, Verdict};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The version of the tables' format. Changing it changes the ids of all lists.
const FORM: u8 = 2;

/// A rule of a list.
#[derive(Clone, Debug)]
pub(crate) struct ListRule {
    pub(crate) conditions: Arc<Shared>,
    pub(crate) entry: RuleEntry,
}

/// A list and everything derived from it alone.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) id: ListId,
    pub(crate) rules: Vec<ListRule>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) ports: Vec<(PortKey, u32)>,
    pub(crate) port_rows: Vec<(RowKey, Row)>,
}

/// Why a list could not be built; its endpoints' packets are denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TooLarge {
    /// The number of rules, which is too large.
    Rules(usize),
    /// The number of tiers and profiles, which is too large.
    Parts(usize),
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rules(rules) => {
                write!(
                    f,
                    "{rules} rules apply, but the eBPF dataplane supports at most {}",
                    MAX_SEGMENTS * SEGMENT_RULES
                )
            }
            Self::Parts(parts) => {
                write!(
                    f,
                    "{parts} tiers and profiles apply, but the eBPF dataplane supports at most {MAX_PARTS}"
                )
            }
        }
    }
}

/// Looks up policies and profiles.
pub(crate) trait Owners {
    fn policy(&self, id: &PolicyId) -> Option<&Parts>;
    fn profile(&self, name: &ProfileName) -> Option<&Parts>;
    /// The conditions that every packet matches.
    fn always(&self) -> &Arc<Shared>;
}

/// The id of a rule in counters: 64-bit FNV-1a of its NFLOG prefix.
#[must_use]
pub fn rule_id(prefix: &str) -> u64 {
    prefix.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl List {
    /// Builds the list for a spec.
    pub(crate) fn of(spec: &Spec, owners: &impl Owners) -> (Self, Option<TooLarge>) {
        let mut builder =
            Builder { spec, owners, rules: Vec::new(), seen: HashSet::new(), closed: false, start: 0 };
        builder.fill();
        let parts = spec.tiers.len() + spec.profiles.len();
        let rules = builder.rules;
        if parts > MAX_PARTS {
            return (Self::denying(owners), Some(TooLarge::Parts(parts)));
        }
        if rules.len() > MAX_SEGMENTS * SEGMENT_RULES {
            return (Self::denying(owners), Some(TooLarge::Rules(rules.len())));
        }
        (Self::of_rules(rules), None)
    }

    /// The list that denies everything.
    fn denying(owners: &impl Owners) -> Self {
        Self::of_rules(vec![always(owners, Action::Deny, 0)])
    }

    /// Whether any rule logs.
    pub(crate) fn has_logs(&self) -> bool {
        self.rules.iter().any(|rule| rule.entry.action == Action::Log)
    }

    fn of_rules(rules: Vec<ListRule>) -> Self {
        let id = content_id(&rules);
        let (ports, values) = ports::ports(id, &rules);
        let segments = segments::segments(&rules);
        let port_rows = segments::port_rows(id, &segments, &values);
        Self { id, rules, segments, ports, port_rows }
    }
}

fn always(owners: &impl Owners, action: Action, id: u64) -> ListRule {
    ListRule { conditions: owners.always().clone(), entry: RuleEntry { id, next: 0, action } }
}

/// Never [`ListId::NONE`].
fn content_id(rules: &[ListRule]) -> ListId {
    let mut hash = Sha256::new();
    hash.update([FORM]);
    for rule in rules {
        hash.update(rule.entry.id.to_le_bytes());
        hash.update(rule.entry.next.to_le_bytes());
        hash.update([rule.entry.action as u8]);
        hash.update(rule.conditions.id());
    }
    ListId(first_eight(hash).max(1))
}

/// The first eight bytes of a hash as a number.
pub(crate) fn first_eight(hash: Sha256) -> u64 {
    hash.finalize().iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

struct Builder<'a, O> {
    spec: &'a Spec,
    owners: &'a O,
    rules: Vec<ListRule>,
    /// Conditions of earlier deciding rules of this tier or profile.
    seen: HashSet<ConditionsId>,
    /// Whether one of those rules has no conditions.
    closed: bool,
    /// The index at which this tier or profile starts.
    start: usize,
}

impl<O: Owners> Builder<'_, O> {
    fn fill(&mut self) {
        let Spec { kind, direction, version, .. } = *self.spec;
        let owners = self.owners;
        for tier in &self.spec.tiers {
            for id in &tier.policies {
                let Some(policy) = owners.policy(id) else { continue };
                self.add_parts(policy.of(direction, version));
            }
            // Before NAT and connection tracking, ordinary policy is still to come, so nothing is denied at the end.
            if matches!(kind, Kind::Normal | Kind::Forward) {
                let (verdict, action) = match tier.end {
                    RuleAction::Pass => (Verdict::Pass, Action::Pass),
                    _ => (Verdict::Deny, Action::Deny),
                };
                let id = rule_id(&nflog::tier_prefix(verdict, direction, &tier.name));
                self.add(always(owners, action, id));
            }
            self.end_part();
        }
        for name in &self.spec.profiles {
            let Some(profile) = owners.profile(name) else { continue };
            self.add_parts(profile.of(direction, version));
            self.end_part();
        }
        self.add(match kind {
            Kind::Normal => always(owners, Action::Deny, rule_id(&nflog::no_profile_prefix(direction))),
            Kind::Disabled => always(owners, Action::Deny, 0),
            Kind::Forward | Kind::BeforeNat | Kind::Untracked => always(owners, Action::None, 0),
        });
    }

    fn add_parts(&mut self, parts: &[Part]) {
        for Part { conditions, id, action } in parts {
            let entry = RuleEntry { id: *id, next: 0, action: *action };
            self.add(ListRule { conditions: conditions.clone(), entry });
        }
    }

    /// Adds a rule unless no packet can reach and match it.
    fn add(&mut self, rule: ListRule) {
        if self.closed || self.seen.contains(rule.conditions.id()) {
            return;
        }
        if rule.entry.action != Action::Log {
            self.closed = rule.conditions.is_always();
            self.seen.insert(*rule.conditions.id());
        }
        self.rules.push(rule);
    }

    /// Ends the tier or profile: its pass rules continue behind it.
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
