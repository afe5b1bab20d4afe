//! Interprets arbitrary bytes as a history of what peers and connections do to a speaker, whose invariants must hold.
//! Run with `cargo +nightly fuzz run speaker` from the speaker crate.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|history: &[u8]| speaker::for_tests::play(history));
