//! The eBPF part of a round.

use super::Owners;
use crate::managers::{Judge, News};
use crate::runner::Loop;
use crate::runner::phases::Round;
use std::time::Instant;

impl Loop {
    /// Brings policy to programs that judge packets already, before anything that takes longer.
    pub(in crate::runner) fn hurry_policy(&mut self, now: Instant, round: &mut Round) {
        let Some(bpf) = &mut self.bpf else { return };
        let outcome = bpf.hurry(now);
        round.again(outcome.again_in);
        round.failures.extend(outcome.failures);
    }

    /// Brings policy to the programs of the eBPF dataplane, and attaches these to interfaces. Rules come after this:
    /// they leave policy to the programs as soon as every interface has them.
    pub(in crate::runner) fn run_programs(&mut self, now: Instant, round: &mut Round) {
        let Some(bpf) = &mut self.bpf else { return };
        let world = &self.world;
        let outcome = bpf.apply(
            &Owners {
                interfaces: &world.interfaces,
                is_workload: &|name| world.is_workload(name),
                workloads: self.roster.workloads.by_interface(),
                hosts: self.roster.hosts.by_interface(),
            },
            &mut *self.kernel,
            self.rules_are_written,
            now,
        );
        if bpf.is_possible() {
            self.world.judge = if bpf.is_on() { Judge::Programs } else { Judge::RulesBeforePrograms };
        }
        round.again(outcome.again_in);
        round.failures.extend(outcome.failures);
        for (name, is_attached) in &outcome.attached {
            self.roster.hear(&News::Attached(name, *is_attached), now, &mut self.desired);
        }
        self.write_desired(now);
    }
}
