//! When the loop has to act by itself: throttling and refreshes. Time is an argument; if nothing is due, nothing wakes
//! up.

use std::time::{Duration, Instant};

/// At most ten changes of the kernel per second in the long run, and ten at once.
const TOKENS: u32 = 10;
const REFILL: Duration = Duration::from_millis(100);
/// How long programming policy may fail before Felix is no longer ready.
const UNREADY_AFTER: Duration = Duration::from_secs(30);

/// Delays changes that come too fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    tokens: u32,
    refilled: Instant,
}

impl Throttle {
    pub(super) fn new(now: Instant) -> Self {
        Self { tokens: TOKENS, refilled: now }
    }

    /// Whether a change may be made now; if not, returns when.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Instant> {
        while self.tokens < TOKENS && now >= self.refilled + REFILL {
            self.tokens += 1;
            self.refilled += REFILL;
        }
        if self.tokens == TOKENS {
            self.refilled = now;
        }
        match self.tokens {
            0 => Err(self.refilled + REFILL),
            _ => {
                self.tokens -= 1;
                Ok(())
            }
        }
    }
}

/// Detects that something has failed for a long time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overdue {
    since: Option<Instant>,
}

impl Overdue {
    /// Records a failure or a success; returns whether it has failed for a long time.
    pub(super) fn note(&mut self, failed: bool, now: Instant) -> bool {
        if !failed {
            self.since = None;
            return false;
        }
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= UNREADY_AFTER
    }
}

/// A recurring task; never due if no interval is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Every {
    interval: Option<Duration>,
    due: Option<Instant>,
}

impl Every {
    pub(super) fn new(interval: Option<Duration>, now: Instant) -> Self {
        Self { interval, due: interval.map(|interval| now + interval) }
    }

    /// The same task, first due after a different time.
    pub(super) fn first_after(mut self, first: Duration, now: Instant) -> Self {
        self.due = self.due.map(|_| now + first);
        self
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is due; if so, it is due again after the interval.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = self.interval.map(|interval| now + interval);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::{Every, Overdue, Throttle, UNREADY_AFTER};
    use std::time::{Duration, Instant};

    const TENTH: Duration = Duration::from_millis(100);

    #[test]
    fn ten_at_once_then_ten_per_second() {
        let begin = Instant::now();
        let mut throttle = Throttle::new(begin);
        for _ in 0..10 {
            assert_eq!(throttle.admit(begin), Ok(()));
        }
        assert_eq!(throttle.admit(begin), Err(begin + TENTH));
        assert_eq!(throttle.admit(begin + TENTH), Ok(()));
        assert_eq!(throttle.admit(begin + TENTH), Err(begin + 2 * TENTH));
        let later = begin + 100 * TENTH;
        assert_eq!((0..20).filter(|_| throttle.admit(later).is_ok()).count(), 10);
    }

    #[test]
    fn a_failure_is_overdue_when_it_has_lasted() {
        let begin = Instant::now();
        let mut overdue = Overdue::default();
        assert!(!overdue.note(false, begin) && !overdue.note(true, begin));
        assert!(!overdue.note(true, begin + UNREADY_AFTER - TENTH));
        assert!(overdue.note(true, begin + UNREADY_AFTER));
        assert!(!overdue.note(false, begin + 2 * UNREADY_AFTER));
        assert!(!overdue.note(true, begin + 2 * UNREADY_AFTER), "it begins again");
    }

    #[test]
    fn a_task_without_an_interval_is_never_due() {
        let now = Instant::now();
        let mut never = Every::new(None, now).first_after(TENTH, now);
        assert_eq!((never.due(), never.is_due(now + 100 * TENTH)), (None, false));
        let mut every = Every::new(Some(5 * TENTH), now).first_after(TENTH, now);
        assert!(!every.is_due(now) && every.is_due(now + TENTH) && !every.is_due(now + TENTH));
        assert_eq!(every.due(), Some(now + 6 * TENTH));
    }
}
