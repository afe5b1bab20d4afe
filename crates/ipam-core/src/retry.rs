//! How often a write is attempted, the pauses in between, and when to assume that another writer was interrupted.

use std::time::Duration;

/// How often a conflicting write is attempted before giving up, as in Calico.
pub const ATTEMPTS: u32 = 100;
/// The longest wait between two attempts.
pub const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// The number of attempts after which a handle that counts addresses that cannot be found is corrected.
const REPAIR_AFTER: u32 = 20;

/// The maximum pause before an attempt: none before the first two (a lost race is usually over), then doubling up to a
/// tenth of a second. The caller waits a random part of it, so that many writers do not collide again.
#[must_use]
pub fn longest_wait(attempt: u32) -> Option<Duration> {
    let doubled = attempt.checked_sub(2)?.min(10);
    Some(Duration::from_micros(500 << doubled).min(LONGEST_WAIT))
}

/// Whether a handle that counts more addresses than can be found is corrected after this attempt: another writer would
/// have taken them by now, so it was interrupted.
#[must_use]
pub fn is_repair_due(attempt: u32) -> bool {
    attempt % REPAIR_AFTER == REPAIR_AFTER - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        let micros = |attempt| longest_wait(attempt).map(|wait| wait.as_micros());
        for (attempt, expected) in [
            (0, None),
            (1, None),
            (2, Some(500)),
            (3, Some(1000)),
            (9, Some(64_000)),
            (10, Some(100_000)),
            (99, Some(100_000)),
        ] {
            assert_eq!(micros(attempt), expected, "{attempt}");
        }
        assert_eq!(
            (0..ATTEMPTS).filter(|attempt| is_repair_due(*attempt)).collect::<Vec<_>>(),
            [19, 39, 59, 79, 99]
        );
    }
}
