//! How often a write is tried against others, how long to wait in between, and when to suspect that nobody else is there.

use std::time::Duration;

/// How often a write is tried against others before giving up, as in Calico.
pub const ATTEMPTS: u32 = 100;
/// The longest wait between two attempts.
pub const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// After how many attempts a handle that counts addresses which are not found is put right.
const REPAIR_AFTER: u32 = 20;

/// How long to wait at most before an attempt: not at all before the first two (a lost race is usually over), then
/// doubling up to a tenth of a second. The caller waits a random part of it, so that many writers do not meet again.
#[must_use]
pub fn longest_wait(attempt: u32) -> Option<Duration> {
    let doubled = attempt.checked_sub(2)?.min(10);
    Some(Duration::from_micros(500 << doubled).min(LONGEST_WAIT))
}

/// Whether a handle that counts more addresses than are found is put right after this attempt: another writer would
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
