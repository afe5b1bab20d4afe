//! Carries out the plan: one transaction, and the handling of its refusal. Many new chains are created before it, in
//! transactions of their own.
//!
//! A first refusal may only mean that the table is not in the expected state: it is read again. After that, the
//! kernel's own answer names the faulty changes. Where it names none, all changing chains are made to drop, and are
//! then opened in ever smaller groups until the faulty ones are isolated. Those are closed ([`crate::refused`]);
//! everything else is programmed. Chains are not changed one by one, because old and new ones together may let through
//! packets that both the old and the new policy deny.

use super::Driver;
use super::kernel::Kernel;
use super::layout::{FullChainName, full_chain, layer_of};
use super::plan::{Hashed, Origin, Plan, View};
use super::state::ChainState;
use crate::chains::Wanted;
use crate::driver::ApplyError;
use crate::refused::{CIRCLE, Closed};
use messages::InterfaceName;
use netlink::netfilter::nft::{self, CommitRefused};
use netlink::netfilter::{Error, Refusal};
use rules::tree::Rule;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The approximate number of rules in a transaction of new, unreferenced chains. For a rule with a set of its own the
/// kernel goes through the whole transaction, and until it is written a transaction takes a kilobyte of memory for each
/// rule.
const NEW_RULES_AT_ONCE: usize = 1000;
/// The maximum number of chains in such a transaction.
const NEW_CHAINS_AT_ONCE: usize = 128;
/// `EMLINK` and `ELOOP`.
const TOO_DEEP: [i32; 2] = [31, 40];

impl<K: Kernel> Driver<K> {
    fn view<'a>(
        &'a self,
        only: Option<&'a BTreeSet<FullChainName>>,
        separate_entries: bool,
        hashed: &'a Hashed,
    ) -> View<'a> {
        View {
            family: self.family,
            chains: &self.chains,
            maps: &self.maps,
            actual: &self.actual,
            closed: &self.closed,
            faults: &self.faults,
            refused_entries: &self.refused_entries,
            suspects: &self.suspects,
            flow: &self.flow,
            only,
            separate_entries,
            hashed,
        }
    }

    /// Reads the handles of chains of which only the end will be rewritten. Returns the hashes computed on the way.
    fn learn_handles(&mut self, only: Option<&BTreeSet<FullChainName>>) -> Result<Hashed, ApplyError> {
        let mut hashed = Hashed::new();
        let nothing = Hashed::new();
        let view = self.view(only, false, &nothing);
        let wanted: Vec<FullChainName> = only
            .unwrap_or(self.chains.dirty())
            .iter()
            .filter(|name| {
                let Some(actual) = self.actual.chains.get(*name).filter(|chain| chain.handles.is_none())
                else {
                    return false;
                };
                let Some(target) = view.target(name) else { return false };
                let kept = actual
                    .hashes
                    .iter()
                    .zip(&target.hashes)
                    .take_while(|(is, wanted)| **is == Some(**wanted))
                    .count();
                hashed.insert((*name).clone(), target.hashes);
                kept > 0 && kept < actual.hashes.len()
            })
            .cloned()
            .collect();
        for name in wanted {
            let rules = self.kernel.read_chain(&self.table, &name)?;
            let base = self.actual.chains.get_mut(&name).and_then(|state| state.base.take());
            self.actual.set(name, Some(ChainState::read(rules.iter(), base)));
        }
        Ok(hashed)
    }

    /// Plans and commits; a refusal is returned with the plan.
    fn attempt(
        &mut self,
        only: Option<&BTreeSet<FullChainName>>,
        separate_entries: bool,
    ) -> Result<Result<bool, (Plan, CommitRefused)>, ApplyError> {
        let hashed = self.learn_handles(only)?;
        let plan = self.view(only, separate_entries, &hashed).plan();
        if plan.changes.is_empty() {
            return Ok(Ok(false));
        }
        self.metrics.calls += 1;
        match self.kernel.commit(&self.table, &plan.changes)? {
            Ok(()) => {
                self.accept(plan, only.is_none());
                Ok(Ok(true))
            }
            Err(refused) => {
                self.metrics.errors += 1;
                if let Some(refusal) = transient(&refused) {
                    let what = format!("change table {}", self.table);
                    return Err(Error::Refused { what, refusal: refusal.clone() }.into());
                }
                Ok(Err((plan, refused)))
            }
        }
    }

    /// Records the effects of a transaction.
    fn accept(&mut self, plan: Plan, whole: bool) {
        for (name, state) in plan.chains {
            self.actual.set(name, state);
        }
        for (name, map) in &mut self.maps {
            map.exists |= map.wanted;
            map.wrong = map.wrong && !(whole && map.wanted);
            if !whole {
                continue;
            }
            let refused = &self.refused_entries;
            let done: Vec<InterfaceName> = map
                .entries
                .pending()
                .map(|operation| match operation {
                    delta::Operation::Create(interface, _)
                    | delta::Operation::Replace(interface, ..)
                    | delta::Operation::Remove(interface, _) => interface.clone(),
                })
                .filter(|interface| !refused.contains_key(&(name.clone(), interface.clone())))
                .collect();
            done.iter().for_each(|interface| map.entries.accept(interface));
        }
        if whole {
            self.maps.retain(|_, map| map.wanted);
        }
        if let Some(devices) = self.flow.devices.clone().filter(|_| !self.flow.refused) {
            self.actual.flow_table = true;
            self.flow.programmed = devices;
        } else if whole {
            self.actual.flow_table = false;
            self.flow.programmed.clear();
        }
    }

    /// Finds the faulty parts from the kernel's answer; returns false when there is nothing more to find.
    fn blame(&mut self, plan: &Plan, refused: &CommitRefused, separate_entries: &mut bool) -> bool {
        let mut progress = self.close_circles();
        if progress {
            return true;
        }
        let mut blamed = BTreeSet::new();
        // One jump too deep makes the kernel refuse every later rule, too.
        let too_deep = |(_, refusal): &&(usize, Refusal)| TOO_DEEP.contains(&refusal.code);
        let some_other = refused.refused.iter().any(|one| !too_deep(&one));
        let suspects: Vec<_> = match some_other {
            true => refused.refused.iter().filter(|one| !too_deep(one)).collect(),
            false => refused.refused.iter().take(1).collect(),
        };
        for (index, refusal) in suspects {
            let reason = refusal.to_string();
            match plan.origins.get(*index) {
                Some(Origin::Rule(chain, place)) => {
                    // Only the first rule of a chain: its replacement changes the positions of the others.
                    if blamed.insert(chain.clone()) {
                        progress |= self.close(chain, Some(*place), reason);
                    }
                }
                Some(Origin::Chain(chain))
                    if matches!(plan.changes.get(*index), Some(nft::Change::AddChain { .. })) =>
                {
                    let is_news = !self.closed.get(chain).is_some_and(|closed| closed.absent);
                    progress |= is_news;
                    if is_news {
                        self.closed.insert(chain.clone(), Closed::without_chain(reason));
                    }
                    blamed.insert(chain.clone());
                }
                Some(Origin::Entries(map, interfaces)) => match interfaces.as_slice() {
                    [interface] => {
                        let key = (map.clone(), interface.clone());
                        progress |= self.refused_entries.insert(key, reason).is_none();
                    }
                    _ => {
                        progress |= !*separate_entries;
                        *separate_entries = true;
                    }
                },
                Some(Origin::FlowTable) => {
                    progress |= !self.flow.refused;
                    self.flow.refused = true;
                }
                Some(Origin::Chain(_) | Origin::Map(_) | Origin::Table) | None => {}
            }
        }
        progress
    }

    /// Closes rules that lead back to a chain they are reached from: the kernel would refuse the whole table.
    fn close_circles(&mut self) -> bool {
        let mut progress = false;
        for (chain, target) in self.chains.circles() {
            let Some(body) = self.chains.definition(&chain) else { continue };
            let leads_back =
                |rule: &Rule| rule.target().is_some_and(|name| full_chain(body.layer, name) == target);
            let Some(place) = body.rules.iter().position(leads_back) else { continue };
            if !self.closed.contains_key(&chain) {
                progress |= self.close(&chain, Some(place), CIRCLE.to_owned());
            }
        }
        progress
    }

    fn close(&mut self, chain: &FullChainName, place: Option<usize>, reason: String) -> bool {
        let (layer, rules) = match self.chains.wanted(chain) {
            Wanted::Defined(body) => (body.layer, Arc::clone(&body.rules)),
            Wanted::Undefined | Wanted::No => (layer_of(chain), Arc::default()),
        };
        tracing::warn!(table = %self.table, %chain, ?place, reason, "the kernel refused a rule");
        self.chains.mark(chain.clone());
        self.closed.entry(chain.clone()).or_default().refuse(layer, &rules, place, reason)
    }

    /// Opens suspected chains in ever smaller groups, until the faulty ones are isolated. The others drop in the
    /// meantime.
    fn narrow(&mut self, names: &[FullChainName], separate_entries: &mut bool) -> Result<(), ApplyError> {
        for name in names {
            self.suspects.remove(name);
        }
        loop {
            let (plan, refused) = match self.attempt(None, *separate_entries)? {
                Ok(_) => return Ok(()),
                Err(refused) => refused,
            };
            if self.blame(&plan, &refused, separate_entries) {
                continue;
            }
            match names {
                [] => return Err(self.give_up(&refused)),
                [name] if self.close(name, None, refused.to_string()) => {}
                [_] => return Err(self.give_up(&refused)),
                _ => {
                    self.suspects.extend(names.iter().cloned());
                    let (first, second) = names.split_at(names.len() / 2);
                    self.narrow(first, separate_entries)?;
                    return self.narrow(second, separate_entries);
                }
            }
        }
    }

    pub(super) fn give_up(&mut self, refused: &CommitRefused) -> ApplyError {
        self.in_sync = false;
        ApplyError::Refused { table: format!("nftables table {}", self.table), reason: refused.to_string() }
    }

    /// Creates chains that are not in the kernel yet, each after its targets. No packet reaches them before the last
    /// transaction, which contains everything else, refers to them. Chains refused here are left to that transaction.
    fn make_new_chains(&mut self) -> Result<bool, ApplyError> {
        let is_new = |name: &&FullChainName| {
            let base = self.chains.definition(name).is_some_and(|body| body.base.is_some());
            !base && !self.actual.chains.contains_key(*name) && self.chains.wanted(name) != Wanted::No
        };
        let new: Vec<&FullChainName> = self.chains.dirty().iter().filter(is_new).collect();
        let rules = |name: &FullChainName| self.chains.definition(name).map_or(0, |body| body.rules.len());
        if new.len() <= NEW_CHAINS_AT_ONCE
            && new.iter().map(|name| rules(name)).sum::<usize>() <= NEW_RULES_AT_ONCE
        {
            return Ok(false);
        }
        let order = self.chains.targets_first(new);
        let mut parts: Vec<BTreeSet<FullChainName>> = Vec::new();
        let mut room = 0_usize;
        for name in order {
            match parts.last_mut().filter(|part| room > 0 && part.len() < NEW_CHAINS_AT_ONCE) {
                Some(part) => {
                    room = room.saturating_sub(rules(&name));
                    part.insert(name);
                }
                None => {
                    room = NEW_RULES_AT_ONCE.saturating_sub(rules(&name));
                    parts.push(BTreeSet::from([name]));
                }
            }
        }
        for part in parts {
            if self.attempt(Some(&part), false)?.is_err() {
                break;
            }
            // They are as desired, and need not be compared again.
            for name in part.iter().filter(|name| !self.closed.contains_key(*name)) {
                self.chains.unmark(name);
            }
        }
        Ok(true)
    }

    /// Brings the table to its desired state. When that fails for reasons other than rules, findings about rules in the
    /// meantime are discarded.
    pub(super) fn write(&mut self, now: Instant) -> Result<bool, ApplyError> {
        let before = self.closed.clone();
        let outcome = self.write_or_close(now);
        self.suspects.clear();
        outcome.inspect_err(|_| {
            // A transaction may have been carried out even if its answer was lost.
            self.in_sync = false;
            self.closed = before;
        })
    }

    fn write_or_close(&mut self, now: Instant) -> Result<bool, ApplyError> {
        let mut separate_entries = false;
        let (mut reread, mut narrowed) = (false, false);
        let made = self.make_new_chains()?;
        loop {
            let (plan, refused) = match self.attempt(None, separate_entries)? {
                Ok(wrote) => {
                    self.chains.clear_dirty();
                    return Ok(wrote || narrowed || reread || made);
                }
                Err(refused) => refused,
            };
            if !reread {
                // Perhaps the table is not in the expected state.
                reread = true;
                self.read(now)?;
            } else if !self.blame(&plan, &refused, &mut separate_entries) {
                if narrowed {
                    return Err(self.give_up(&refused));
                }
                narrowed = true;
                let written = plan.chains.into_iter().filter(|(_, state)| state.is_some());
                let written: BTreeSet<FullChainName> = written.map(|(name, _)| name).collect();
                let order = self.chains.targets_first(&written);
                self.suspects = written;
                self.narrow(&[], &mut separate_entries)?;
                self.narrow(&order, &mut separate_entries)?;
            }
        }
    }
}
/// A refusal that has nothing to do with the request: memory, permission, interruption.
pub(crate) fn transient(refused: &CommitRefused) -> Option<&Refusal> {
    let all = refused.whole.iter().chain(refused.refused.iter().map(|(_, refusal)| refusal));
    all.into_iter().find(|refusal| refusal.is_passing())
}
