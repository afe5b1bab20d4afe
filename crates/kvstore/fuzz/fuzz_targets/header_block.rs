//! Cleaning a header block never panics, never changes its length, and is idempotent. Run with `cargo +nightly fuzz run
//! header_block`.
#![no_main]

use kvstore::server::clean_header_block;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|block: &[u8]| {
    let mut once = block.to_vec();
    clean_header_block(&mut once);
    let mut twice = once.clone();
    clean_header_block(&mut twice);
    assert_eq!(once, twice);
});
