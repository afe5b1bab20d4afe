//! One netfilter socket: requests with an answer each, dumps that are whole, and transactions.
//!
//! It belongs to the network namespace of the thread that opened it. A transaction goes out in one `send`; the kernel
//! carries it out before the call returns and goes on after a refusal only to find all others, so that every message
//! that is at fault is known and nothing is changed.

use super::{Error, Refusal, Result, header};
use crate::wire::{attributes, header_u32};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::net::sockopt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Message types of the protocol itself.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Messages around a transaction.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// The length of a message's header.
const HEADER: usize = 16;
/// The flags of an error message: followed by attributes; not followed by the request.
const HAS_ATTRIBUTES: u16 = 0x200;
const CAPPED: u16 = 0x100;
/// The attribute with the kernel's own words.
const MESSAGE: u16 = 1;
/// `MSG_DONTWAIT`.
const DO_NOT_WAIT: i32 = 0x40;

/// Larger than any datagram that the kernel builds for a dump (32 KiB).
const RECEIVE_BUFFER: usize = 64 * 1024;
/// Room for the refusals of a large transaction; beyond it some are lost, which is reported.
const REFUSALS_ROOM: usize = 4 * 1024 * 1024;
/// How much goes out in one send outside of transactions.
const MAX_REQUESTS: usize = 64;
const MAX_BYTES: usize = 64 * 1024;
/// How often an interrupted dump is read before it counts as an error.
const DUMP_ATTEMPTS: usize = 30;

/// One message to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The message's type, the subsystem in its upper byte.
    pub message_type: u16,
    /// Flags beyond those that the socket sets itself.
    pub flags: u16,
    /// The family header and attributes.
    pub payload: Vec<u8>,
}

/// What came of a transaction that was not carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchRefused {
    /// The messages that were refused, by index, in order.
    pub messages: Vec<(usize, Refusal)>,
    /// A refusal of the whole, such as when the chains would form a loop.
    pub whole: Option<Refusal>,
    /// Whether refusals were lost because there were too many.
    pub incomplete: bool,
}

/// A transaction under construction: one buffer that is sent as it is.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    first: u32,
    count: u32,
    subsystem: u16,
}

impl Batch {
    /// Adds a message.
    pub fn push(&mut self, request: &Request) {
        write_message(&mut self.bytes, request, 0, self.first.wrapping_add(self.count));
        self.count += 1;
    }

    /// How many messages were added.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn frame(&mut self, message_type: u16) {
        self.push(&Request { message_type, flags: 0, payload: header(0, self.subsystem).to_vec() });
    }
}

/// A socket of the netfilter protocol.
pub struct Socket {
    socket: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
    send_room: usize,
    port: u32,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Socket {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> Result<Self> {
        let failed = |what: &'static str| move |error: std::io::Error| Error::socket(what, &error);
        let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER).map_err(failed("open a socket"))?;
        let address = socket.bind_auto().map_err(failed("bind a socket"))?;
        for (name, outcome) in
            [("NETLINK_CAP_ACK", socket.set_cap_ack(true)), ("NETLINK_EXT_ACK", socket.set_ext_ack(true))]
        {
            if let Err(error) = outcome {
                tracing::debug!(%error, "the kernel lacks {name}");
            }
        }
        if let Err(error) = sockopt::set_socket_recv_buffer_size_force(&socket, REFUSALS_ROOM) {
            tracing::debug!(%error, "the receive buffer keeps its size");
        }
        let send_room = sockopt::socket_send_buffer_size(&socket).unwrap_or(MAX_BYTES);
        let buffer = Vec::with_capacity(RECEIVE_BUFFER);
        Ok(Self { socket, sequence: 0, buffer, send_room, port: address.port_number() })
    }

    /// The socket's port: what the kernel names as the origin of changes that were made through it.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sends the requests in order; each has its own answer. What else the kernel sends goes to `show`.
    ///
    /// # Errors
    /// Only when the socket fails; refusals are in the answers.
    pub fn exchange(
        &mut self,
        requests: &[Request],
        mut show: impl FnMut(u16, &[u8]),
    ) -> Result<Vec<std::result::Result<(), Refusal>>> {
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
            answers.append(&mut self.exchange_once(now, &mut show)?);
            rest = later;
        }
        Ok(answers)
    }

    fn exchange_once(
        &mut self,
        requests: &[Request],
        show: &mut impl FnMut(u16, &[u8]),
    ) -> Result<Vec<std::result::Result<(), Refusal>>> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes =
            Vec::with_capacity(requests.iter().map(|request| HEADER + request.payload.len()).sum());
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            write_message(&mut bytes, request, NLM_F_ACK, self.sequence);
        }
        self.send(&bytes)?;
        let mut answers = vec![Ok(()); requests.len()];
        let mut open = requests.len();
        while open > 0 {
            self.receive(0, |message| {
                let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                // What belongs to no request of these is the rest of an earlier one.
                let Some(answer) = answers.get_mut(index) else { return };
                if message.message_type == ERROR {
                    open = open.saturating_sub(1);
                    if let Some(refusal) = message.refusal() {
                        *answer = Err(refusal);
                    }
                } else if message.message_type != DONE {
                    show(message.message_type, message.payload);
                }
            })?;
        }
        Ok(answers)
    }

    /// One request whose refusal is an error about `what`.
    ///
    /// # Errors
    /// The refusal, or the socket's failure.
    pub fn request(&mut self, what: &str, request: Request) -> Result<()> {
        match self.exchange(&[request], |_, _| {})?.pop() {
            Some(Err(refusal)) => Err(Error::Refused { what: what.to_owned(), refusal }),
            _ => Ok(()),
        }
    }

    /// Asks for all objects that `request` selects, and returns what `convert` makes of them.
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
                std::thread::sleep(Duration::from_millis(1 << attempt.min(5)));
            }
            if let Some(found) = self.dump_once(what, request, &mut convert)? {
                return Ok(found);
            }
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
            let outcome = self.receive(0, |message| {
                if message.sequence != sequence {
                    return;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.message_type {
                    ERROR | DONE => {
                        finished = true;
                        refused = message.refusal();
                    }
                    kind => found.extend(convert(kind, message.payload)),
                }
            })?;
            // Parts were lost; the rest is read to its end, so that the socket is free for the next attempt.
            interrupted |= outcome == Received::Overrun;
        }
        match refused {
            Some(refusal) if refusal.code == 4 => Ok(None),
            Some(refusal) => Err(Error::Refused { what: what.to_owned(), refusal }),
            None if interrupted => Ok(None),
            None => Ok(Some(found)),
        }
    }

    /// A transaction without messages; it belongs to this socket, which has to send it before anything else.
    pub fn start_batch(&mut self, subsystem: u16) -> Batch {
        let mut batch =
            Batch { bytes: Vec::new(), first: self.sequence.wrapping_add(1), count: 0, subsystem };
        batch.frame(BATCH_BEGIN);
        batch
    }

    /// Carries out all messages of a transaction, or none of them.
    ///
    /// # Errors
    /// The outer error when the socket fails. The inner one says which messages the kernel refused; nothing changed then.
    pub fn send_batch(&mut self, mut batch: Batch) -> Result<std::result::Result<(), BatchRefused>> {
        batch.frame(BATCH_END);
        let Batch { bytes, first, count, .. } = batch;
        self.sequence = first.wrapping_add(count).wrapping_sub(1);
        self.make_room(bytes.len())?;
        self.send(&bytes)?;
        drop(bytes);
        // The kernel has done its work when `send` returns: whatever it has to say is waiting.
        let last = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(1);
        let mut refused = BatchRefused::default();
        loop {
            let outcome = self.receive(DO_NOT_WAIT, |message| {
                let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                let Some(refusal) = message.refusal().filter(|_| message.message_type == ERROR) else {
                    return;
                };
                match index {
                    // The messages that frame the transaction stand for the whole.
                    0 => refused.whole = Some(refusal),
                    index if index == last => refused.whole = Some(refusal),
                    index if index < last => refused.messages.push((index - 1, refusal)),
                    _ => {}
                }
            })?;
            match outcome {
                Received::Something => {}
                Received::Overrun => refused.incomplete = true,
                Received::Nothing => break,
            }
        }
        refused.messages.sort_by_key(|(index, _)| *index);
        let carried_out = refused.messages.is_empty() && refused.whole.is_none() && !refused.incomplete;
        Ok(if carried_out { Ok(()) } else { Err(refused) })
    }

    /// Makes the send buffer large enough for one message of so many bytes.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        // The kernel wants the whole datagram and its own bookkeeping to fit.
        let needed = bytes.saturating_mul(2).saturating_add(MAX_BYTES);
        if needed <= self.send_room {
            return Ok(());
        }
        sockopt::set_socket_send_buffer_size_force(&self.socket, needed)
            .map_err(|error| Error::socket("enlarge the send buffer", &error.into()))?;
        self.send_room = needed;
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        loop {
            match self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::socket("send", &error)),
            }
        }
    }

    /// Makes room for what comes while nobody reads; less where the kernel does not give as much.
    pub(crate) fn make_receive_room(&mut self, bytes: usize) {
        if let Err(error) = sockopt::set_socket_recv_buffer_size_force(&self.socket, bytes) {
            tracing::debug!(%error, "the receive buffer keeps its size");
        }
    }

    /// Makes room for larger datagrams than those of a dump.
    pub(crate) fn make_buffer(&mut self, bytes: usize) {
        self.buffer = Vec::with_capacity(bytes);
    }

    /// Joins a group of notifications.
    pub(crate) fn listen(&mut self, group: u32, what: &str) -> Result<()> {
        self.socket.add_membership(group).map_err(|error| Error::socket(what, &error))
    }

    /// Takes one datagram and shows its messages, without waiting.
    pub(crate) fn look(&mut self, show: impl FnMut(&Message<'_>)) -> Result<Received> {
        self.receive(DO_NOT_WAIT, show)
    }

    fn receive(&mut self, flags: i32, show: impl FnMut(&Message<'_>)) -> Result<Received> {
        receive(&self.socket, &mut self.buffer, flags, show)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a look at the socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram, whose messages were shown.
    Something,
    /// The news that datagrams were lost.
    Overrun,
    /// Nothing is waiting.
    Nothing,
}

/// One message from the kernel.
pub(crate) struct Message<'a> {
    pub(crate) message_type: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// Whose request it is about.
    pub(crate) port: u32,
    pub(crate) payload: &'a [u8],
}

impl Message<'_> {
    /// Reads an error message, or the end of a dump: a negative error number, and the kernel's words behind it.
    fn refusal(&self) -> Option<Refusal> {
        let code = i32::from_ne_bytes(self.payload.first_chunk::<4>().copied().unwrap_or_default());
        if code >= 0 {
            return None;
        }
        let mut message = String::new();
        if self.flags & HAS_ATTRIBUTES != 0 && self.message_type == ERROR {
            // An error repeats the request's header, and the request itself unless it is capped.
            let repeated = match header_u32(self.payload, 4) {
                length if self.flags & CAPPED == 0 => usize::try_from(length)
                    .unwrap_or(usize::MAX)
                    .checked_next_multiple_of(4)
                    .unwrap_or(usize::MAX),
                _ => HEADER,
            };
            message = attributes(self.payload.get(repeated.saturating_add(4)..).unwrap_or_default())
                .find(|attribute| attribute.number == MESSAGE)
                .and_then(|attribute| attribute.text())
                .unwrap_or_default();
        }
        Some(Refusal { code: code.saturating_neg(), message })
    }
}

/// Takes one datagram from the kernel and shows its messages.
pub(crate) fn receive(
    socket: &netlink_sys::Socket,
    buffer: &mut Vec<u8>,
    flags: i32,
    mut show: impl FnMut(&Message<'_>),
) -> Result<Received> {
    buffer.clear();
    buffer.reserve(RECEIVE_BUFFER);
    let sender = loop {
        match socket.recv_from(buffer, flags) {
            Ok((_, sender)) => break sender,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
            // ENOBUFS
            Err(error) if error.raw_os_error() == Some(105) => return Ok(Received::Overrun),
            Err(error) => return Err(Error::socket("receive", &error)),
        }
    };
    // Only the kernel has port 0: other processes cannot answer in its name.
    if sender.port_number() != 0 {
        return Ok(Received::Something);
    }
    let mut rest: &[u8] = buffer;
    while rest.len() >= HEADER {
        let message = NetlinkBuffer::new_checked(rest)
            .map_err(|error| Error::Unreadable { what: "receive".to_owned(), reason: error.to_string() })?;
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

#[cfg(test)]
mod tests {
    use super::{ERROR, Message};
    use crate::netfilter::Refusal;

    fn message(payload: &[u8], flags: u16) -> Message<'_> {
        Message { message_type: ERROR, flags, sequence: 1, port: 0, payload }
    }

    #[test]
    fn refusals_with_and_without_words() {
        assert_eq!(message(&0_i32.to_ne_bytes(), 0).refusal(), None);
        assert_eq!(message(&(-17_i32).to_ne_bytes(), 0).refusal(), Some(Refusal::new(17)));
        // The set subsystem's own numbers are beyond those of the system.
        let full = message(&(-4352_i32).to_ne_bytes(), 0).refusal().expect("a refusal");
        assert_eq!(full.to_string(), "the set is full");
        let mut capped = (-22_i32).to_ne_bytes().to_vec();
        capped.extend_from_slice(&[0; 16]);
        capped.extend_from_slice(&[8, 0, 1, 0, b'b', b'a', b'd', 0]);
        let refusal = message(&capped, 0x300).refusal().expect("a refusal");
        assert_eq!(refusal, Refusal { code: 22, message: "bad".into() });
        assert!(refusal.to_string().ends_with("(bad)"), "{refusal}");
        for end in 4..capped.len() {
            assert_eq!(message(&capped[..end], 0x300).refusal().map(|refusal| refusal.code), Some(22));
        }
        // A length that a broken peer made up is not an index.
        let mut wrong = (-22_i32).to_ne_bytes().to_vec();
        wrong.extend_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(message(&wrong, 0x200).refusal(), Some(Refusal::new(22)));
    }
}
