//! Events of connections as they begin and end, and dumps of all of them, with their counts and ends.
//!
//! The kernel counts only connections that began after `net/netfilter/nf_conntrack_acct` was set. It drops events when
//! they are not read in time. That is counted, and a dump recovers the connections that still exist.

use super::super::socket::Socket;
use super::super::{CONNTRACK, Result};
use super::entry::Entry;
use super::{DELETE, everything};
use crate::Family;
use crate::datagram::Received;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// The groups of notifications.
const GROUP_NEW: u32 = 1;
const GROUP_DESTROY: u32 = 3;
/// The number of a message about a connection that is new or changed.
const NEW: u16 = 0;
/// Space for events that wait to be read: some ten thousand connections.
const ROOM: usize = 8 * 1024 * 1024;
/// How many datagrams are read in one go.
const MOST_READS: usize = 256;

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It began.
    New(Entry),
    /// It ended; the entry has its final counts.
    Gone(Entry),
}

/// A listener to the connections of one network namespace.
#[derive(Debug)]
pub struct ConnectionEvents {
    socket: Socket,
    lost: u64,
}

impl ConnectionEvents {
    /// Listens in this thread's network namespace: to ends, and with `with_beginnings` also to beginnings.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open(with_beginnings: bool) -> Result<Self> {
        let mut socket = Socket::open()?;
        socket.make_receive_room(ROOM);
        socket.listen(GROUP_DESTROY, "listen to connections that end")?;
        if with_beginnings {
            socket.listen(GROUP_NEW, "listen to connections that begin")?;
        }
        Ok(Self { socket, lost: 0 })
    }

    /// Waits for events, at most for `at_most`, and passes the waiting ones to `show`.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn wait(&mut self, at_most: Duration, mut show: impl FnMut(ConnectionEvent)) -> Result<()> {
        wait_for(&self.socket, at_most)?;
        for _ in 0..MOST_READS {
            let outcome = self.socket.look(|message| {
                let kind = match message.message_type {
                    kind if kind >> 8 == CONNTRACK => kind & 0xff,
                    _ => return,
                };
                let Some(entry) = Entry::read(message.payload) else { return };
                match kind {
                    NEW => show(ConnectionEvent::New(entry)),
                    DELETE => show(ConnectionEvent::Gone(entry)),
                    _ => {}
                }
            })?;
            match outcome {
                Received::Something => {}
                Received::Overrun => self.lost += 1,
                Received::Nothing => break,
            }
        }
        Ok(())
    }

    /// How often events were lost because they were not read in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Waits until a socket is readable, at most for `at_most`.
pub(in super::super) fn wait_for(socket: &Socket, at_most: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(at_most).ok();
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(super::super::Error::socket("wait for reports", &error.into())),
    }
}

/// A reader of the whole table.
#[derive(Debug)]
pub struct ConnectionTable {
    socket: Socket,
}

impl ConnectionTable {
    /// Opens the table of this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open()? })
    }

    /// Passes all connections of a family to `show`. A disturbed dump is repeated, so a connection may be shown twice.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn read(&mut self, family: Family, mut show: impl FnMut(Entry)) -> Result<()> {
        self.socket.dump("list connections", &everything(family), |_, payload| {
            if let Some(entry) = Entry::read(payload) {
                show(entry);
            }
            None::<()>
        })?;
        Ok(())
    }
}
