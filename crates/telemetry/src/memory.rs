//! The C library's allocator, told that resident memory counts on every node of a cluster.
//!
//! Left alone it gives each thread a heap of its own, up to eight for each processor, and keeps in all of them what a burst
//! of work has freed. A daemon that reads a whole cluster once and then a change at a time would carry its first minute
//! around for ever. This module does nothing but turn those two knobs; where the C library is another one it does nothing
//! at all.
//!
//! Of the little unsafe code of the project a part is here: both functions are plain calls with numbers, take no pointers,
//! and may be called by any thread at any time.

/// All threads share one heap. For daemons whose threads take turns rather than compete; before they are started.
#[cfg_attr(
    target_env = "gnu",
    expect(
        unsafe_code,
        reason = "a call into the C library that has no safe wrapper; see the module's text"
    )
)]
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and is safe to call by any thread.
    let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    #[cfg(target_env = "gnu")]
    if set != 1 {
        tracing::debug!("the allocator does not take a limit of heaps");
    }
}

/// Gives free memory back to the kernel, from within the heaps too. It looks at every heap: for the end of a burst.
#[cfg_attr(
    target_env = "gnu",
    expect(
        unsafe_code,
        reason = "a call into the C library that has no safe wrapper; see the module's text"
    )
)]
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and is safe to call by any thread.
    let _ = unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::{give_back, share_one_heap};

    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_memory_goes_back() {
        share_one_heap();
        // Small pieces with one that stays behind them, so that the heap cannot shrink from its end.
        let pieces: Vec<Box<[u8; 512]>> = (0..100_000).map(|_| Box::new([1; 512])).collect();
        let last = Box::new([2_u8; 512]);
        let full = resident();
        drop(pieces);
        give_back();
        let after = resident();
        assert!(full - after > 8000, "of {full} pages {after} stayed");
        assert_eq!(last[0], 2);
    }
}
