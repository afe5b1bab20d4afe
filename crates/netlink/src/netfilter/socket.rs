//! One netfilter socket: requests with an answer each, complete dumps, and transactions.
//!
//! It belongs to the network namespace of the thread that opened it. A transaction is sent in one `send`. The kernel
//! processes it before the call returns; after a refusal it continues only to find further ones, so that every refused
//! message is known and nothing is changed.

use super::{Error, Refusal, Result, header};
use crate::datagram::{
    DONE, DUMP_ATTEMPTS, ERROR, Fault, HEADER, MAX_BYTES, Message, RECEIVE_BUFFER, Received, Request, pause,
    portion, receive, send, write,
};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR};
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd};

/// The messages that frame a transaction.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// `MSG_DONTWAIT`.
const DO_NOT_WAIT: i32 = 0x40;
/// `EINTR`.
const INTERRUPTED: i32 = 4;

/// Space for the refusals of a large transaction; beyond it some are lost, which is reported.
const REFUSALS_ROOM: usize = 4 * 1024 * 1024;

/// The refusals of a transaction that was not carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchRefused {
    /// The refused messages by index, in order.
    pub messages: Vec<(usize, Refusal)>,
    /// A refusal of the whole transaction, such as when the chains would form a loop.
    pub whole: Option<Refusal>,
    /// Whether refusals were lost because there were too many.
    pub incomplete: bool,
}

/// A transaction under construction: one buffer, which is sent as it is.
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
        write(&mut self.bytes, request, 0, self.first.wrapping_add(self.count));
        self.count += 1;
    }

    /// The number of messages in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// Whether the batch has no messages.
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
    /// When the kernel does not provide one.
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

    /// The socket's port, which the kernel names as the origin of changes made through it.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sends the requests in order; each has its own answer. Other messages of the kernel are passed to `show`.
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
            let (now, later) = portion(rest);
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
            write(&mut bytes, request, NLM_F_ACK, self.sequence);
        }
        self.send(&bytes)?;
        let mut answers = vec![Ok(()); requests.len()];
        let mut open = requests.len();
        while open > 0 {
            self.receive(0, |message| {
                let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                // Messages that belong to none of these requests are left over from an earlier one.
                let Some(answer) = answers.get_mut(index) else { return };
                if message.message_type == ERROR {
                    open = open.saturating_sub(1);
                    if let Some(refusal) = refusal(message) {
                        *answer = Err(refusal);
                    }
                } else if message.message_type != DONE {
                    show(message.message_type, message.payload);
                }
            })?;
        }
        Ok(answers)
    }

    /// Sends one request; a refusal is returned as an error about `what`.
    ///
    /// # Errors
    /// The refusal, or the socket's failure.
    pub fn request(&mut self, what: &str, request: Request) -> Result<()> {
        match self.exchange(&[request], |_, _| {})?.pop() {
            Some(Err(refusal)) => Err(Error::Refused { what: what.to_owned(), refusal }),
            _ => Ok(()),
        }
    }

    /// Dumps all objects that `request` selects, and returns what `convert` makes of them.
    ///
    /// # Errors
    /// When the kernel refuses, the socket fails, or every attempt was interrupted.
    pub fn dump<T>(
        &mut self,
        what: &str,
        request: &Request,
        mut convert: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        for attempt in 0..DUMP_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(pause(attempt));
            }
            if let Some(found) = self.dump_once(what, request, &mut convert)? {
                return Ok(found);
            }
        }
        Err(Error::Restless { what: what.to_owned(), attempts: DUMP_ATTEMPTS })
    }

    /// Makes one attempt; `None` when it was interrupted.
    fn dump_once<T>(
        &mut self,
        what: &str,
        request: &Request,
        convert: &mut impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let mut bytes = Vec::with_capacity(HEADER + request.payload.len());
        write(&mut bytes, request, NLM_F_DUMP, sequence);
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
                        refused = refusal(message);
                    }
                    kind => found.extend(convert(kind, message.payload)),
                }
            })?;
            // Parts were lost; the rest is read to its end, so that the socket is free for the next attempt.
            interrupted |= outcome == Received::Overrun;
        }
        match refused {
            Some(refusal) if refusal.code == INTERRUPTED => Ok(None),
            Some(refusal) => Err(Error::Refused { what: what.to_owned(), refusal }),
            None if interrupted => Ok(None),
            None => Ok(Some(found)),
        }
    }

    /// Starts a transaction without messages; this socket has to send it before anything else.
    pub fn start_batch(&mut self, subsystem: u16) -> Batch {
        let mut batch =
            Batch { bytes: Vec::new(), first: self.sequence.wrapping_add(1), count: 0, subsystem };
        batch.frame(BATCH_BEGIN);
        batch
    }

    /// Carries out all messages of a transaction, or none of them.
    ///
    /// # Errors
    /// The outer error when the socket fails. The inner one names the messages that the kernel refused; nothing has
    /// changed then.
    pub fn send_batch(&mut self, mut batch: Batch) -> Result<std::result::Result<(), BatchRefused>> {
        batch.frame(BATCH_END);
        let Batch { bytes, first, count, .. } = batch;
        self.sequence = first.wrapping_add(count).wrapping_sub(1);
        self.make_room(bytes.len())?;
        self.send(&bytes)?;
        drop(bytes);
        // The kernel has processed everything when `send` returns, so all answers are waiting.
        let last = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(1);
        let mut refused = BatchRefused::default();
        loop {
            let outcome = self.receive(DO_NOT_WAIT, |message| {
                let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                let Some(refusal) = refusal(message).filter(|_| message.message_type == ERROR) else {
                    return;
                };
                match index {
                    // The messages that frame the transaction represent the whole.
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

    /// Makes the send buffer large enough for one message of this length.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        // The kernel requires room for the whole datagram and its own bookkeeping.
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
        send(&self.socket, bytes).map_err(|error| Error::socket("send", &error))
    }

    /// Makes room for messages that wait to be read; less where the kernel does not allow as much.
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

    /// Receives one datagram and passes its messages to `show`, without waiting.
    pub(crate) fn look(&mut self, show: impl FnMut(&Message<'_>)) -> Result<Received> {
        self.receive(DO_NOT_WAIT, show)
    }

    fn receive(&mut self, flags: i32, show: impl FnMut(&Message<'_>)) -> Result<Received> {
        Ok(receive(&self.socket, &mut self.buffer, flags, show)?)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Socket(error) => Self::socket("receive", &error),
            Fault::Unreadable(reason) => Self::Unreadable { what: "receive".to_owned(), reason },
        }
    }
}

fn refusal(message: &Message<'_>) -> Option<Refusal> {
    message.refusal().map(|(code, message)| Refusal { code, message })
}
