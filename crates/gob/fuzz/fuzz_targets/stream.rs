//! Any stream ends in values or an error; a decoded value can be encoded and decoded again as the same value. Run with
//! `cargo +nightly fuzz run stream` from the gob crate.
#![no_main]

use gob::{Message, Segments, Types, Value};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let (mut segments, mut message, mut types) = (Segments::new(LIMIT), Message::default(), Types::new());
    segments.push(bytes);
    while let Ok(Some(segment)) = segments.take() {
        let read = message.take(segment, LIMIT, &mut types, |reader, id| {
            Value::read_whole(reader, id).map(|value| (id, value))
        });
        let Ok(read) = read else { return };
        let Some((id, value)) = read else { continue };
        let mut out = Vec::new();
        gob::number::put_int(&mut out, id.0);
        value.put_whole(&types, id, &mut out);
        let again = Message::default().take(out.into(), usize::MAX, &mut types.clone(), Value::read_whole);
        assert_eq!(again, Ok(Some(value)));
    }
});
