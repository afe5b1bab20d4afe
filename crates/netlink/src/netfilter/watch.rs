//! Who else changes nftables: the kernel's notifications, reduced to the tables that somebody else touched.
//!
//! iptables with the nft backend is seen too, as changes of its own tables. It says which tables, never what changed: the
//! owner of a table reads it anew.
//!
//! While anybody listens the kernel puts every rule that is written into a notification. A node's first rules are therefore
//! written before it does ([`LaterWatch`]); that nobody else was there meanwhile is seen from the number of transactions.

use super::nft::{Family, Table};
use super::socket::{Received, Request, Socket, receive};
use super::{Error, NFTABLES, Result, header};
use crate::wire::{attributes, split_header};
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The group of nftables' notifications.
const GROUP: u32 = 7;
/// The announcement of a new generation, which names no table, and the question for the one there is.
const NEW_GENERATION: u16 = 15;
const GET_GENERATION: u16 = 16;
/// `MSG_DONTWAIT`.
const DO_NOT_WAIT: i32 = 0x40;
/// Room for the notifications of a large transaction of our own. What does not fit is reported as lost, and costs a read.
const ROOM: usize = 8 * 1024 * 1024;

/// What was seen since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Tables that somebody else changed.
    pub tables: BTreeSet<Table>,
    /// Whether notifications were lost, so that any table may have changed.
    pub lost: bool,
}

impl Seen {
    /// Whether this table may have been changed by somebody else.
    #[must_use]
    pub fn concerns(&self, table: &Table) -> bool {
        self.lost || self.tables.contains(table)
    }

    /// Whether nothing was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.lost && self.tables.is_empty()
    }
}

/// A listener to nftables' notifications of one network namespace.
pub struct Watch {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Listens in this thread's network namespace.
    ///
    /// # Errors
    /// When there is no socket.
    pub fn open() -> Result<Self> {
        let mut watch = Self::deaf()?;
        watch.listen()?;
        Ok(watch)
    }

    fn deaf() -> Result<Self> {
        let failed = |what: &'static str| move |error: std::io::Error| Error::socket(what, &error);
        let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER).map_err(failed("open a socket"))?;
        socket.bind_auto().map_err(failed("bind a socket"))?;
        if let Err(error) = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, ROOM) {
            tracing::debug!(%error, "the receive buffer keeps its size");
        }
        Ok(Self { socket, buffer: Vec::new() })
    }

    fn listen(&mut self) -> Result<()> {
        let joined = self.socket.add_membership(GROUP);
        joined.map_err(|error| Error::socket("listen to changes of nftables", &error))
    }

    /// Waits for a notification, for at most so long, and says what was seen. Changes that were made through the sockets
    /// with `own_ports` are passed over.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn wait(&mut self, own_ports: &[u32], at_most: Option<Duration>) -> Result<Seen> {
        let timeout = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.look(own_ports),
            Err(error) => Err(Error::socket("wait for changes of nftables", &error.into())),
        }
    }

    /// Says what was seen since the last look, without waiting.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn look(&mut self, own_ports: &[u32]) -> Result<Seen> {
        let mut seen = Seen::default();
        loop {
            let outcome = receive(&self.socket, &mut self.buffer, DO_NOT_WAIT, |message| {
                let (subsystem, kind) = (message.message_type >> 8, message.message_type & 0xff);
                if subsystem == NFTABLES && kind != NEW_GENERATION && !own_ports.contains(&message.port) {
                    seen.tables.extend(table_of(message.payload));
                }
            })?;
            match outcome {
                Received::Something => {}
                Received::Overrun => seen.lost = true,
                Received::Nothing => return Ok(seen),
            }
        }
    }
}

/// A [`Watch`] that does not listen yet.
#[derive(Debug)]
pub struct LaterWatch {
    watch: Watch,
    questions: Socket,
    /// How many transactions there had been.
    generation: u32,
}

impl LaterWatch {
    /// A watch over this thread's network namespace from now on, that listens later.
    ///
    /// # Errors
    /// When there is no socket, or the kernel has no nftables.
    pub fn open() -> Result<Self> {
        let (watch, mut questions) = (Watch::deaf()?, Socket::open()?);
        let generation = generation(&mut questions)?;
        Ok(Self { watch, questions, generation })
    }

    /// Listens, and says whether somebody else changed anything since this was opened. `own` is how many transactions were
    /// ours.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn listen(mut self, own: u64) -> Result<(Watch, bool)> {
        // Listening comes first: what happens between the two is counted and heard.
        self.watch.listen()?;
        let now = generation(&mut self.questions)?;
        let others = u64::from(now.wrapping_sub(self.generation)) != own;
        Ok((self.watch, others))
    }
}

/// The number of the kernel's present tables, which goes up by one with each transaction of anybody.
fn generation(socket: &mut Socket) -> Result<u32> {
    let request =
        Request { message_type: NFTABLES << 8 | GET_GENERATION, flags: 0, payload: header(0, 0).to_vec() };
    let what = || "ask for nftables' generation".to_owned();
    let mut found = None;
    let answers = socket.exchange(&[request], |_, payload| {
        let rest = split_header::<4>(payload).map_or(&[][..], |(_, rest)| rest);
        found = attributes(rest).find(|one| one.number == 1).and_then(|one| one.u32_be()).or(found);
    })?;
    for answer in answers {
        answer.map_err(|refusal| Error::Refused { what: what(), refusal })?;
    }
    found.ok_or_else(|| Error::Unreadable { what: what(), reason: "it has no number".to_owned() })
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The table that a notification is about; `None` for families that we have no tables in.
fn table_of(payload: &[u8]) -> Option<Table> {
    let (header, rest) = split_header::<4>(payload)?;
    let family =
        [Family::Ip, Family::Ip6, Family::Arp].into_iter().find(|family| family.number() == header[0])?;
    let name = attributes(rest).find(|attribute| attribute.number == 1)?.text()?;
    Some(Table::new(family, &name))
}
