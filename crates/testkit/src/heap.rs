//! Measures the heap: its current and peak size, and the number of allocations.
//!
//! A benchmark or a test that needs these figures makes [`Counting`] its program's allocator. They apply to the whole
//! process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with counters.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

fn add(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    ALLOCATED.fetch_add(bytes, Ordering::Relaxed);
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one only counts and calls the system's"
)]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        add(size);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes on the heap now.
#[must_use]
pub fn now() -> usize {
    NOW.load(Ordering::Relaxed)
}

/// The most bytes on the heap since [`reset_peak`].
#[must_use]
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Restarts the measurement of the peak.
pub fn reset_peak() {
    PEAK.store(now(), Ordering::Relaxed);
}

/// How many allocations and reallocations there have been, and their total size in bytes.
#[must_use]
pub fn so_far() -> (usize, usize) {
    (ALLOCATIONS.load(Ordering::Relaxed), ALLOCATED.load(Ordering::Relaxed))
}

/// The peak resident memory of this process in kilobytes.
///
/// # Errors
/// When the kernel does not report it.
pub fn resident_peak() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    Ok(number.parse()?)
}
