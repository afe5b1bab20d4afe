//! The chains of policies and profiles.
//!
//! A rule of a policy becomes one rule that sets a bit of the mark and one that acts on the bit, so that an action with
//! several parts (report, return) matches once. Where one rule of the kernel cannot hold the conditions, blocks of rules
//! before it do ([`blocks`]). Every rule that validation accepts becomes rules that the kernel accepts; one that never was
//! valid is read so that it cannot let more through than was meant ([`conditions`]).

mod blocks;
mod conditions;
mod log_prefix;

pub(crate) use blocks::split_ports;

use crate::names::{Direction, is_staged, policy_id};
use crate::nflog::{self, OwnerKind, Verdict};
use crate::renderer::{Renderer, mark_set};
use crate::tree::{Action, Chain, IpVersion, Match, Rule, Table, Text};
use conditions::Conditions;
use messages::{Policy, Profile};
use model::feed::RuleAction;
use model::v1::PolicyKey;

/// So many of a rule's annotations become comments. More would not fit into a line of `iptables-restore`.
const MAX_ANNOTATIONS: usize = 12;

/// Whose rules are rendered.
struct Owner<'a> {
    table: Table,
    kind: OwnerKind,
    id: &'a str,
    direction: Direction,
    untracked: bool,
    log_prefix: Text,
    comment: Text,
}

impl Renderer {
    /// The chains of a policy in a table: inbound, outbound. None for a policy that is only tried. They are the same in
    /// every table unless packets are rejected, which the kernel does not do everywhere.
    #[must_use]
    pub fn policy_chains(
        &self,
        key: &PolicyKey,
        policy: &Policy,
        table: Table,
        version: IpVersion,
    ) -> Option<[Chain; 2]> {
        if is_staged(key.kind) {
            return None;
        }
        let id = policy_id(key);
        let log_prefix = self.policy_log_prefix(key, &policy.tier);
        let (kind, name) = (key.kind.as_str(), log_prefix::full_name(key));
        let chain = |direction: Direction, rules: &[messages::Rule]| {
            let owner = Owner {
                table,
                kind: OwnerKind::Policy,
                id: &id,
                direction,
                untracked: policy.untracked,
                log_prefix: log_prefix.clone(),
                comment: format!("{kind} {name} {}", direction.as_str()).into(),
            };
            let chain = self.backend().policy_chain(direction, key);
            Chain::new(chain, self.policy_rules(rules, version, &owner))
        };
        Some([
            chain(Direction::Inbound, &policy.inbound_rules),
            chain(Direction::Outbound, &policy.outbound_rules),
        ])
    }

    /// The chains of a profile in a table: inbound, outbound.
    #[must_use]
    pub fn profile_chains(
        &self,
        name: &str,
        profile: &Profile,
        table: Table,
        version: IpVersion,
    ) -> [Chain; 2] {
        let log_prefix = self.profile_log_prefix(name);
        let chain = |direction: Direction, rules: &[messages::Rule]| {
            let owner = Owner {
                table,
                kind: OwnerKind::Profile,
                id: name,
                direction,
                untracked: false,
                log_prefix: log_prefix.clone(),
                comment: format!("Profile {name} {}", direction.as_str()).into(),
            };
            let chain = self.backend().profile_chain(direction, name);
            Chain::new(chain, self.policy_rules(rules, version, &owner))
        };
        [
            chain(Direction::Inbound, &profile.inbound_rules),
            chain(Direction::Outbound, &profile.outbound_rules),
        ]
    }

    fn policy_rules(&self, rules: &[messages::Rule], version: IpVersion, owner: &Owner<'_>) -> Vec<Rule> {
        let mut rendered: Vec<Rule> = rules
            .iter()
            .enumerate()
            .flat_map(|(index, rule)| self.policy_rule(rule, index, version, owner))
            .collect();
        // At the end of a chain packets return anyway.
        while rendered.last().is_some_and(|last| last.action == Some(Action::Return)) {
            rendered.pop();
        }
        if rendered.is_empty() {
            rendered.push(Rule::default());
        }
        rendered[0].comments.push(owner.comment.clone());
        rendered
    }

    /// The rules for one rule; none where it cannot match packets of this version.
    fn policy_rule(
        &self,
        rule: &messages::Rule,
        index: usize,
        version: IpVersion,
        owner: &Owner<'_>,
    ) -> Vec<Rule> {
        let Some(mut conditions) = Conditions::of(rule, version, self.backend()) else { return Vec::new() };
        let mut rules = self.overflow_blocks(&mut conditions, version);
        let mut matches = conditions.matches(version);
        if !rules.is_empty() {
            matches.push(mark_set(self.config.marks.scratch0));
        }
        self.add_actions(rule.action, matches, index, owner, &mut rules);
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
        action: RuleAction,
        matches: Vec<Match>,
        index: usize,
        owner: &Owner<'_>,
        rules: &mut Vec<Rule>,
    ) {
        let marks = &self.config.marks;
        let (bit, verdict, then) = match action {
            RuleAction::Allow => (marks.accept, Verdict::Allow, Action::Return),
            RuleAction::Pass => (marks.pass, Verdict::Pass, Action::Return),
            RuleAction::Deny => (marks.drop, Verdict::Deny, self.deny(owner.table).into()),
            RuleAction::Log => {
                let limit = self.config.log_rate_limit.map(|(rate, burst)| Match::Limit { rate, burst });
                let matches: Vec<_> = limit.into_iter().chain(matches).collect();
                rules.push(Rule::when(matches, Action::Log { prefix: owner.log_prefix.clone() }));
                return;
            }
        };
        rules.push(Rule::when(matches, Action::SetMark(bit)));
        // Untracked policy is for speed, and a report for each of its packets would cost that.
        if self.config.flow_logs && !owner.untracked {
            let prefix = nflog::rule_prefix(verdict, owner.kind, owner.direction, index, owner.id);
            rules.push(Rule::when([mark_set(bit)], self.nflog(owner.direction, prefix)));
        }
        rules.push(Rule::when([mark_set(bit)], then));
    }
}
