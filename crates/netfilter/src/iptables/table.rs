//! One table of one family: its state, when it is read again, and the handling of refused batches.

mod refusals;

use super::backend::Backend;
use super::commands::{CommandFailed, Commands};
use super::plan::{Plan, View, hooked_chains, same_marks};
use super::save::{Mark, Saved, is_ours, parse};
use super::{Portions, Settings};
use crate::chains::{Chains, Content, Wanted};
use crate::driver::ApplyError;
use crate::refused::{Closed, NOT_DEFINED, Part, Refused, SetFaults};
use api::ChainInsert;
use delta::Retry;
use rules::tree::ChainName;
use rules::tree::{Chain, KernelChain, Rule, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The kernel's own chains of a table.
const fn kernel_chains(layer: Table) -> &'static [&'static str] {
    match layer {
        Table::Filter => &["INPUT", "FORWARD", "OUTPUT"],
        Table::Nat => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
        Table::Mangle => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        Table::Raw => &["PREROUTING", "OUTPUT"],
    }
}

/// After a write the table is checked at increasing intervals, up to this.
const LONGEST_CHECK: Duration = Duration::from_secs(3600);
/// How often a batch is retried before its parts are suspected: another program may have interfered.
const ATTEMPTS: u32 = 3;

/// Counters of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMetrics {
    /// `felix_iptables_chains`: wanted chains.
    pub chains: usize,
    /// `felix_iptables_rules`: programmed rules.
    pub rules: usize,
    /// `felix_iptables_lines_executed`: lines that changed something.
    pub lines: u64,
    /// `felix_iptables_save_calls`
    pub save_calls: u64,
    /// `felix_iptables_save_errors`
    pub save_errors: u64,
    /// `felix_iptables_restore_calls`
    pub restore_calls: u64,
    /// `felix_iptables_restore_errors`
    pub restore_errors: u64,
}

/// One table.
#[derive(Debug)]
pub(super) struct TableDriver {
    layer: Table,
    backend: Backend,
    insert_mode: ChainInsert,
    refresh: Option<Duration>,
    first_check: Duration,
    portions: Portions,
    chains: Chains<Arc<[Rule]>>,
    hooks: BTreeMap<ChainName, KernelChain>,
    dirty_hooks: BTreeSet<ChainName>,
    actual: Saved,
    in_sync: bool,
    read_at: Option<Instant>,
    /// The time of the last write, and how long after it the table is checked.
    check: Option<(Instant, Duration)>,
    /// The time the helper programs take: where they are slow, the table is checked later.
    slowest: Duration,
    closed: BTreeMap<ChainName, Closed>,
    /// Sets that differ from the desired ones.
    faults: SetFaults,
    /// When closed rules and chains are retried.
    retry: Retry,
    metrics: TableMetrics,
}

impl TableDriver {
    pub(super) fn new(layer: Table, settings: &Settings) -> Self {
        Self {
            layer,
            backend: settings.backend,
            insert_mode: settings.insert_mode,
            refresh: settings.refresh,
            first_check: settings.post_write_check,
            portions: settings.portions,
            chains: Chains::default(),
            hooks: BTreeMap::new(),
            dirty_hooks: kernel_chains(layer).iter().map(|name| (*name).into()).collect(),
            actual: Saved::new(),
            in_sync: false,
            read_at: None,
            check: None,
            slowest: Duration::ZERO,
            closed: BTreeMap::new(),
            faults: SetFaults::default(),
            retry: Retry::default(),
            metrics: TableMetrics::default(),
        }
    }

    pub(super) fn update_chain(&mut self, chain: Chain) {
        if self.chains.definition(&chain.name).is_some_and(|rules| *rules == chain.rules) {
            return;
        }
        self.closed.remove(&chain.name);
        self.chains.define(chain.name, chain.rules);
    }

    pub(super) fn keep_chain(&mut self, name: &ChainName, keep: bool) {
        self.chains.keep(name, keep);
    }

    pub(super) fn remove_chain(&mut self, name: &ChainName) {
        self.closed.remove(name);
        self.chains.undefine(name);
    }

    pub(super) fn set_hook(&mut self, hook: KernelChain) {
        if !kernel_chains(self.layer).contains(&hook.name) {
            tracing::error!(table = %self.layer, chain = hook.name, "the kernel has no such chain");
            return;
        }
        let name: ChainName = hook.name.into();
        self.closed.remove(&name);
        let new: Vec<ChainName> = targets(&hook.inserted).chain(targets(&hook.appended)).collect();
        new.iter().for_each(|target| self.chains.reference(target));
        if let Some(old) = self.hooks.insert(name.clone(), hook) {
            let old: Vec<ChainName> = targets(&old.inserted).chain(targets(&old.appended)).collect();
            old.iter().for_each(|target| self.chains.dereference(target));
        }
        self.dirty_hooks.insert(name);
    }

    pub(super) fn invalidate(&mut self) {
        self.in_sync = false;
    }

    /// No other program wrote in the meantime, so the check after the write is not needed.
    pub(super) fn undisturbed(&mut self) {
        self.check = None;
    }

    pub(super) fn set_faults(&mut self, faults: &SetFaults) {
        if self.faults == *faults {
            return;
        }
        let before = std::mem::replace(&mut self.faults, faults.clone());
        let concerned =
            |rules: &[Rule]| before.concern(rules, Clone::clone) || self.faults.concern(rules, Clone::clone);
        let changed: Vec<ChainName> = self
            .chains
            .all_wanted()
            .filter(|(_, rules)| concerned(rules))
            .map(|(name, _)| name.clone())
            .collect();
        changed.into_iter().for_each(|name| self.chains.mark(name));
    }

    pub(super) fn retry_refused(&mut self) {
        for (name, _) in std::mem::take(&mut self.closed) {
            if is_ours(&name) {
                self.chains.mark(name);
            } else {
                self.dirty_hooks.insert(name);
            }
        }
    }

    pub(super) fn metrics(&self) -> TableMetrics {
        let ours = |mark: &Mark| *mark != Mark::Foreign;
        let rules = self.actual.values().flatten().filter(|rule| ours(&rule.mark)).count();
        TableMetrics { chains: self.chains.count(), rules, ..self.metrics }
    }

    /// Brings the table to its desired state; returns whether anything was written.
    pub(super) fn apply(&mut self, commands: &mut impl Commands, now: Instant) -> Result<bool, ApplyError> {
        self.look_at_clock(now);
        if !self.in_sync {
            self.read(commands, now)?;
        }
        let wrote = self.write(commands, now)?;
        self.retry.note(!self.closed.is_empty(), now);
        if wrote {
            self.check = Some((now, self.first_check.max(2 * self.slowest)));
        }
        Ok(wrote)
    }

    /// When the table has to be checked again.
    pub(super) fn again_in(&self, now: Instant) -> Option<Duration> {
        let refresh = self.refresh.zip(self.read_at).map(|(refresh, at)| at + refresh);
        let check = self.check.filter(|(_, after)| *after < LONGEST_CHECK).map(|(at, after)| at + after);
        let next = refresh.into_iter().chain(check).chain(self.retry.due()).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn look_at_clock(&mut self, now: Instant) {
        if let (Some(refresh), Some(read_at)) = (self.refresh, self.read_at)
            && now.saturating_duration_since(read_at) >= refresh
        {
            self.in_sync = false;
            self.retry_refused();
        }
        if self.retry.is_due(now) {
            self.retry_refused();
        }
        if let Some((written, after)) = &mut self.check {
            // Another program may have overwritten our changes with an older copy of the table.
            while *after < LONGEST_CHECK && now >= *written + *after {
                *after = (*after * 2).max(Duration::from_millis(1));
                self.in_sync = false;
            }
        }
    }

    fn read(&mut self, commands: &mut impl Commands, now: Instant) -> Result<(), ApplyError> {
        let started = Instant::now();
        let saved = match commands.look(self.layer).and_then(|seen| self.with_words(seen)) {
            Some(seen) => seen,
            None => self.save(commands)?,
        };
        self.took(started);
        let first = self.read_at.is_none();
        let names: BTreeSet<&ChainName> = self.actual.keys().chain(saved.keys()).collect();
        for name in names.into_iter().filter(|name| is_ours(name)) {
            let marks = |saved: &Saved| {
                saved.get(name).map(|rules| rules.iter().map(|rule| rule.mark).collect::<Vec<_>>())
            };
            if marks(&self.actual) != marks(&saved) {
                if !first {
                    tracing::info!(table = %self.layer, chain = %name, "another program changed a chain");
                }
                self.chains.mark(name.clone());
            }
        }
        // Where other programs insert rules, positions change legitimately; they are compared on the next write.
        self.dirty_hooks.extend(self.hooks.keys().cloned());
        self.dirty_hooks.extend(hooked_chains(&saved).cloned());
        self.actual = saved;
        self.read_at = Some(now);
        self.in_sync = true;
        Ok(())
    }

    fn save(&mut self, commands: &mut impl Commands) -> Result<Saved, ApplyError> {
        self.metrics.save_calls += 1;
        let printed = commands.save(self.layer).inspect_err(|_| self.metrics.save_errors += 1)?;
        parse(&printed).map_err(|reason| {
            self.metrics.save_errors += 1;
            ApplyError::Refused { table: format!("iptables table {}", self.layer), reason }
        })
    }

    /// Adds the text of our rules in the kernel's own chains, which reading the kernel does not provide. `None` when
    /// these chains hold other rules of ours than they should: their text is needed to delete them, and only
    /// `iptables-save` prints it.
    fn with_words(&self, mut seen: Saved) -> Option<Saved> {
        let view = self.view();
        let hooked: Vec<ChainName> = hooked_chains(&seen).cloned().collect();
        for name in hooked {
            let found = seen.get_mut(&name)?;
            let expected = view.hook_after(&name, found);
            if !same_marks(found, &expected) {
                return None;
            }
            *found = expected;
        }
        Some(seen)
    }

    /// Records how long a program ran; a slow run is forgotten gradually.
    fn took(&mut self, started: Instant) {
        self.slowest = (self.slowest - self.slowest / 100).max(started.elapsed());
    }

    fn view(&self) -> View<'_> {
        View {
            layer: self.layer,
            backend: self.backend,
            section: self.portions.lines,
            insert_mode: self.insert_mode,
            chains: &self.chains,
            hooks: &self.hooks,
            dirty_hooks: &self.dirty_hooks,
            actual: &self.actual,
            closed: &self.closed,
            faults: &self.faults,
        }
    }

    /// Plans and restores; a failure is returned with the plan.
    fn attempt(
        &mut self,
        commands: &mut impl Commands,
    ) -> Result<Result<bool, (Plan, CommandFailed)>, ApplyError> {
        let started = Instant::now();
        let (plan, outcome) = carry_out(&self.view(), commands);
        if plan.lines == 0 {
            return Ok(Ok(false));
        }
        self.metrics.restore_calls += 1;
        self.took(started);
        match outcome {
            Ok(()) => {
                self.metrics.lines += plan.lines;
                for (name, rules) in plan.chains {
                    match rules {
                        Some(rules) => self.actual.insert(name, rules),
                        None => self.actual.remove(&name),
                    };
                }
                Ok(Ok(true))
            }
            Err(failed) => {
                self.metrics.restore_errors += 1;
                self.in_sync = false;
                if failed.is_passing() {
                    return Err(failed.into());
                }
                Ok(Err((plan, failed)))
            }
        }
    }

    /// Brings the table to its desired state, or leaves it as it is: when writing fails for reasons other than rules,
    /// findings about rules in the meantime are discarded.
    fn write(&mut self, commands: &mut impl Commands, now: Instant) -> Result<bool, ApplyError> {
        let before = self.closed.clone();
        self.write_or_close(commands, now).inspect_err(|_| {
            self.in_sync = false;
            self.closed = before;
        })
    }

    fn write_or_close(&mut self, commands: &mut impl Commands, now: Instant) -> Result<bool, ApplyError> {
        let (mut attempts, mut tried_apart, mut wrote) = (0_u32, false, false);
        let (mut last_reason, mut sure) = (String::new(), false);
        loop {
            let (plan, failed) = match self.attempt(commands)? {
                Ok(changed) => {
                    self.chains.clear_dirty();
                    self.dirty_hooks.clear();
                    return Ok(wrote || changed);
                }
                Err(failed) => failed,
            };
            wrote = true;
            attempts += 1;
            self.read(commands, now)?;
            // The same error twice is no coincidence; a different one may be due to another program's work.
            sure |= failed.reason == last_reason;
            if sure && self.blame(&plan, &failed) {
                continue;
            }
            last_reason.clone_from(&failed.reason);
            if attempts < ATTEMPTS {
                std::thread::sleep(self.portions.pause * attempts);
            } else if tried_apart {
                return Err(failed.into());
            } else {
                tried_apart = true;
                let written = plan.chains.iter().filter(|(name, rules)| rules.is_some() && is_ours(name));
                let suspects: Vec<ChainName> = written.map(|(name, _)| name.clone()).collect();
                self.try_apart(commands, &suspects)?;
                self.read(commands, now)?;
            }
        }
    }

    pub(super) fn refused(&self, all: &mut Vec<Refused>) {
        for (name, closed) in &self.closed {
            if !self.hooks.contains_key(name) && self.chains.wanted(name) == Wanted::No {
                continue;
            }
            let rules = self.rules_of(name);
            for (index, reason) in &closed.reasons {
                let part =
                    index.and_then(|index| Some(Part::Rule(index, rule_text(name, rules.get(index)?))));
                all.push(Refused {
                    layer: Some(self.layer),
                    name: name.text().clone(),
                    part,
                    reason: reason.clone(),
                });
            }
        }
        if !self.faults.sets.is_empty() {
            for (name, rules) in self.chains.all_wanted() {
                let Some((index, set)) = self.faults.first(self.layer, rules, Clone::clone) else { continue };
                let part = rules.get(index).map(|rule| Part::Rule(index, rule_text(name, rule)));
                let (layer, reason) = (Some(self.layer), SetFaults::reason(&set));
                all.push(Refused { layer, name: name.text().clone(), part, reason });
            }
        }
        for name in self.chains.undefined() {
            let reason = NOT_DEFINED.to_owned();
            all.push(Refused { layer: Some(self.layer), name: name.text().clone(), part: None, reason });
        }
    }
}

/// Plans and restores; at the same time if there is much to do.
fn carry_out(view: &View<'_>, commands: &mut impl Commands) -> (Plan, Result<(), CommandFailed>) {
    if !view.is_large() {
        let mut pieces = Vec::new();
        let plan = view.plan(&mut |piece| pieces.push(piece));
        return (plan, commands.restore(&mut pieces.into_iter()));
    }
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let restore = scope.spawn(|| commands.restore(&mut receiver.into_iter()));
        // The receiver is gone when the program ended early, which it reports itself.
        let plan = view.plan(&mut |piece| _ = sender.send(piece));
        drop(sender);
        (plan, restore.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

impl Content for Arc<[Rule]> {
    type Name = ChainName;

    fn targets(&self) -> Vec<ChainName> {
        targets(self).collect()
    }
}

fn targets(rules: &[Rule]) -> impl Iterator<Item = ChainName> {
    rules.iter().filter_map(Rule::target).cloned()
}

/// A rule's text without chain and hash.
fn rule_text(chain: &str, rule: &Rule) -> String {
    let Some(hash) = rules::iptables::hashes(chain, std::slice::from_ref(rule)).pop() else {
        return String::new();
    };
    let line = rules::iptables::render_append(chain, rule, hash);
    let prefix = format!("-A {chain} -m comment --comment \"cali:{hash}\" ");
    line.strip_prefix(&prefix).unwrap_or(&line).to_owned()
}
