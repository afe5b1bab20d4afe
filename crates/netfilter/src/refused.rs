//! What the kernel or its helper refused, and what the kernel has instead.
//!
//! One refusal never stops the rest: the driver narrows a refused batch down to the faulty rules. A rule that only lets
//! packets pass, logs or translates is left out. Any other rule is replaced by one that drops every packet that reaches
//! it, so that what it would have restricted stays restricted. All refusals are reported by name, and retried on a
//! schedule of their own.

use messages::Text;
use rules::names::RUN_ALLOW;
use rules::tree::{Action, Match, Rule, SetName, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The comment of the drop rule that replaces a refused rule.
const INSTEAD: &str = "Refused by the kernel: dropped instead";
/// The reason for refusing a rule that closes a circle.
pub(crate) const CIRCLE: &str = "the rule leads back to a chain that leads here";
/// The reason for closing a chain that is not defined.
pub(crate) const NOT_DEFINED: &str = "rules lead to this chain, but it is not defined";
/// The comment of the rule in an undefined chain.
const UNDEFINED: &str = "Chain is not defined: dropped instead";

/// Something that is not in the kernel as desired.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The layer; `None` for sets.
    pub layer: Option<Table>,
    /// The chain, set or map.
    pub name: Text,
    /// The rule, member or entry; `None` for the whole.
    pub part: Option<Part>,
    /// The reason, in one sentence.
    pub reason: String,
}

/// A part of a chain, set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The rule at this index, counted from 0, and its text.
    Rule(usize, String),
    /// A member of a set.
    Member(String),
    /// An entry of a map.
    Entry(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "{layer} ")?;
        }
        self.name.fmt(f)?;
        match &self.part {
            Some(Part::Rule(index, text)) => write!(f, " rule {} `{text}`", index + 1)?,
            Some(Part::Member(member)) => write!(f, " member {member}")?,
            Some(Part::Entry(entry)) => write!(f, " entry {entry}")?,
            None => {}
        }
        write!(f, ": {}", self.reason)
    }
}

/// The parts of a chain that are not programmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Rules that are left out.
    left_out: BTreeSet<usize>,
    /// Everything from this rule on is dropped.
    cut: Option<usize>,
    /// Whether the chain itself cannot be created.
    pub(crate) absent: bool,
    /// The reasons, by rule.
    pub(crate) reasons: Vec<(Option<usize>, String)>,
}

impl Closed {
    /// A chain that cannot be created at all.
    pub(crate) fn without_chain(reason: String) -> Self {
        Self { absent: true, reasons: vec![(None, reason)], ..Self::default() }
    }

    /// Records a refused rule; returns false when nothing more can be closed, so that another attempt is pointless.
    pub(crate) fn refuse(
        &mut self,
        layer: Table,
        rules: &[Rule],
        place: Option<usize>,
        reason: String,
    ) -> bool {
        let Some(index) = place.map(|place| self.original_index(place)) else {
            // The whole chain is refused: it drops everything. Translation cannot drop; there the chain becomes empty.
            // If even a chain that only drops is refused, its rules are not to blame, and it is never removed for that.
            let changed = if layer == Table::Nat {
                let before = self.left_out.len();
                self.left_out = (0..rules.len()).collect();
                self.left_out.len() != before
            } else {
                self.cut.replace(0) != Some(0)
            };
            if changed {
                self.reasons.push((None, reason));
            }
            return changed;
        };
        let harmless =
            layer == Table::Nat || rules.get(index).is_none_or(|rule| lets_pass(rule.action.as_ref()));
        let changed = if harmless {
            self.left_out.insert(index)
        } else {
            let lower = self.cut.is_none_or(|cut| index < cut);
            self.cut = self.cut.map_or(Some(index), |cut| Some(cut.min(index)));
            lower
        };
        if changed {
            self.reasons.push((Some(index), reason));
        }
        changed
    }

    /// The index among the chain's own rules of the rule that was written at this index.
    fn original_index(&self, place: usize) -> usize {
        (0..).filter(|index| !self.left_out.contains(index)).nth(place).unwrap_or(place)
    }

    /// A copy that drops everything from this rule on.
    pub(crate) fn cut_from(&self, index: usize) -> Self {
        Self { cut: Some(self.cut.map_or(index, |cut| cut.min(index))), ..self.clone() }
    }

    /// The rules that are written instead of these.
    pub(crate) fn body(&self, rules: &[Rule]) -> Vec<Rule> {
        let end = self.cut.unwrap_or(rules.len()).min(rules.len());
        let mut body: Vec<Rule> = rules[..end]
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.left_out.contains(index))
            .map(|(_, rule)| rule.clone())
            .collect();
        if self.cut.is_some() {
            body.push(drop_rule(INSTEAD));
        }
        body
    }
}

/// How a set in the kernel differs from what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetFault {
    /// Only members are missing.
    Lacks,
    /// It may also hold unwanted members, or be of another type.
    Differs,
}

/// The faulty sets. Rules that would let packets through because of them are closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetFaults {
    /// The sets, by the kernel's names.
    pub sets: BTreeMap<SetName, SetFault>,
    /// The mark bit by which rules of policies let packets pass.
    pub accept: u32,
}

impl SetFaults {
    /// The first of these rules whose faulty set may let packets through, and that set. `kernel` maps a set to the
    /// kernel's name for it.
    pub(crate) fn first(
        &self,
        layer: Table,
        rules: &[Rule],
        kernel: impl Fn(&SetName) -> SetName,
    ) -> Option<(usize, SetName)> {
        // Translation lets nothing through.
        if self.sets.is_empty() || layer == Table::Nat {
            return None;
        }
        rules.iter().enumerate().find_map(|(index, rule)| {
            let set = rule.matches.iter().find_map(|one| self.is_unsafe(rule, one, &kernel))?;
            Some((index, set))
        })
    }

    fn is_unsafe(&self, rule: &Rule, one: &Match, kernel: &impl Fn(&SetName) -> SetName) -> Option<SetName> {
        let (Match::IpSet { name, negated, .. } | Match::IpPortSet { name, negated, .. }) = one else {
            return None;
        };
        let name = kernel(name);
        let fault = *self.sets.get(&name)?;
        let harmless = match rule.action.as_ref() {
            Some(Action::Log { .. } | Action::NfLog { .. } | Action::SetDscp(_)) => true,
            Some(Action::SetMark(bit)) if *bit == self.accept => !negated && fault == SetFault::Lacks,
            action => lets_pass(action) && !negated && fault == SetFault::Lacks,
        };
        (!harmless).then_some(name)
    }

    /// Whether any of these rules refers to one of the sets.
    pub(crate) fn concern(&self, rules: &[Rule], kernel: impl Fn(&SetName) -> SetName) -> bool {
        rules.iter().flat_map(|rule| &rule.matches).any(|one| match one {
            Match::IpSet { name, .. } | Match::IpPortSet { name, .. } => {
                self.sets.contains_key(&kernel(name))
            }
            _ => false,
        })
    }

    /// The reason for closing a rule because of this set.
    pub(crate) fn reason(set: &str) -> String {
        format!("the set {set} in the kernel differs from the desired one")
    }
}

/// Whether no additional packet passes when a rule with this action is left out.
fn lets_pass(action: Option<&Action>) -> bool {
    matches!(action, Some(Action::Goto(chain)) if **chain == *RUN_ALLOW)
        || matches!(
            action,
            Some(
                Action::Accept
                    | Action::Log { .. }
                    | Action::NfLog { .. }
                    | Action::NoTrack
                    | Action::FlowOffload
                    | Action::SetDscp(_)
            )
        )
}

fn drop_rule(comment: &str) -> Rule {
    Rule { matches: Vec::new(), action: Some(Action::Drop), comments: vec![comment.into()] }
}

/// The content of a chain that is referenced but not defined. Translation cannot drop; there it is empty.
pub(crate) fn undefined_body(layer: Table) -> Vec<Rule> {
    if layer == Table::Nat { Vec::new() } else { vec![drop_rule(UNDEFINED)] }
}

#[cfg(test)]
mod tests {
    use super::SetFault::{Differs, Lacks};
    use super::{Closed, SetFaults};
    use rules::tree::{Action, Match, Rule, Table};

    fn rule(action: Action) -> Rule {
        Rule { matches: Vec::new(), action: Some(action), comments: Vec::new() }
    }

    fn actions(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(|rule| format!("{:?}", rule.action.as_ref().expect("an action"))).collect()
    }

    #[test]
    fn everything_is_dropped_from_a_refused_rule_on() {
        let rules = [rule(Action::SetMark(1)), rule(Action::ClearMark(2)), rule(Action::Accept)];
        let mut closed = Closed::default();
        assert!(closed.refuse(Table::Filter, &rules, Some(1), "no".into()));
        assert_eq!(actions(&closed.body(&rules)), ["SetMark(1)", "Drop"]);
        assert!(!closed.refuse(Table::Filter, &rules, Some(1), "no".into()), "another attempt is pointless");
        assert!(closed.refuse(Table::Filter, &rules, Some(0), "no".into()));
        assert_eq!(actions(&closed.body(&rules)), ["Drop"]);
    }

    #[test]
    fn rules_that_only_let_pass_are_left_out() {
        let rules =
            [rule(Action::Accept), rule(Action::Log { prefix: "x".into() }), rule(Action::SetMark(1))];
        let mut closed = Closed::default();
        assert!(closed.refuse(Table::Filter, &rules, Some(0), "no".into()));
        // The second rule is now the first.
        assert!(closed.refuse(Table::Filter, &rules, Some(0), "no".into()));
        assert_eq!(actions(&closed.body(&rules)), ["SetMark(1)"]);
        assert!(closed.refuse(Table::Filter, &rules, Some(0), "no".into()));
        assert_eq!(actions(&closed.body(&rules)), ["Drop"]);
        assert_eq!(
            closed.reasons.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
    }

    #[test]
    fn rules_with_a_wrong_set_are_closed_unless_they_only_let_pass() {
        const ACCEPT: u32 = 8;
        let with = |negated, action| {
            let set = Match::IpSet { end: rules::tree::End::Source, name: "s".into(), negated };
            Rule { matches: vec![set], action: Some(action), comments: Vec::new() }
        };
        let first = |fault, layer, rule: Rule| {
            let faults = SetFaults { sets: [("s".into(), fault)].into(), accept: ACCEPT };
            let other = Rule { matches: vec![], action: Some(Action::Drop), comments: vec![] };
            faults.first(layer, &[other, rule], Clone::clone).map(|(index, _)| index)
        };
        for (fault, negated, action, closed) in [
            (Lacks, false, Action::SetMark(ACCEPT), false),
            (Lacks, true, Action::SetMark(ACCEPT), true),
            (Differs, false, Action::SetMark(ACCEPT), true),
            (Lacks, false, Action::Accept, false),
            (Lacks, false, Action::SetMark(ACCEPT << 1), true),
            (Lacks, false, Action::Drop, true),
            (Lacks, true, Action::Drop, true),
            (Lacks, false, Action::ClearMark(ACCEPT), true),
            (Lacks, false, Action::Return, true),
            (Lacks, false, Action::Jump("cali-x".into()), true),
            (Differs, true, Action::Log { prefix: "x".into() }, false),
        ] {
            let found = first(fault, Table::Filter, with(negated, action.clone()));
            assert_eq!(found, closed.then_some(1), "{fault:?} {negated} {action:?}");
            assert_eq!(first(fault, Table::Nat, with(negated, action)), None);
        }
        let faults = SetFaults { sets: [("other".into(), Differs)].into(), accept: ACCEPT };
        assert_eq!(faults.first(Table::Filter, &[with(false, Action::Drop)], Clone::clone), None);
    }

    #[test]
    fn translations_are_left_out() {
        let rules = [rule(Action::Masquerade { ports: None, random_fully: true }), rule(Action::Return)];
        let mut closed = Closed::default();
        assert!(closed.refuse(Table::Nat, &rules, Some(0), "no".into()));
        assert_eq!(actions(&closed.body(&rules)), ["Return"]);
    }

    #[test]
    fn a_chain_refused_as_a_whole_drops_and_is_never_removed() {
        let rules = [rule(Action::Accept)];
        let mut closed = Closed::default();
        assert!(closed.refuse(Table::Filter, &rules, None, "no".into()));
        for _ in 0..3 {
            assert!(
                !closed.refuse(Table::Filter, &rules, None, "no".into()),
                "there is nothing left to close"
            );
            assert_eq!((actions(&closed.body(&rules)), closed.absent), (vec!["Drop".to_owned()], false));
        }
    }
}
