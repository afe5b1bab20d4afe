//! Sets and rules of one IP version, written in an order in which no packet passes that policy denies, whatever fails.
//!
//! Sets come before the rules that name them. Where rules could not be written, those in the kernel are older than the sets
//! should be; sets that are there already then wait for the rules.

use crate::driver::{Applied, ApplyError, RuleDriver};
use crate::ipsets::IpSetDriver;
use crate::refused::SetFaults;
use delta::Retry;
use std::time::Instant;

/// The packet filter of one IP version: a driver of rules and one of sets.
pub struct PacketFilter {
    /// Rules.
    pub rules: Box<dyn RuleDriver + Send>,
    /// Sets.
    pub sets: Box<dyn IpSetDriver + Send>,
    /// When sets and members that were refused are tried again.
    set_retry: Retry,
    /// Whether the last attempt to write rules failed: then those in the kernel are older than what sets should hold.
    rules_behind: bool,
}

impl std::fmt::Debug for PacketFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketFilter").field("rules_behind", &self.rules_behind).finish_non_exhaustive()
    }
}

impl PacketFilter {
    /// A filter of these drivers.
    #[must_use]
    pub fn new(rules: Box<dyn RuleDriver + Send>, sets: Box<dyn IpSetDriver + Send>) -> Self {
        Self { rules, sets, set_retry: Retry::default(), rules_behind: false }
    }

    /// Makes and fills sets, before rules are written that name them. Rules that would let packets through because of a set
    /// that is not as it should be are closed with the next `apply`. `accept` is the mark's bit by which policies let pass.
    ///
    /// # Errors
    /// When sets could not be written; then rules are not to be written, either.
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

    /// Writes rules, after sets. Sets that were held back because rules could not be written follow.
    ///
    /// # Errors
    /// When rules, or then sets, could not be written.
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
        // Rules may have to be closed because of what sets hold now.
        let rules = self.rules.apply(now).inspect_err(|_| self.rules_behind = true)?;
        let again_in = sets.again_in.into_iter().chain(rules.again_in).min();
        Ok(Applied { wrote: applied.wrote || sets.wrote || rules.wrote, again_in })
    }
}
