//! Computes the input of `iptables-restore` from the desired and actual state of one table, as a pure function.
//!
//! Chains are created before rules refer to them. Our rules in the kernel's chains are removed by their text, because
//! other programs insert rules there at any time. Removals of unwanted chains come last.
//!
//! All changes that packets see are in one transaction. New chains that are not referenced yet are created before it,
//! in transactions of their own: the nft variant compares each line of a transaction with every chain that the
//! transaction names, so a transaction with ten thousand chains takes seconds, and a hundred with a hundred chains each
//! do not.

use super::backend::Backend;
use super::commands::COMMIT;
use super::save::{Mark, Saved, SavedRule, is_ours};
use crate::chains::{Chains, Wanted};
use crate::refused::{Closed, SetFaults, undefined_body};
use api::ChainInsert;
use rules::hash::RuleHash;
use rules::iptables::{appended_hashes, hashes, render_append, render_insert, render_replace};
use rules::tree::ChainName;
use rules::tree::{KernelChain, Rule, Table};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a line belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nothing that could be refused by itself.
    Frame,
    /// The chain itself.
    Chain(ChainName),
    /// The rule at this index of those written to the chain.
    Rule(ChainName, usize),
}

/// The inputs of a plan.
pub(super) struct View<'a> {
    pub(super) layer: Table,
    pub(super) backend: Backend,
    /// The approximate number of lines in a transaction of new chains.
    pub(super) section: usize,
    pub(super) insert_mode: ChainInsert,
    pub(super) chains: &'a Chains<Arc<[Rule]>>,
    pub(super) hooks: &'a BTreeMap<ChainName, KernelChain>,
    pub(super) dirty_hooks: &'a BTreeSet<ChainName>,
    pub(super) actual: &'a Saved,
    pub(super) closed: &'a BTreeMap<ChainName, Closed>,
    pub(super) faults: &'a SetFaults,
}

/// The input of `iptables-restore`, and the state after it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Input that has not been sent to `iptables-restore` yet.
    input: String,
    /// The origin of each line, from the first one.
    pub(super) origins: Vec<Origin>,
    /// The chains afterwards; `None` for removed ones.
    pub(super) chains: Vec<(ChainName, Option<Vec<SavedRule>>)>,
    /// The number of lines that change something.
    pub(super) lines: u64,
    table: &'static str,
    open: bool,
}

impl Plan {
    fn line(&mut self, line: &str, origin: Origin) {
        if !self.open {
            self.open = true;
            self.raw(&format!("*{}", self.table), Origin::Frame);
        }
        self.lines += 1;
        self.raw(line, origin);
    }

    fn raw(&mut self, line: &str, origin: Origin) {
        self.input.push_str(line);
        self.input.push('\n');
        self.origins.push(origin);
    }

    /// Replaces, removes and appends rules of a chain of ours.
    fn write(&mut self, name: &ChainName, rules: &[Rule], hashes: &[RuleHash], actual: &[SavedRule]) {
        for (place, (rule, hash)) in rules.iter().zip(hashes).enumerate() {
            let origin = Origin::Rule(name.clone(), place);
            match actual.get(place) {
                Some(saved) if saved.mark == Mark::Ours(*hash) => {}
                Some(_) => self.line(&render_replace(name, place + 1, rule, *hash), origin),
                None => self.line(&render_append(name, rule, *hash), origin),
            }
        }
        // Each removal moves the rest up, so the index stays the same.
        for _ in rules.len()..actual.len() {
            self.line(&format!("-D {name} {}", rules.len() + 1), Origin::Chain(name.clone()));
        }
        let saved = hashes.iter().map(|hash| SavedRule { mark: Mark::Ours(*hash), text: None }).collect();
        self.chains.push((name.clone(), Some(saved)));
    }

    /// Creates new chains in a transaction of their own, which need not wait for the rest.
    fn make(&mut self, chains: &[(ChainName, Cow<'_, [Rule]>)], send: &mut dyn FnMut(String)) {
        for (name, _) in chains {
            self.line(&format!(":{name} - -"), Origin::Chain(name.clone()));
        }
        for (name, rules) in chains {
            self.write(name, rules, &hashes(name, rules), &[]);
        }
        self.commit();
        self.send(send);
    }

    /// Sends the pending input.
    fn send(&mut self, send: &mut dyn FnMut(String)) {
        let piece = std::mem::take(&mut self.input);
        if !piece.is_empty() {
            send(piece);
        }
    }

    /// Ends the current transaction, if any.
    fn commit(&mut self) {
        if std::mem::take(&mut self.open) {
            self.raw(COMMIT, Origin::Frame);
        }
    }
}

impl<'a> View<'a> {
    /// The desired rules of one of our chains; `None` for no chain.
    pub(super) fn target(&self, name: &ChainName) -> Option<Cow<'a, [Rule]>> {
        let rules = match self.chains.wanted(name) {
            Wanted::No => return None,
            Wanted::Defined(rules) => Cow::Borrowed(&**rules),
            Wanted::Undefined => Cow::Owned(undefined_body(self.layer)),
        };
        let closed = self.closed.get(name);
        Some(match (closed, self.faults.first(self.layer, &rules, Clone::clone)) {
            (None, None) => rules,
            (Some(closed), None) => Cow::Owned(closed.body(&rules)),
            (closed, Some((index, _))) => {
                Cow::Owned(closed.cloned().unwrap_or_default().cut_from(index).body(&rules))
            }
        })
    }

    /// Whether there is so much work that sending begins before planning is complete.
    pub(super) fn is_large(&self) -> bool {
        self.backend == Backend::Nft && self.chains.dirty().len() >= self.section / 2
    }

    /// Sends the input that brings the table to its desired state, in pieces; nothing if it is already there.
    pub(super) fn plan(&self, send: &mut dyn FnMut(String)) -> Plan {
        let mut plan = Plan { table: self.layer.as_str(), ..Plan::default() };
        let (mut writes, mut removals) = (Vec::new(), Vec::new());
        let early = self.write_early(&mut plan, send);
        for name in self.chains.dirty() {
            if early.contains(name) {
                continue;
            }
            // The kernel's own chains are hooks, not chains of ours.
            match (self.target(name), self.actual.get(name)) {
                (None, None) => {}
                (None, Some(_)) => removals.push(name),
                (Some(target), actual) => {
                    let hashes = hashes(name, &target);
                    if actual.is_some_and(|actual| is_same(actual, &hashes)) {
                        continue;
                    }
                    // The nft variant of some versions miscounts rule numbers; there a chain is always written as a
                    // whole.
                    let whole = actual.is_none() || self.backend == Backend::Nft;
                    if whole {
                        plan.line(&format!(":{name} - -"), Origin::Chain(name.clone()));
                    }
                    writes.push((name, target, hashes, actual.filter(|_| !whole)));
                }
            }
        }
        for name in &removals {
            plan.line(&format!(":{name} - -"), Origin::Chain((*name).clone()));
        }
        for (name, target, hashes, actual) in writes {
            plan.write(name, &target, &hashes, actual.map_or(&[][..], Vec::as_slice));
        }
        for name in self.dirty_hooks {
            self.write_hook(name, &mut plan);
        }
        if self.backend == Backend::Nft && !removals.is_empty() {
            // The nft variant counts references as they were when the transaction began.
            plan.commit();
            for name in &removals {
                plan.line(&format!(":{name} - -"), Origin::Chain((*name).clone()));
            }
        }
        for name in removals {
            plan.line(&format!("--delete-chain {name}"), Origin::Chain(name.clone()));
            plan.chains.push((name.clone(), None));
        }
        plan.commit();
        plan.send(send);
        plan
    }

    /// Creates new chains, each after its targets; returns them. Chains that refer to one that does not exist yet are
    /// left for the final transaction, and so is everything if there is little to do.
    fn write_early(&self, plan: &mut Plan, send: &mut dyn FnMut(String)) -> BTreeSet<ChainName> {
        let mut done = BTreeSet::new();
        if !self.is_large() {
            return done;
        }
        let new = |name: &&ChainName| !self.actual.contains_key(*name);
        let (mut section, mut lines) = (Vec::new(), 0);
        for name in self.chains.targets_first(self.chains.dirty().iter().filter(new)) {
            let Some(target) = self.target(&name) else { continue };
            let there = |rule: &Rule| {
                rule.target().is_none_or(|target| done.contains(target) || self.actual.contains_key(target))
            };
            if !target.iter().all(there) {
                continue;
            }
            done.insert(name.clone());
            lines += 1 + target.len();
            section.push((name, target));
            if lines >= self.section {
                plan.make(&std::mem::take(&mut section), send);
                lines = 0;
            }
        }
        plan.make(&section, send);
        done
    }

    /// The final content of a foreign chain, with the foreign rules that are in it now.
    pub(super) fn hook_after(&self, name: &ChainName, actual: &[SavedRule]) -> Vec<SavedRule> {
        self.with_others(name, &self.hook_rules(name), actual)
    }

    fn with_others(&self, name: &ChainName, hook: &HookRules<'_>, actual: &[SavedRule]) -> Vec<SavedRule> {
        let foreign = actual.iter().filter(|rule| rule.mark == Mark::Foreign).count();
        let ours = |(rules, hashes): &(Cow<'_, [Rule]>, Vec<RuleHash>)| -> Vec<SavedRule> {
            let one = |(rule, hash): (&Rule, &RuleHash)| {
                let line = render_append(name, rule, *hash);
                let text = line.strip_prefix(&format!("-A {name} ")).unwrap_or(&line).to_owned();
                SavedRule { mark: Mark::Ours(*hash), text: Some(text) }
            };
            rules.iter().zip(hashes).map(one).collect()
        };
        let foreign = vec![SavedRule { mark: Mark::Foreign, text: None }; foreign];
        let (first, last) = (ours(&hook.inserted), ours(&hook.appended));
        match self.insert_mode {
            ChainInsert::Insert => first.into_iter().chain(foreign).chain(last).collect(),
            ChainInsert::Append => foreign.into_iter().chain(first).chain(last).collect(),
        }
    }

    /// Removes all our rules from a foreign chain, and inserts the desired ones.
    fn write_hook(&self, name: &ChainName, plan: &mut Plan) {
        let actual = self.actual.get(name).map_or(&[][..], Vec::as_slice);
        let hook = self.hook_rules(name);
        let expected = self.with_others(name, &hook, actual);
        if same_marks(actual, &expected) {
            return;
        }
        let ((inserted, inserted_hashes), (appended, appended_hashes)) = (hook.inserted, hook.appended);
        for text in actual.iter().filter_map(|rule| rule.text.as_ref()) {
            plan.line(&format!("-D {name} {text}"), Origin::Frame);
        }
        let numbered = inserted.iter().zip(&inserted_hashes).enumerate();
        match self.insert_mode {
            // Each is inserted before all others, so the last one comes first.
            ChainInsert::Insert => numbered.rev().for_each(|(place, (rule, hash))| {
                plan.line(&render_insert(name, rule, *hash), Origin::Rule(name.clone(), place));
            }),
            ChainInsert::Append => numbered.for_each(|(place, (rule, hash))| {
                plan.line(&render_append(name, rule, *hash), Origin::Rule(name.clone(), place));
            }),
        }
        for (place, (rule, hash)) in appended.iter().zip(&appended_hashes).enumerate() {
            let origin = Origin::Rule(name.clone(), inserted.len() + place);
            plan.line(&render_append(name, rule, *hash), origin);
        }
        plan.chains.push((name.clone(), Some(expected)));
    }

    /// The rules that are inserted into and appended to a foreign chain.
    fn hook_rules(&self, name: &ChainName) -> HookRules<'a> {
        let (inserted, appended) = match (self.hooks.get(name), self.closed.get(name)) {
            (None, _) => (Cow::default(), Cow::default()),
            (Some(hook), None) => {
                (Cow::Borrowed(hook.inserted.as_slice()), Cow::Borrowed(hook.appended.as_slice()))
            }
            (Some(hook), Some(closed)) => {
                let all: Vec<Rule> = hook.inserted.iter().chain(&hook.appended).cloned().collect();
                (Cow::Owned(closed.body(&all)), Cow::default())
            }
        };
        let (first, last) = (hashes(name, &inserted), appended_hashes(name, &appended));
        HookRules { inserted: (inserted, first), appended: (appended, last) }
    }
}

/// Our rules in a foreign chain, with their hashes.
struct HookRules<'a> {
    inserted: (Cow<'a, [Rule]>, Vec<RuleHash>),
    appended: (Cow<'a, [Rule]>, Vec<RuleHash>),
}

fn is_same(actual: &[SavedRule], hashes: &[RuleHash]) -> bool {
    actual.iter().map(|rule| rule.mark).eq(hashes.iter().map(|hash| Mark::Ours(*hash)))
}

/// Whether two chains hold the same rules of ours at the same positions.
pub(super) fn same_marks(one: &[SavedRule], other: &[SavedRule]) -> bool {
    one.iter().map(|rule| rule.mark).eq(other.iter().map(|rule| rule.mark))
}

/// The foreign chains that hold rules of ours.
pub(super) fn hooked_chains(saved: &Saved) -> impl Iterator<Item = &ChainName> {
    saved
        .iter()
        .filter(|(name, rules)| !is_ours(name) && rules.iter().any(|rule| rule.mark != Mark::Foreign))
        .map(|(name, _)| name)
}
