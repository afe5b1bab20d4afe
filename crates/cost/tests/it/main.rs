//! Counts that a change must not increase: allocations, bytes and messages to the kernel for fixed work.
//!
//! Times on a shared machine prove nothing; these figures are the same on every machine, within the few per cent that
//! the order of hash maps causes. They are recorded in `tests/data/counts.txt`. A figure that grew fails, and so does
//! one that fell so far that its line no longer protects it; `UPDATE_EXPECT=1` rewrites the file, and the difference is
//! reviewed.
//!
//! One test for everything: the allocator counts for the whole process, and must not count the work of other tests.

mod counted;
mod kernel;
mod policy;
mod programs;

use counted::Counts;
use testkit::heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

#[test]
fn work_costs_no_more_than_recorded() {
    let mut counts = Counts::default();
    policy::selectors(&mut counts);
    policy::cluster(&mut counts);
    kernel::rules(&mut counts);
    programs::policies(&mut counts);
    counts.compare_with_recorded();
}
