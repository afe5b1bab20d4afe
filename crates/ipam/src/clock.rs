//! Time, and how long to wait before trying again.

use futures::future::BoxFuture;
use jiff::Timestamp;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// How often a write is tried against others before giving up, as in Calico.
pub(crate) const ATTEMPTS: u32 = 100;

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Where time comes from. Tests bring their own.
pub trait Clock: Send + Sync {
    /// The present time.
    fn now(&self) -> Timestamp;

    /// Waits.
    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clock, and tokio's timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// How long to wait before an attempt: not at all before the first two (a lost race is usually over), then a random time
/// that may grow to a tenth of a second, so that many writers do not meet again.
pub(crate) fn wait_before(attempt: u32) -> Option<Duration> {
    let doubled = attempt.checked_sub(2)?.min(10);
    let most = Duration::from_micros(500 << doubled).min(LONGEST_WAIT);
    let random = RandomState::new().build_hasher().finish();
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    Some(Duration::from_micros(random % micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        assert_eq!((wait_before(0), wait_before(1)), (None, None));
        for attempt in 2..ATTEMPTS {
            assert!(wait_before(attempt).is_some_and(|wait| wait < LONGEST_WAIT));
        }
        assert!(wait_before(2).is_some_and(|wait| wait < Duration::from_micros(500)));
    }
}
