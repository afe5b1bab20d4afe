//! Tests of decoding and encoding together.

mod malformed;
mod open;
mod roundtrip;

use crate::{Frame, Message, Notification, SessionOptions, decode, frame};

/// The options of a session with an internal peer with everything negotiated except path identifiers.
pub(crate) fn internal() -> SessionOptions {
    SessionOptions {
        four_byte_as: true,
        families: [true, true],
        extended_next_hop: true,
        ..SessionOptions::default()
    }
}

/// The options of a session with an external peer.
pub(crate) fn external() -> SessionOptions {
    SessionOptions { external: true, ..internal() }
}

/// Decodes all messages of a buffer.
pub(crate) fn read_all(mut buffer: &[u8], options: &SessionOptions) -> Result<Vec<Message>, Notification> {
    let mut messages = Vec::new();
    while !buffer.is_empty() {
        let Frame { kind, body, length } = frame(buffer, options)?.expect("a whole message");
        messages.push(decode(&Frame { kind, body, length }, options)?);
        buffer = &buffer[length..];
    }
    Ok(messages)
}
