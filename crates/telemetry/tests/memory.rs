//! Memory of a whole process: one test in its own program, so that no other test affects the measurement.

use telemetry::memory::{give_back, let_go_of_code, share_one_heap};

fn resident(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|it| it.strip_prefix(line)).expect("a line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn unneeded_memory_and_code_are_released() {
    share_one_heap();
    // Small allocations with one that remains after them, so that the heap cannot shrink from its end.
    let pieces: Vec<Box<[u8; 512]>> = (0..100_000).map(|_| Box::new([1; 512])).collect();
    let last = Box::new([2_u8; 512]);
    let full = resident("RssAnon");
    drop(pieces);
    give_back();
    if cfg!(target_env = "gnu") {
        let after = resident("RssAnon");
        assert!(after + 32_000 < full, "of {full} kB {after} kB stayed");
    }
    assert_eq!(last[0], 2);
    let before = resident("RssFile");
    let_go_of_code();
    let after = resident("RssFile");
    assert!(after < before, "of {before} kB of code {after} kB stayed");
}
