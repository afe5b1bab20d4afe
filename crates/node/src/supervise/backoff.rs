//! When a part that ended is started again: soon at first, later when it keeps ending, soon again after a good run.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);
/// A run of this length was a good one.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// The pauses of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The pause after a run of this length.
    pub fn after_run(&mut self, run: Duration) -> Duration {
        if run >= GOOD_RUN {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (self.next * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_a_good_run_resets_them() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..7).map(|_| backoff.after_run(Duration::ZERO).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.after_run(Duration::from_secs(59)).as_secs(), 30);
        assert_eq!(backoff.after_run(Duration::from_secs(60)).as_secs(), 1);
        assert_eq!(backoff.after_run(Duration::ZERO).as_secs(), 2);
    }
}
