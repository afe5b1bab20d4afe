//! Removes the leftovers of an earlier Felix in places that are no longer used. They are removed one by one, and
//! failures are retried with increasing pauses until nothing is left, however many rounds there are in between.

use delta::Retry;
use netfilter::driver::ApplyError;
use std::time::{Duration, Instant};

/// Leftovers in one place.
pub(super) trait Remains {
    /// Removes them; returns false if it has to be called again some time later.
    fn remove(&mut self, now: Instant) -> Result<bool, ApplyError>;
}

/// All leftovers.
#[derive(Debug)]
pub(super) struct Leftovers<L> {
    all: Vec<L>,
    retry: Retry,
}

impl<L: Remains> Leftovers<L> {
    pub(super) fn new(all: Vec<L>) -> Self {
        Self { all, retry: Retry::default() }
    }

    /// Removes what can be removed, if it is due; returns after which time to call again.
    pub(super) fn remove(&mut self, now: Instant) -> Option<Duration> {
        let is_first = self.retry.due().is_none();
        if !self.all.is_empty() && (is_first || self.retry.is_due(now)) {
            self.all.retain_mut(|one| match one.remove(now) {
                Ok(done) => !done,
                // A kernel without such a packet filter has none of our objects in it.
                Err(ApplyError::Netfilter(error))
                    if error.refusal().is_some_and(|refusal| !refusal.is_passing()) =>
                {
                    tracing::debug!(%error, "cannot query an unused packet filter");
                    false
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot remove leftovers of an earlier Felix yet; retrying");
                    true
                }
            });
            self.retry.note(!self.all.is_empty(), now);
        }
        Some(self.retry.due()?.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::{Leftovers, Remains};
    use netfilter::driver::ApplyError;
    use std::time::{Duration, Instant};

    /// Fails this often, and then has to be called twice.
    struct Stubborn {
        failures: u32,
        asked: u32,
    }

    impl Remains for Stubborn {
        fn remove(&mut self, _: Instant) -> Result<bool, ApplyError> {
            self.asked += 1;
            if self.asked <= self.failures {
                return Err(ApplyError::Program {
                    program: "iptables".into(),
                    reason: "the lock is held".into(),
                });
            }
            Ok(self.asked > self.failures + 1)
        }
    }

    #[test]
    fn many_rounds_in_a_row_do_not_make_it_give_up() {
        let mut left = Leftovers::new(vec![Stubborn { failures: 7, asked: 0 }]);
        let mut now = Instant::now();
        for _ in 0..100 {
            assert_eq!(left.remove(now), Some(Duration::from_secs(1)));
        }
        assert_eq!(left.all[0].asked, 1, "an early round does nothing");
        for _ in 0..8 {
            now += left.remove(now).expect("there is something left");
        }
        assert_eq!((left.remove(now), left.all.len()), (None, 0));
        assert_eq!(left.remove(now), None);
    }
}
