//! Unpredictable numbers: which client is dropped first, when the next ping is sent.

/// Any number.
#[must_use]
pub(crate) fn any() -> u64 {
    // Without the system's source only fairness suffers.
    getrandom::u64().unwrap_or(0x9e37_79b9_7f4a_7c15)
}

/// A number below `limit`; 0 for no limit.
#[must_use]
pub(crate) fn below(limit: u64) -> u64 {
    if limit == 0 { 0 } else { any() % limit }
}
