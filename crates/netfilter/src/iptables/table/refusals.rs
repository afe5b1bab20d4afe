//! Finds the refused part of a batch without a change for any packet: suspected rules are written to chains that
//! nothing refers to. Chains are never written one by one to their real place, because old and new ones together may
//! let through packets that both the old and the new policy deny.

use super::super::commands::{COMMIT, CommandFailed, Commands};
use super::super::plan::{Origin, Plan};
use super::TableDriver;
use crate::chains::Wanted;
use crate::driver::ApplyError;
use crate::refused::CIRCLE;
use rules::iptables::{hashes, render_append};
use rules::tree::ChainName;
use rules::tree::{Action, Rule};
use std::collections::BTreeSet;

/// The prefix of trial chains' names.
const TRIAL: &str = "cali-try-";

impl TableDriver {
    /// Finds the faulty parts from the helper's error; returns false when there is nothing more to find.
    pub(super) fn blame(&mut self, plan: &Plan, failed: &CommandFailed) -> bool {
        if self.close_circles() {
            return true;
        }
        let origin = failed.line().and_then(|line| plan.origins.get(line.checked_sub(1)?));
        match origin {
            Some(Origin::Rule(name, place)) => self.close(&name.clone(), Some(*place), failed.reason.clone()),
            Some(Origin::Chain(name))
                if plan.chains.iter().any(|(one, rules)| one == name && rules.is_some()) =>
            {
                self.close(&name.clone(), None, failed.reason.clone())
            }
            Some(Origin::Chain(_) | Origin::Frame) | None => false,
        }
    }

    /// Closes rules that lead back to a chain they are reached from: the whole table would be refused because of them.
    fn close_circles(&mut self) -> bool {
        let mut progress = false;
        for (chain, target) in self.chains.circles() {
            let leads_back = |rule: &Rule| rule.target() == Some(&target);
            let place = self.chains.definition(&chain).and_then(|rules| rules.iter().position(leads_back));
            if place.is_some() && !self.closed.contains_key(&chain) {
                progress |= self.close(&chain, place, CIRCLE.to_owned());
            }
        }
        progress
    }

    fn close(&mut self, name: &ChainName, place: Option<usize>, reason: String) -> bool {
        tracing::warn!(table = %self.layer, chain = %name, ?place, reason, "iptables refused a rule");
        let rules = self.rules_of(name);
        self.closed.entry(name.clone()).or_default().refuse(self.layer, &rules, place, reason)
    }

    /// The desired rules of a chain.
    pub(super) fn rules_of(&self, name: &ChainName) -> Vec<Rule> {
        if let Some(hook) = self.hooks.get(name) {
            return hook.inserted.iter().chain(&hook.appended).cloned().collect();
        }
        match self.chains.wanted(name) {
            Wanted::Defined(rules) => rules.to_vec(),
            Wanted::Undefined | Wanted::No => Vec::new(),
        }
    }

    /// Closes whichever of these chains are refused, down to single rules.
    ///
    /// # Errors
    /// When even a chain that only drops is refused: then no rule is to blame.
    pub(super) fn try_apart(
        &mut self,
        commands: &mut impl Commands,
        names: &[ChainName],
    ) -> Result<(), ApplyError> {
        let bodies: Vec<Vec<Rule>> = names.iter().map(|name| self.body_of(name)).collect();
        if names.is_empty() || self.trial(commands, &bodies)?.is_none() {
            return Ok(());
        }
        match names {
            [name] => self.close_refused_rules(commands, name),
            _ => {
                let (first, second) = names.split_at(names.len() / 2);
                self.try_apart(commands, first)?;
                self.try_apart(commands, second)
            }
        }
    }

    /// The rules that would be written for a chain.
    fn body_of(&self, name: &ChainName) -> Vec<Rule> {
        self.view().target(name).map_or_else(Vec::new, std::borrow::Cow::into_owned)
    }

    /// Closes refused rules in turn until the rest of the chain is accepted.
    fn close_refused_rules(
        &mut self,
        commands: &mut impl Commands,
        name: &ChainName,
    ) -> Result<(), ApplyError> {
        let nothing = [Rule { matches: Vec::new(), action: Some(Action::Return), comments: Vec::new() }];
        if let Some(failed) = self.trial(commands, &[nothing.to_vec()])? {
            return Err(failed.into());
        }
        loop {
            let body = self.body_of(name);
            let Some(failed) = self.trial(commands, std::slice::from_ref(&body))? else { return Ok(()) };
            // The first `good` rules are accepted, the first `bad` are not.
            let (mut good, mut bad) = (0, body.len());
            while bad - good > 1 {
                let middle = good.midpoint(bad);
                match self.trial(commands, &[body[..middle].to_vec()])? {
                    None => good = middle,
                    Some(_) => bad = middle,
                }
            }
            let closed = !body.is_empty() && self.close(name, Some(good), failed.reason.clone());
            if !closed && !self.close(name, None, failed.reason.clone()) {
                return Err(failed.into());
            }
        }
    }

    /// Writes rules to chains that nothing refers to, and removes them again; returns why they are refused, if they
    /// are.
    ///
    /// # Errors
    /// When the trial fails for other reasons.
    fn trial(
        &mut self,
        commands: &mut impl Commands,
        bodies: &[Vec<Rule>],
    ) -> Result<Option<CommandFailed>, ApplyError> {
        let targets = bodies.iter().flatten().filter_map(Rule::target);
        let missing: BTreeSet<&ChainName> =
            targets.filter(|target| !self.actual.contains_key(*target)).collect();
        let input = trial_input(self.layer.as_str(), &missing, bodies);
        self.metrics.restore_calls += 1;
        self.in_sync = false;
        match commands.restore(&mut std::iter::once(input)) {
            Ok(()) => Ok(None),
            Err(failed) => {
                self.metrics.restore_errors += 1;
                if failed.is_passing() { Err(failed.into()) } else { Ok(Some(failed)) }
            }
        }
    }
}

/// Creates chains with these rules together with their targets, and then removes all of them: the targets are created
/// by the final transaction. The nft variant counts references as they were when a transaction began, so this takes
/// three.
fn trial_input(table: &str, missing: &BTreeSet<&ChainName>, bodies: &[Vec<Rule>]) -> String {
    let names: Vec<String> = (0..bodies.len()).map(|place| format!("{TRIAL}{place}")).collect();
    let declare = |lines: &mut Vec<String>| lines.extend(names.iter().map(|name| format!(":{name} - -")));
    let mut lines = vec![format!("*{table}")];
    declare(&mut lines);
    lines.extend(missing.iter().map(|name| format!(":{name} - -")));
    for (name, rules) in names.iter().zip(bodies) {
        lines.extend(
            rules.iter().zip(hashes(name, rules)).map(|(rule, hash)| render_append(name, rule, hash)),
        );
    }
    lines.extend([COMMIT.to_owned(), format!("*{table}")]);
    declare(&mut lines);
    lines.extend([COMMIT.to_owned(), format!("*{table}")]);
    let gone = || names.iter().map(String::as_str).chain(missing.iter().map(|name| &***name));
    lines.extend(gone().map(|name| format!(":{name} - -")));
    lines.extend(gone().map(|name| format!("--delete-chain {name}")));
    lines.push(COMMIT.to_owned());
    lines.join("\n") + "\n"
}
