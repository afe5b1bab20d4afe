//! Sets and rules of one IP version, written in an order in which no denied packet passes, whatever fails.
//!
//! Sets come before the rules that refer to them. If rules could not be written, those in the kernel are older than the
//! desired sets; changes to existing sets then wait for the rules.

use crate::driver::{Applied, ApplyError, RuleDriver};
use crate::ipsets::IpSetDriver;
use crate::refused::SetFaults;
use delta::Retry;
use std::time::Instant;

/// The packet filter of one IP version: a driver of rules and one of sets.
pub struct PacketFilter {
    /// The driver of rules.
    pub rules: Box<dyn RuleDriver + Send>,
    /// The driver of sets.
    pub sets: Box<dyn IpSetDriver + Send>,
    /// When refused sets and members are retried.
    set_retry: Retry,
    /// Whether the last attempt to write rules failed: the rules in the kernel are then older than the desired sets.
    rules_behind: bool,
}

impl std::fmt::Debug for PacketFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketFilter").field("rules_behind", &self.rules_behind).finish_non_exhaustive()
    }
}

impl PacketFilter {
    /// A filter that uses these drivers.
    #[must_use]
    pub fn new(rules: Box<dyn RuleDriver + Send>, sets: Box<dyn IpSetDriver + Send>) -> Self {
        Self { rules, sets, set_retry: Retry::default(), rules_behind: false }
    }

    /// Creates and fills sets, before the rules that refer to them are written. The next `apply` closes rules that
    /// would let packets through because of a faulty set. `accept` is the mark bit by which policies let packets pass.
    ///
    /// # Errors
    /// When sets could not be written; then rules must not be written, either.
    pub fn fill_sets(&mut self, accept: u32, has_refused: bool, now: Instant) -> Result<Applied, ApplyError> {
        if self.set_retry.is_due(now) {
            self.sets.retry_refused();
        }
        self.sets.hold(self.rules_behind);
        let mut applied = self.sets.apply_updates()?;
        if applied.wrote && has_refused {
            self.rules.retry_refused();
        }
        let sets = self.sets.faults();
        self.set_retry.note(!sets.is_empty(), now);
        self.rules.set_faults(&SetFaults { sets, accept });
        let retry = self.set_retry.due().map(|due| due.saturating_duration_since(now));
        applied.again_in = applied.again_in.into_iter().chain(retry).min();
        Ok(applied)
    }

    /// Writes rules, after sets; then writes the sets that were held back because rules could not be written before.
    ///
    /// # Errors
    /// When the rules, or afterwards the sets, could not be written.
    pub fn write_rules(
        &mut self,
        accept: u32,
        has_refused: bool,
        now: Instant,
    ) -> Result<Applied, ApplyError> {
        let outcome = self.rules.apply(now);
        let was_behind = std::mem::replace(&mut self.rules_behind, outcome.is_err());
        let applied = outcome?;
        if !was_behind {
            return Ok(applied);
        }
        let sets = self.fill_sets(accept, has_refused, now).inspect_err(|_| self.sets.invalidate())?;
        // Rules may have to be closed because of the present content of sets.
        let rules = self.rules.apply(now).inspect_err(|_| self.rules_behind = true)?;
        let again_in = sets.again_in.into_iter().chain(rules.again_in).min();
        Ok(Applied { wrote: applied.wrote || sets.wrote || rules.wrote, again_in })
    }
}
