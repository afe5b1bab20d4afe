//! Counts that a change must not raise: allocations, bytes and messages to the kernel for fixed work.
//!
//! Times on a shared machine prove nothing; these figures are the same on every machine, within the few per cent that the
//! order of hash maps makes. `tests/data/counts.txt` has them. A figure that grew fails, and so does one that fell by so much
//! that its line no longer guards anything; `UPDATE_EXPECT=1` writes the file again, and the difference is reviewed.
//!
//! One test for all of it: the allocator counts for the whole process, and must not count a neighbour's work.

mod counted;
mod kernel;
mod policy;
mod programs;

use counted::Counts;
use testkit::heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

#[test]
fn work_costs_what_it_did() {
    let mut counts = Counts::default();
    policy::selectors(&mut counts);
    policy::cluster(&mut counts);
    kernel::rules(&mut counts);
    programs::policies(&mut counts);
    counts.compare_with_recorded();
}
