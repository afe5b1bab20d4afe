//! When to retry failed operations: after growing pauses. Time is an argument.

use std::time::{Duration, Instant};

/// The first and the longest pause before refused operations are retried.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// When refused operations are retried. Rereading the kernel, which happens for many reasons, does not postpone it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retry {
    due: Option<Instant>,
    pause: Duration,
}

impl Retry {
    /// Whether it is time to try again.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
        }
        due
    }

    /// Records whether anything is closed.
    pub fn note(&mut self, is_closed: bool, now: Instant) {
        if !is_closed {
            *self = Self::default();
        } else if self.due.is_none() {
            self.pause = (2 * self.pause).clamp(FIRST_RETRY, LONGEST_RETRY);
            self.due = Some(now + self.pause);
        }
    }

    /// The time of the next retry; `None` if nothing has to be retried.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_RETRY, LONGEST_RETRY, Retry};
    use std::time::{Duration, Instant};

    #[test]
    fn failures_are_retried_at_growing_intervals() {
        let begin = Instant::now();
        let seconds = |count| Duration::from_secs(count);
        let mut retry = Retry::default();
        assert!(retry.due().is_none() && !retry.is_due(begin));
        retry.note(true, begin);
        assert_eq!(retry.due(), Some(begin + seconds(1)));
        retry.note(true, begin + seconds(1));
        assert_eq!(retry.due(), Some(begin + seconds(1)), "a round in between does not postpone it");
        assert!(retry.is_due(begin + seconds(1)) && !retry.is_due(begin + seconds(1)));
        retry.note(true, begin + seconds(1));
        assert_eq!(retry.due(), Some(begin + seconds(3)));
        for _ in 0..20 {
            assert!(retry.is_due(begin + seconds(100_000)));
            retry.note(true, begin);
        }
        assert_eq!(retry.due(), Some(begin + LONGEST_RETRY));
        retry.note(false, begin);
        assert_eq!(retry.due(), None);
        retry.note(true, begin);
        assert_eq!(retry.due(), Some(begin + FIRST_RETRY));
    }
}
