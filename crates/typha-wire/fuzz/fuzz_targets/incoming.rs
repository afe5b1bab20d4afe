//! Bytes of a stranger, plain or compressed, whole or in pieces: an error or messages, which are the same however the
//! bytes are split.

#![no_main]

use libfuzzer_sys::fuzz_target;
use typha_wire::{Compression, Incoming};

const LIMIT: usize = 1 << 20;

fn read(bytes: &[u8], compressed: bool, piece: usize) -> (Vec<String>, bool) {
    let mut incoming = Incoming::new(LIMIT);
    if compressed && incoming.restart(Compression::Snappy).is_err() {
        return (Vec::new(), false);
    }
    let mut messages = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        incoming.push(part);
        loop {
            match incoming.next(|message| format!("{message:?}")) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return (messages, false),
            }
        }
    }
    (messages, true)
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (compressed, piece, bytes) = input;
    let whole = read(bytes, compressed, bytes.len());
    let cut = read(bytes, compressed, usize::from(piece));
    // In pieces, an error may show later, but never other messages.
    assert_eq!(whole.0, cut.0);
});
