//! When a part that ended is restarted: soon at first, later if it keeps failing, and soon again after a long run.

use daemon::Backoff;
use std::time::Duration;

/// A run of at least this length resets the pauses.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// The pause after a run of this length.
pub(super) fn after_run(backoff: &mut Backoff, run: Duration) -> Duration {
    if run >= GOOD_RUN {
        backoff.reset();
    }
    backoff.pause()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_resets_the_pauses() {
        let mut backoff = Backoff::SERVER;
        let mut after = |run| after_run(&mut backoff, Duration::from_secs(run)).as_secs();
        assert_eq!([0, 0, 59, 60, 0].map(&mut after), [1, 2, 4, 1, 2]);
    }
}
