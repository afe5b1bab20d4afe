//! One netlink socket: batches of requests with one answer each, and complete dumps.
//!
//! The socket belongs to the network namespace in which it was opened, whichever thread uses it later. Many requests
//! are sent in one `send`; the kernel carries them out in order and continues after a refusal, so each has its own
//! answer. A dump that the kernel marks as interrupted, or that overran the receive buffer, is read again.

use crate::datagram::{
    DONE, DUMP_ATTEMPTS, ERROR, Fault, HEADER, Message, RECEIVE_BUFFER, Received, Request, pause, portion,
    receive, send, write,
};
use crate::error::{Error, Result};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR};
use netlink_sys::Socket;
use rustix::io::Errno;

/// The lowest message type that a family may use; those below are netlink's own.
const FIRST_OF_FAMILY: u16 = 16;

/// The kernel's answer to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The kernel's refusal; `None` when it carried out the request.
    pub refusal: Option<(Errno, String)>,
    /// The messages of the answer: type and payload.
    pub messages: Vec<(u16, Vec<u8>)>,
}

impl Answer {
    /// Returns the messages, or the refusal as an error about `what`.
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
    /// When the kernel does not provide one.
    pub fn open(protocol: isize) -> Result<Self> {
        let failed = |what: &'static str| move |error: std::io::Error| Error::socket(what, &error);
        let mut socket = Socket::new(protocol).map_err(failed("open a netlink socket"))?;
        socket.bind_auto().map_err(failed("bind a netlink socket"))?;
        // Each option makes answers shorter, clearer or more selective; kernels without them still answer.
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
            let (now, later) = portion(rest);
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
            write(&mut bytes, request, NLM_F_ACK, self.sequence);
        }
        self.send(&bytes)?;
        let mut answers = vec![Answer::default(); requests.len()];
        let mut open = requests.len();
        while open > 0 {
            let received = self.receive(|message| {
                let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                // Messages that belong to no request of this batch are left over from an earlier one.
                let Some(answer) = answers.get_mut(index) else { return };
                match message.message_type {
                    ERROR => {
                        open = open.saturating_sub(1);
                        answer.refusal = refusal(message);
                    }
                    kind if kind >= FIRST_OF_FAMILY => answer.messages.push((kind, message.payload.to_vec())),
                    _ => {}
                }
            })?;
            if received == Received::Overrun {
                return Err(Error::Socket { what: "receive".to_owned(), errno: Errno::NOBUFS });
            }
        }
        Ok(answers)
    }

    /// Dumps all objects that `request` selects and returns what `convert` makes of them; objects for which it returns
    /// `None` are skipped. `what` names the operation in errors.
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
            tracing::debug!(what, attempt, "the dump was interrupted");
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
            let received = self.receive(|message| {
                if message.sequence != sequence {
                    return;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.message_type {
                    ERROR | DONE => {
                        finished = true;
                        refused = refusal(message);
                    }
                    kind if kind >= FIRST_OF_FAMILY => found.extend(convert(kind, message.payload)),
                    _ => {}
                }
            })?;
            // Parts were lost; the rest is read to its end, so that the socket is free for the next attempt.
            interrupted |= received == Received::Overrun;
        }
        match refused {
            Some((Errno::INTR, _)) => Ok(None),
            Some((errno, message)) => Err(Error::Refused { what: what.to_owned(), errno, message }),
            None if interrupted => Ok(None),
            None => Ok(Some(found)),
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        send(&self.socket, bytes).map_err(|error| Error::socket("send", &error))
    }

    /// Waits for one datagram and passes its messages to `show`.
    fn receive(&mut self, show: impl FnMut(&Message<'_>)) -> Result<Received> {
        Ok(receive(&self.socket, &mut self.buffer, 0, show)?)
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

fn refusal(message: &Message<'_>) -> Option<(Errno, String)> {
    message.refusal().map(|(code, words)| (Errno::from_raw_os_error(code), words))
}
