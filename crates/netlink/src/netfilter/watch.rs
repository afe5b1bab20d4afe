//! Changes of nftables by other programs: the kernel's notifications, reduced to the tables they concern.
//!
//! iptables with the nft backend is seen too, as changes of its own tables. Only the tables are reported, never what
//! changed: the owner of a table reads it again.
//!
//! While any process listens, the kernel puts every written rule into a notification. A node's first rules are
//! therefore written before it listens ([`LaterWatch`]); the number of transactions shows whether another program
//! changed anything in the meantime.

use super::nft::{Client, Family, Table};
use super::{Error, NFTABLES, Result};
use crate::datagram::{Received, receive};
use crate::wire::{attributes, split_header};
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The group of nftables' notifications.
const GROUP: u32 = 7;
/// The notification of a new generation, which names no table.
const NEW_GENERATION: u16 = 15;
/// `MSG_DONTWAIT`.
const DO_NOT_WAIT: i32 = 0x40;
/// Space for the notifications of a large transaction of our own. What does not fit is reported as lost, and costs a
/// read.
const ROOM: usize = 8 * 1024 * 1024;

/// The changes since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Tables that other programs changed.
    pub tables: BTreeSet<Table>,
    /// Whether notifications were lost, so that any table may have changed.
    pub lost: bool,
}

impl Seen {
    /// Whether another program may have changed this table.
    #[must_use]
    pub fn concerns(&self, table: &Table) -> bool {
        self.lost || self.tables.contains(table)
    }

    /// Whether no changes were seen.
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
    /// When the kernel does not provide a socket.
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

    /// Waits for a notification, at most for `at_most`, and returns what was seen. Changes made through the sockets
    /// with `own_ports` are ignored.
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

    /// Returns what was seen since the last look, without waiting. Changes made through the sockets with `own_ports`
    /// are ignored.
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

/// Counts transactions, to detect those of other programs.
#[derive(Debug)]
pub struct Transactions {
    client: Client,
    generation: u32,
    own: u64,
}

impl Transactions {
    /// Counts from now on, in this thread's network namespace. `own` is the number of our own transactions so far.
    ///
    /// # Errors
    /// When the kernel does not provide a socket, or lacks nftables.
    pub fn open(own: u64) -> Result<Self> {
        let mut client = Client::open()?;
        let generation = client.generation()?;
        Ok(Self { client, generation, own })
    }

    /// Whether there were foreign transactions since the last call. `own` is the number of our own transactions so far.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn others(&mut self, own: u64) -> Result<bool> {
        let now = self.client.generation()?;
        let others = u64::from(now.wrapping_sub(self.generation)) != own.wrapping_sub(self.own);
        (self.generation, self.own) = (now, own);
        Ok(others)
    }
}

/// A [`Watch`] that does not listen yet.
#[derive(Debug)]
pub struct LaterWatch {
    watch: Watch,
    transactions: Transactions,
}

impl LaterWatch {
    /// A watch over this thread's network namespace from now on, which listens later.
    ///
    /// # Errors
    /// When the kernel does not provide a socket, or lacks nftables.
    pub fn open() -> Result<Self> {
        Ok(Self { watch: Watch::deaf()?, transactions: Transactions::open(0)? })
    }

    /// Starts to listen, and returns whether another program changed anything since this was opened. `own` is the
    /// number of our own transactions.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn listen(mut self, own: u64) -> Result<(Watch, Transactions, bool)> {
        // Listening comes first: changes between the two steps are then both counted and received.
        self.watch.listen()?;
        let others = self.transactions.others(own)?;
        Ok((self.watch, self.transactions, others))
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The table that a notification is about; `None` for families in which we have no tables.
fn table_of(payload: &[u8]) -> Option<Table> {
    let (header, rest) = split_header::<4>(payload)?;
    let family =
        [Family::Ip, Family::Ip6, Family::Arp].into_iter().find(|family| family.number() == header[0])?;
    let name = attributes(rest).find(|attribute| attribute.number == 1)?.text()?;
    Some(Table::new(family, &name))
}
