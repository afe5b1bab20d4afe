//! Any bytes are decoded or refused; decoded messages can be encoded and decoded again, with the same result. Run with
//! `cargo +nightly fuzz run messages` from the bgp-wire crate.
#![no_main]

use bgp_wire::{Message, SessionOptions, decode, encode, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, mut bytes) = input;
    let bit = |index: u8| choice & (1 << index) != 0;
    let options = SessionOptions {
        four_byte_as: bit(0),
        extended_messages: bit(1),
        external: bit(2),
        families: [bit(3), bit(4)],
        extended_next_hop: bit(5),
        add_path_receive: [bit(6); 2],
        add_path_send: [bit(6); 2],
    };
    while let Ok(Some(found)) = frame(bytes, &options) {
        bytes = &bytes[found.length..];
        let Ok(message) = decode(&found, &options) else { continue };
        // The announced and withdrawn prefixes of a message may be encoded as several messages.
        let mut written = Vec::new();
        encode(&mut written, &message, &options);
        let mut rest = written.as_slice();
        while !rest.is_empty() {
            let again = frame(rest, &options).expect("a header of ours").expect("a whole message of ours");
            rest = &rest[again.length..];
            let again = decode(&again, &options).expect("a message of ours");
            if !matches!(message, Message::Update(_) | Message::Open(_)) {
                assert_eq!(message, again);
            }
        }
    }
});
