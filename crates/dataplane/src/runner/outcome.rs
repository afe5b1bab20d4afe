//! The results of a round: reports, figures and health.

use super::phases::Round;
use super::{Loop, backend};
use messages::FromDataplane;
use std::time::Instant;

/// After a round this long, memory is returned to the system: it wrote a lot at once, as the first round does. With
/// iptables a single change takes a tenth of this time, and returning memory after each would cost more than it frees.
const LONG_ROUND_SECONDS: f64 = 1.0;

/// The progress of the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There was no round yet.
    Nothing,
    /// There was a round, and something failed.
    Tried,
    /// Everything was in place once, and this was reported.
    InSync,
}

impl Loop {
    /// Reports, figures and health after a round.
    pub(super) fn report_outcome(&mut self, round: &Round, seconds: f64, done: Instant) {
        for failure in &round.failures {
            tracing::warn!(failure, "cannot program a part of the kernel; retrying");
        }
        let before = self.progress;
        self.progress = match (before, round.failures.is_empty()) {
            (Progress::InSync, _) | (_, true) => Progress::InSync,
            (Progress::Nothing | Progress::Tried, false) => Progress::Tried,
        };
        let is_first = before != Progress::InSync && self.progress == Progress::InSync;
        if is_first {
            (self.reports)(FromDataplane::InSync);
        }
        if is_first || (round.failures.is_empty() && seconds > LONG_ROUND_SECONDS) {
            telemetry::memory::give_back();
        }
        if is_first {
            telemetry::memory::let_go_of_code();
        }
        let metrics = &self.settings.metrics;
        if !round.failures.is_empty() {
            metrics.count(
                "felix_int_dataplane_failures",
                "Number of times dataplane updates failed and will be retried.",
                backend::number(1),
            );
        }
        if before == Progress::Nothing {
            tracing::info!(seconds, "programmed the kernel for the first time");
            metrics.set(
                "felix_int_dataplane_initial_resync_time_seconds",
                "Time in seconds that it took to do the initial resync with the dataplane.",
                seconds,
            );
        } else {
            metrics.observe(
                "felix_int_dataplane_apply_time_seconds",
                "Time in seconds for each incremental update to the dataplane (after the initial resync).",
                seconds,
            );
        }
        let overdue = self.overdue.note(round.rules_failed, done);
        let detail = match (round.failures.as_slice(), self.refusals.count()) {
            ([first, ..], _) if overdue => format!("policy has not been programmed for long: {first}"),
            ([], 0) => String::new(),
            ([], count) => closed(count),
            ([first, ..], _) => format!("retrying: {first}"),
        };
        let unencrypted = self.drivers.wireguards().find_map(|wireguard| wireguard.unsupported());
        let programs = self.bpf.as_ref().and_then(super::bpf::Bpf::problem);
        let parts = [detail.as_str()].into_iter().chain(unencrypted).chain(programs.as_deref());
        let detail: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        self.settings.pulse.report(!overdue && programs.is_none(), detail.join("; "));
    }
}

/// The number of parts of the policy that the kernel refused, as text.
fn closed(count: usize) -> String {
    match count {
        1 => "1 part of the policy was refused by the kernel and is closed".to_owned(),
        _ => format!("{count} parts of the policy were refused by the kernel and are closed"),
    }
}

#[cfg(test)]
mod tests {
    use super::closed;

    #[test]
    fn parts_that_are_closed_are_counted() {
        assert!(closed(1).starts_with("1 part of the policy was "));
        assert!(closed(2).starts_with("2 parts of the policy were "));
    }
}
