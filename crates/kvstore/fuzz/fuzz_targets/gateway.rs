//! Any text is a request of the JSON gateway or is refused; nothing panics or overflows the stack. Run with
//! `cargo +nightly fuzz run gateway`.
#![no_main]

use kvstore::server::decode_json;
use libfuzzer_sys::fuzz_target;

const MESSAGES: [&str; 6] =
    ["RangeRequest", "PutRequest", "TxnRequest", "WatchRequest", "LeaseGrantRequest", "AlarmRequest"];

fuzz_target!(|text: &[u8]| {
    for message in MESSAGES {
        if let Err(reason) = decode_json(message, text) {
            assert!(!reason.is_empty());
        }
    }
});
