//! One netlink socket: batches of requests with one answer each, and dumps that are whole.
//!
//! The socket belongs to the network namespace in which it was opened, whatever thread uses it later. Many requests go
//! out in one `send`; the kernel carries them out in order and goes on after a refusal, so each has its own answer. A
//! dump that the kernel marks as interrupted, or that overran the receive buffer, is read again.

use crate::error::{Error, Result};
use crate::wire::{attributes, header_u32};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use std::time::Duration;

/// Message types of the protocol itself.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The first message type that belongs to a family.
const FIRST_OF_FAMILY: u16 = 16;
/// The length of a message's header.
const HEADER: usize = 16;
/// The flag of an error message that is followed by attributes.
const HAS_ATTRIBUTES: u16 = 0x200;
/// The flag of an error message that does not repeat the request.
const CAPPED: u16 = 0x100;
/// The attribute with the kernel's own words.
const MESSAGE: u16 = 1;

/// How much goes out in one send: the answers to so many requests fit in the smallest usual receive buffer.
const MAX_REQUESTS: usize = 64;
const MAX_BYTES: usize = 64 * 1024;
/// Larger than any datagram that the kernel builds for a dump (32 KiB).
const RECEIVE_BUFFER: usize = 64 * 1024;
/// How often an interrupted dump is read before it counts as an error, and the longest pause between.
const DUMP_ATTEMPTS: usize = 30;
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// One message to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The message's type.
    pub message_type: u16,
    /// Flags beyond "request" and "acknowledge", which are always set.
    pub flags: u16,
    /// The family header and attributes.
    pub payload: Vec<u8>,
}

/// What the kernel said to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its refusal; `None` when it did what was asked.
    pub refusal: Option<(Errno, String)>,
    /// Messages that it sent besides: type and payload.
    pub messages: Vec<(u16, Vec<u8>)>,
}

impl Answer {
    /// The messages, or the refusal as an error about `what`.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn into_result(self, what: impl FnOnce() -> String) -> Result<Vec<(u16, Vec<u8>)>> {
        match self.refusal {
            None => Ok(self.messages),
            Some((errno, message)) => Err(Error::Refused { what: what(), errno, message }),
        }
    }
}

/// A socket of one netlink protocol.
pub struct Connection {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Connection {
    /// Opens a socket of `protocol` (`netlink_sys::protocols`) in the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open(protocol: isize) -> Result<Self> {
        let failed = |what: &'static str| move |error: std::io::Error| Error::socket(what, &error);
        let mut socket = Socket::new(protocol).map_err(failed("open a netlink socket"))?;
        socket.bind_auto().map_err(failed("bind a netlink socket"))?;
        // Each of these makes answers shorter, clearer or more selective; kernels without them still answer.
        for (name, outcome) in [
            ("NETLINK_CAP_ACK", socket.set_cap_ack(true)),
            ("NETLINK_EXT_ACK", socket.set_ext_ack(true)),
            ("NETLINK_GET_STRICT_CHK", socket.set_netlink_get_strict_chk(true)),
        ] {
            if let Err(error) = outcome {
                tracing::debug!(%error, "the kernel lacks {name}");
            }
        }
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(RECEIVE_BUFFER) })
    }

    /// Sends the requests in order and returns one answer for each, in the same order.
    ///
    /// # Errors
    /// Only when the socket fails; refusals are in the answers.
    pub fn exchange(&mut self, requests: &[Request]) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |request: &&Request| {
                bytes += HEADER + request.payload.len();
                bytes <= MAX_BYTES
            };
            let count = rest.iter().take(MAX_REQUESTS).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            answers.append(&mut self.exchange_once(now)?);
            rest = later;
        }
        Ok(answers)
    }

    fn exchange_once(&mut self, requests: &[Request]) -> Result<Vec<Answer>> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes =
            Vec::with_capacity(requests.iter().map(|request| HEADER + request.payload.len()).sum());
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            write_message(&mut bytes, request, NLM_F_ACK, self.sequence);
        }
        self.send(&bytes)?;
        let mut answers = vec![Answer::default(); requests.len()];
        let mut open = requests.len();
        while open > 0 {
            self.receive(|header, payload| {
                let index = usize::try_from(header.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                // What belongs to no request of this batch is the rest of an earlier one.
                let Some(answer) = answers.get_mut(index) else { return };
                match header.message_type {
                    ERROR => {
                        open = open.saturating_sub(1);
                        answer.refusal = refusal(payload, header.flags);
                    }
                    kind if kind >= FIRST_OF_FAMILY => answer.messages.push((kind, payload.to_vec())),
                    _ => {}
                }
            })?;
        }
        Ok(answers)
    }

    /// Asks for all objects that `request` selects and returns what `convert` makes of them; objects for which it
    /// returns nothing are passed over. `what` names the question in errors.
    ///
    /// # Errors
    /// When the kernel refuses, the socket fails, or the tables never stood still long enough.
    pub fn dump<T>(
        &mut self,
        what: &str,
        request: &Request,
        mut convert: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        for attempt in 0..DUMP_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(LONGEST_PAUSE.min(Duration::from_millis(1 << attempt.min(6))));
            }
            if let Some(found) = self.dump_once(what, request, &mut convert)? {
                return Ok(found);
            }
            tracing::debug!(what, attempt, "the dump was interrupted");
        }
        Err(Error::Restless { what: what.to_owned(), attempts: DUMP_ATTEMPTS })
    }

    /// One attempt; `None` when it was interrupted.
    fn dump_once<T>(
        &mut self,
        what: &str,
        request: &Request,
        convert: &mut impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let mut bytes = Vec::with_capacity(HEADER + request.payload.len());
        write_message(&mut bytes, request, NLM_F_DUMP, sequence);
        self.send(&bytes)?;
        let mut found = Vec::new();
        let (mut interrupted, mut finished, mut refused) = (false, false, None);
        while !finished {
            let outcome = self.receive(|header, payload| {
                if header.sequence != sequence {
                    return;
                }
                interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                match header.message_type {
                    ERROR => {
                        finished = true;
                        refused = refusal(payload, header.flags);
                    }
                    DONE => {
                        finished = true;
                        refused = refusal(payload, header.flags | CAPPED);
                    }
                    kind if kind >= FIRST_OF_FAMILY => found.extend(convert(kind, payload)),
                    _ => {}
                }
            });
            match outcome {
                // Parts were lost; the rest is read to its end, so that the socket is free for the next attempt.
                Err(Error::Socket { errno: Errno::NOBUFS, .. }) => interrupted = true,
                outcome => outcome?,
            }
        }
        match refused {
            Some((Errno::INTR, _)) => Ok(None),
            Some((errno, message)) => Err(Error::Refused { what: what.to_owned(), errno, message }),
            None if interrupted => Ok(None),
            None => Ok(Some(found)),
        }
    }

    /// Sends bytes that hold whole messages.
    fn send(&self, bytes: &[u8]) -> Result<()> {
        loop {
            match self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::socket("send", &error)),
            }
        }
    }

    /// Waits for one datagram and shows its messages.
    fn receive(&mut self, mut show: impl FnMut(&Header, &[u8])) -> Result<()> {
        receive(&self.socket, &mut self.buffer, &mut show)
    }
}

/// The parts of a message's header that matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) message_type: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
}

/// Waits for one datagram from the kernel and shows its messages.
pub(crate) fn receive(
    socket: &Socket,
    buffer: &mut Vec<u8>,
    show: &mut impl FnMut(&Header, &[u8]),
) -> Result<()> {
    buffer.clear();
    buffer.reserve(RECEIVE_BUFFER);
    let sender = loop {
        match socket.recv_from(buffer, 0) {
            Ok((_, sender)) => break sender,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::socket("receive", &error)),
        }
    };
    // Only the kernel has port 0: other processes cannot answer in its name.
    if sender.port_number() != 0 {
        return Ok(());
    }
    let mut rest: &[u8] = buffer;
    while rest.len() >= HEADER {
        let message = NetlinkBuffer::new_checked(rest)
            .map_err(|error| Error::Unreadable { what: "receive".to_owned(), reason: error.to_string() })?;
        let header = Header {
            message_type: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
        };
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        show(&header, rest.get(HEADER..length).unwrap_or_default());
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(())
}

fn write_message(bytes: &mut Vec<u8>, request: &Request, flags: u16, sequence: u32) {
    let length = u32::try_from(HEADER + request.payload.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&request.message_type.to_ne_bytes());
    bytes.extend_from_slice(&(request.flags | flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&request.payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Reads an error message or the end of a dump: a negative error number, and the kernel's words behind it.
fn refusal(payload: &[u8], flags: u16) -> Option<(Errno, String)> {
    let code = i32::from_ne_bytes(payload.first_chunk::<4>().copied().unwrap_or_default());
    if code >= 0 {
        return None;
    }
    let mut message = String::new();
    if flags & HAS_ATTRIBUTES != 0 {
        // An error repeats the request's header, and the request itself unless it is capped.
        let repeated = match header_u32(payload, 4) {
            length if flags & CAPPED == 0 => {
                usize::try_from(length).unwrap_or(usize::MAX).next_multiple_of(4)
            }
            _ => HEADER,
        };
        let start = repeated.saturating_add(4);
        message = attributes(payload.get(start..).unwrap_or_default())
            .find(|attribute| attribute.number == MESSAGE)
            .and_then(|attribute| attribute.text())
            .unwrap_or_default();
    }
    Some((Errno::from_raw_os_error(code.saturating_neg()), message))
}

#[cfg(test)]
mod tests {
    use super::refusal;
    use rustix::io::Errno;

    #[test]
    fn refusals_with_and_without_words() {
        assert_eq!(refusal(&0_i32.to_ne_bytes(), 0), None);
        assert_eq!(refusal(&(-17_i32).to_ne_bytes(), 0), Some((Errno::EXIST, String::new())));
        let mut capped = (-22_i32).to_ne_bytes().to_vec();
        capped.extend_from_slice(&[0; 16]);
        capped.extend_from_slice(&[8, 0, 1, 0, b'b', b'a', b'd', 0]);
        assert_eq!(refusal(&capped, 0x300), Some((Errno::INVAL, "bad".into())));
        // Cut off anywhere: still a refusal.
        for end in 4..capped.len() {
            assert_eq!(refusal(&capped[..end], 0x300).map(|(errno, _)| errno), Some(Errno::INVAL));
        }
    }
}
