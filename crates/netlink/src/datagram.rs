//! Netlink's framing, common to all protocols: messages out, datagrams in, and the kernel's refusals.
//!
//! It does not know when a conversation is over: `connection` has requests with messages in their answers, and
//! `netfilter::socket` has transactions, whose refusals are collected after everything was sent. Their errors differ,
//! too: netfilter's sets have error numbers beyond the system's.

use crate::wire::{attributes, header_u32};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};
use std::io::ErrorKind;
use std::time::Duration;

/// Message types of the protocol itself.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
/// The length of a message's header.
pub(crate) const HEADER: usize = 16;
/// The flags of an error message: followed by attributes; not followed by the request.
const HAS_ATTRIBUTES: u16 = 0x200;
const CAPPED: u16 = 0x100;
/// The attribute with the kernel's explanation.
const WORDS: u16 = 1;
/// `ENOBUFS`.
const OVERRUN: i32 = 105;

/// Larger than any datagram that the kernel builds for a dump (32 KiB).
pub(crate) const RECEIVE_BUFFER: usize = 64 * 1024;
/// Requests in one send: the answers to this many fit in the smallest usual receive buffer.
const MAX_REQUESTS: usize = 64;
pub(crate) const MAX_BYTES: usize = 64 * 1024;
/// How often an interrupted dump is read before it counts as an error, and the longest pause between attempts.
pub(crate) const DUMP_ATTEMPTS: usize = 30;
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// One message to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The message's type; in netfilter the upper byte is the subsystem.
    pub message_type: u16,
    /// Flags beyond those that a socket sets itself.
    pub flags: u16,
    /// The family header and attributes.
    pub payload: Vec<u8>,
}

/// One message from the kernel.
pub(crate) struct Message<'a> {
    pub(crate) message_type: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// The port whose request this message answers.
    pub(crate) port: u32,
    pub(crate) payload: &'a [u8],
}

/// The result of one read from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram, whose messages were passed on.
    Something,
    /// The kernel reports that datagrams were lost.
    Overrun,
    /// Nothing is waiting.
    Nothing,
}

/// Why receiving failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Socket(std::io::Error),
    /// A datagram that cannot be decoded.
    Unreadable(String),
}

/// Splits requests into those that are sent in one go, and the rest.
pub(crate) fn portion(requests: &[Request]) -> (&[Request], &[Request]) {
    let mut bytes = 0;
    let fits = |request: &&Request| {
        bytes += HEADER + request.payload.len();
        bytes <= MAX_BYTES
    };
    let count = requests.iter().take(MAX_REQUESTS).take_while(fits).count().max(1);
    requests.split_at(count.min(requests.len()))
}

/// The pause before an interrupted dump is read again.
pub(crate) fn pause(attempt: usize) -> Duration {
    LONGEST_PAUSE.min(Duration::from_millis(1 << attempt.min(6)))
}

/// Appends a message.
pub(crate) fn write(bytes: &mut Vec<u8>, request: &Request, flags: u16, sequence: u32) {
    let length = u32::try_from(HEADER + request.payload.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&request.message_type.to_ne_bytes());
    bytes.extend_from_slice(&(request.flags | flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&request.payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Sends bytes that hold whole messages.
pub(crate) fn send(socket: &Socket, bytes: &[u8]) -> std::io::Result<()> {
    loop {
        match socket.send_to(bytes, &SocketAddr::new(0, 0), 0) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes one datagram from the kernel and passes its messages on.
pub(crate) fn receive(
    socket: &Socket,
    buffer: &mut Vec<u8>,
    flags: i32,
    mut show: impl FnMut(&Message<'_>),
) -> Result<Received, Fault> {
    buffer.clear();
    buffer.reserve(RECEIVE_BUFFER);
    let sender = loop {
        match socket.recv_from(buffer, flags) {
            Ok((_, sender)) => break sender,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) if error.raw_os_error() == Some(OVERRUN) => return Ok(Received::Overrun),
            Err(error) => return Err(Fault::Socket(error)),
        }
    };
    // Only the kernel has port 0; this keeps other processes from answering in its name.
    if sender.port_number() != 0 {
        return Ok(Received::Something);
    }
    let mut rest: &[u8] = buffer;
    while rest.len() >= HEADER {
        let message =
            NetlinkBuffer::new_checked(rest).map_err(|error| Fault::Unreadable(error.to_string()))?;
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        show(&Message {
            message_type: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            port: message.port_number(),
            payload: rest.get(HEADER..length).unwrap_or_default(),
        });
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Received::Something)
}

impl Message<'_> {
    /// Reads an error message, or the end of a dump: an error number, and the kernel's explanation behind it.
    pub(crate) fn refusal(&self) -> Option<(i32, String)> {
        let code = i32::from_ne_bytes(self.payload.first_chunk::<4>().copied().unwrap_or_default());
        if code >= 0 {
            return None;
        }
        let mut words = String::new();
        if self.flags & HAS_ATTRIBUTES != 0 {
            // An error repeats the request's header, and the request itself unless it is capped. The end of a dump does not.
            let repeated = match header_u32(self.payload, 4) {
                _ if self.message_type == DONE => 0,
                length if self.flags & CAPPED == 0 => usize::try_from(length)
                    .unwrap_or(usize::MAX)
                    .checked_next_multiple_of(4)
                    .unwrap_or(usize::MAX),
                _ => HEADER,
            };
            words = attributes(self.payload.get(repeated.saturating_add(4)..).unwrap_or_default())
                .find(|attribute| attribute.number == WORDS)
                .and_then(|attribute| attribute.text())
                .unwrap_or_default();
        }
        Some((code.saturating_neg(), words))
    }
}

#[cfg(test)]
mod tests {
    use super::{DONE, ERROR, MAX_BYTES, Message, Request, portion};

    fn message(message_type: u16, payload: &[u8], flags: u16) -> Message<'_> {
        Message { message_type, flags, sequence: 1, port: 0, payload }
    }

    #[test]
    fn refusals_with_and_without_an_explanation() {
        let refusal = |payload: &[u8], flags| message(ERROR, payload, flags).refusal();
        assert_eq!(refusal(&0_i32.to_ne_bytes(), 0), None);
        assert_eq!(refusal(&(-17_i32).to_ne_bytes(), 0), Some((17, String::new())));
        let mut capped = (-22_i32).to_ne_bytes().to_vec();
        capped.extend_from_slice(&[0; 16]);
        capped.extend_from_slice(&[8, 0, 1, 0, b'b', b'a', b'd', 0]);
        assert_eq!(refusal(&capped, 0x300), Some((22, "bad".into())));
        // Cut off anywhere, it is still a refusal.
        for end in 4..capped.len() {
            assert_eq!(refusal(&capped[..end], 0x300).map(|(code, _)| code), Some(22));
        }
        // A length that a broken peer invented must not be used as an index.
        let mut wrong = (-22_i32).to_ne_bytes().to_vec();
        wrong.extend_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(refusal(&wrong, 0x200), Some((22, String::new())));
    }

    #[test]
    fn the_end_of_a_dump_repeats_nothing() {
        let mut end = (-22_i32).to_ne_bytes().to_vec();
        end.extend_from_slice(&[8, 0, 1, 0, b'b', b'a', b'd', 0]);
        assert_eq!(message(DONE, &end, 0x200).refusal(), Some((22, "bad".into())));
    }

    #[test]
    fn requests_are_sent_in_portions() {
        let request = |length| Request { message_type: 0, flags: 0, payload: vec![0; length] };
        let small = vec![request(8); 100];
        assert_eq!((portion(&small).0.len(), portion(&small).1.len()), (64, 36));
        // A request that is too long is sent alone.
        assert_eq!(portion(&[request(MAX_BYTES), request(8)]).0.len(), 1);
        assert!(portion(&[]).0.is_empty());
    }
}
