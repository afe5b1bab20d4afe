//! Growing pauses between attempts: each is twice as long as the last, up to a limit, until an attempt succeeds.

use std::time::Duration;

/// The pauses between attempts at one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// For an unreachable server, and for a part that keeps exiting: from one second to thirty.
    pub const SERVER: Self = Self::new(Duration::from_secs(1), Duration::from_secs(30));

    /// Begins with a pause of `first` and grows it to at most `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Returns the pause after one more failure.
    pub fn pause(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.after(self.failures)
    }

    /// Returns the pause after this many failures in a row.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Makes the next pause the first one again. Called after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_restart() {
        let mut backoff = Backoff::SERVER;
        let pauses: Vec<u64> = (0..7).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.pause().as_secs(), 1);
        assert_eq!(backoff.after(u32::MAX), Duration::from_secs(30));
        assert_eq!(backoff.after(0), Duration::from_secs(1));
    }
}
