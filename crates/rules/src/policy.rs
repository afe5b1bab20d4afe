//! The chains of policies and profiles.
//!
//! A rule of a policy becomes one rule that sets a bit of the mark and one that acts on the bit, so that an action with
//! several parts (report, return) matches only once. If one rule of the kernel cannot hold the conditions, blocks of
//! rules before it do ([`blocks`]). Every rule that validation accepts becomes rules that the kernel accepts; a rule
//! that was never valid is read so that it cannot allow more than was meant ([`conditions`]).

mod blocks;
mod compiled;
mod conditions;
mod log_prefix;

pub(crate) use blocks::split_ports;
pub use compiled::{CompiledPolicies, PolicySequence, UnionSet};

use crate::names::{Direction, is_staged, policy_id};
use crate::nflog::{self, OwnerKind, Verdict};
use crate::renderer::{Renderer, mark_set};
use crate::tree::{Action, Chain, ChainName, IpVersion, Match, Rule, Table, Text};
use api::Denied;
use conditions::Conditions;
use messages::{Policy, Profile};
use model::feed::RuleAction;
use model::v1::PolicyKey;

/// The number of a rule's annotations that become comments. More would not fit into a line of `iptables-restore`.
const MAX_ANNOTATIONS: usize = 12;

/// The owner of the rules that are rendered.
struct Owner<'a> {
    kind: OwnerKind,
    id: &'a str,
    direction: Direction,
    untracked: bool,
    log_prefix: Text,
    comment: Text,
}

/// A chain, and the tables in which it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedChain {
    /// The chain.
    pub chain: Chain,
    /// The tables in which something may lead to the chain.
    pub tables: Vec<Table>,
}

/// The tables in which a policy is enforced: for packets to its endpoints, and for packets from them.
fn tables(policy: &Policy) -> [&'static [Table]; 2] {
    match policy {
        Policy { untracked: true, .. } => [&[Table::Raw]; 2],
        Policy { pre_dnat: true, .. } => [&[Table::Mangle]; 2],
        _ => ORDINARY,
    }
}

/// Packets from the host to endpoints behind NAT meet their policy after routing.
const ORDINARY: [&[Table]; 2] = [&[Table::Filter], &[Table::Filter, Table::Mangle]];

impl Renderer {
    /// Renders the chains of a policy, each once with the tables that it serves; none for a staged policy. A chain is
    /// the same in several tables unless packets are rejected, which the kernel does not support everywhere.
    #[must_use]
    pub fn policy_chains(&self, key: &PolicyKey, policy: &Policy, version: IpVersion) -> Vec<PlacedChain> {
        if is_staged(key.kind) {
            return Vec::new();
        }
        let id = policy_id(key);
        let log_prefix = self.policy_log_prefix(key, &policy.tier);
        let (kind, name) = (key.kind.as_str(), log_prefix::full_name(key));
        let owner = |direction: Direction| Owner {
            kind: OwnerKind::Policy,
            id: &id,
            direction,
            untracked: policy.untracked,
            log_prefix: log_prefix.clone(),
            comment: format!("{kind} {name} {}", direction.as_str()).into(),
        };
        let [inbound, outbound] = tables(policy);
        let mut placed = Vec::with_capacity(2);
        for (direction, tables, rules) in [
            (Direction::Inbound, inbound, &policy.inbound_rules),
            (Direction::Outbound, outbound, &policy.outbound_rules),
        ] {
            let chain = self.backend().policy_chain(direction, key);
            self.place(&chain, tables, rules, version, &owner(direction), &mut placed);
        }
        placed
    }

    /// Renders the chains of a profile, each once with the tables that it serves.
    #[must_use]
    pub fn profile_chains(&self, name: &str, profile: &Profile, version: IpVersion) -> Vec<PlacedChain> {
        let log_prefix = self.profile_log_prefix(name);
        let owner = |direction: Direction| Owner {
            kind: OwnerKind::Profile,
            id: name,
            direction,
            untracked: false,
            log_prefix: log_prefix.clone(),
            comment: format!("Profile {name} {}", direction.as_str()).into(),
        };
        let [inbound, outbound] = ORDINARY;
        let mut placed = Vec::with_capacity(2);
        for (direction, tables, rules) in [
            (Direction::Inbound, inbound, &profile.inbound_rules),
            (Direction::Outbound, outbound, &profile.outbound_rules),
        ] {
            let chain = self.backend().profile_chain(direction, name);
            self.place(&chain, tables, rules, version, &owner(direction), &mut placed);
        }
        placed
    }

    /// Renders a chain once for all tables in which denied packets get the same treatment. Where nothing is denied,
    /// these are all tables.
    fn place(
        &self,
        name: &ChainName,
        tables: &[Table],
        rules: &[messages::Rule],
        version: IpVersion,
        owner: &Owner<'_>,
        placed: &mut Vec<PlacedChain>,
    ) {
        let denies = rules.iter().any(|rule| rule.action == RuleAction::Deny);
        let first = placed.len();
        let mut ends: Vec<Denied> = Vec::new();
        for table in tables {
            let deny = self.deny(*table);
            match ends.iter().position(|end| !denies || *end == deny) {
                Some(place) => placed[first + place].tables.push(*table),
                None => {
                    let chain = Chain::new(name.clone(), self.policy_rules(rules, version, deny, owner));
                    placed.push(PlacedChain { chain, tables: vec![*table] });
                    ends.push(deny);
                }
            }
        }
    }

    fn policy_rules(
        &self,
        rules: &[messages::Rule],
        version: IpVersion,
        deny: Denied,
        owner: &Owner<'_>,
    ) -> Vec<Rule> {
        let mut rendered: Vec<Rule> = rules
            .iter()
            .enumerate()
            .flat_map(|(index, rule)| self.policy_rule(rule, index, (version, deny), owner))
            .collect();
        // At the end of a chain, packets return anyway.
        while rendered.last().is_some_and(|last| last.action == Some(Action::Return)) {
            rendered.pop();
        }
        if rendered.is_empty() {
            rendered.push(Rule::default());
        }
        rendered[0].comments.push(owner.comment.clone());
        rendered
    }

    /// Renders one rule; nothing if it cannot match packets of this version.
    fn policy_rule(
        &self,
        rule: &messages::Rule,
        index: usize,
        (version, deny): (IpVersion, Denied),
        owner: &Owner<'_>,
    ) -> Vec<Rule> {
        let Some(mut conditions) = Conditions::of(rule, version, self.backend()) else { return Vec::new() };
        let mut rules = self.overflow_blocks(&mut conditions, version);
        let mut matches = conditions.matches(version);
        if !rules.is_empty() {
            matches.push(mark_set(self.config.marks.scratch0));
        }
        self.add_actions((rule.action, deny), matches, index, owner, &mut rules);
        for (key, value) in rule.annotations.iter().take(MAX_ANNOTATIONS) {
            let comment = Text::from(format!("{key}={value}"));
            for rendered in &mut rules {
                rendered.comments.push(comment.clone());
            }
        }
        rules
    }

    fn add_actions(
        &self,
        (action, deny): (RuleAction, Denied),
        matches: Vec<Match>,
        index: usize,
        owner: &Owner<'_>,
        rules: &mut Vec<Rule>,
    ) {
        let marks = &self.config.marks;
        let (bit, verdict, then) = match action {
            RuleAction::Allow => (marks.accept, Verdict::Allow, Action::Return),
            RuleAction::Pass => (marks.pass, Verdict::Pass, Action::Return),
            RuleAction::Deny => (marks.drop, Verdict::Deny, deny.into()),
            RuleAction::Log => {
                let limit = self.config.log_rate_limit.map(|(rate, burst)| Match::Limit { rate, burst });
                let matches: Vec<_> = limit.into_iter().chain(matches).collect();
                rules.push(Rule::when(matches, Action::Log { prefix: owner.log_prefix.clone() }));
                return;
            }
        };
        rules.push(Rule::when(matches, Action::SetMark(bit)));
        // Untracked policy is for speed, which reporting each of its packets would cost.
        if self.config.flow_logs && !owner.untracked {
            let prefix = nflog::rule_prefix(verdict, owner.kind, owner.direction, index, owner.id);
            rules.push(Rule::when([mark_set(bit)], self.nflog(owner.direction, prefix)));
        }
        rules.push(Rule::when([mark_set(bit)], then));
    }
}
