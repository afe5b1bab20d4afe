//! Changes in a namespace, as they happen.
//!
//! The kernel drops events when they are not read in time. This is reported as [`Event::Lost`]; a caller that keeps a
//! copy of the state must then read everything again.

use crate::datagram::{Received, receive};
use crate::error::{Error, Result};
use crate::route::address::{self, Address};
use crate::route::link::{self, Link};
use crate::route::neighbour::{self, Neighbour};
use crate::route::routes::{self, Route};
use crate::route::rule::{self, Rule};
use crate::route::{
    DEL_ADDRESS, DEL_LINK, DEL_NEIGHBOUR, DEL_ROUTE, DEL_RULE, NEW_ADDRESS, NEW_LINK, NEW_NEIGHBOUR,
    NEW_ROUTE, NEW_RULE,
};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Large enough for the bursts of a busy node; the kernel gives less to unprivileged processes.
const BUFFER: u32 = 4 * 1024 * 1024;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A device is new or changed.
    Link(Link),
    /// A device is gone.
    LinkGone(Link),
    /// An address is new or changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route is new or changed.
    Route(Route),
    /// A route is gone.
    RouteGone(Route),
    /// A neighbour is new or changed.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone(Neighbour),
    /// A rule is new.
    Rule(Rule),
    /// A rule is gone.
    RuleGone(Rule),
    /// Events were lost: read everything again.
    Lost,
}

/// What to listen to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interests {
    /// Devices.
    pub links: bool,
    /// Addresses of both families.
    pub addresses: bool,
    /// Routes of both families.
    pub routes: bool,
    /// Neighbours of both families.
    pub neighbours: bool,
    /// Rules of both families.
    pub rules: bool,
}

/// A socket that listens. It belongs to the namespace in which it was opened.
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Monitor {
    /// Starts to listen in the network namespace of this thread. Changes from now on are seen.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open(interests: Interests) -> Result<Self> {
        let failed = |what: &'static str| move |error: std::io::Error| Error::socket(what, &error);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open a netlink socket"))?;
        socket.bind_auto().map_err(failed("bind a netlink socket"))?;
        if let Err(error) = socket.set_rx_buf_sz(BUFFER) {
            tracing::debug!(%error, "the receive buffer keeps its size");
        }
        let groups = [
            (interests.links, &[1][..]),
            (interests.neighbours, &[3]),
            (interests.addresses, &[5, 9]),
            (interests.routes, &[7, 11]),
            (interests.rules, &[8, 19]),
        ];
        for (wanted, groups) in groups {
            for group in groups.iter().filter(|_| wanted) {
                socket.add_membership(*group).map_err(failed("listen to changes"))?;
            }
        }
        Ok(Self { socket, buffer: Vec::new() })
    }

    /// Waits for the next events, at most for `timeout`; an empty list when there were none.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Vec<Event>> {
        if !self.wait(timeout)? {
            return Ok(Vec::new());
        }
        let mut events = Vec::new();
        let received = receive(&self.socket, &mut self.buffer, 0, |message| {
            events.extend(read(message.message_type, message.payload));
        })?;
        if received == Received::Overrun {
            events.push(Event::Lost);
        }
        Ok(events)
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let Some(timeout) = timeout else { return Ok(true) };
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        loop {
            let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut descriptors, Some(&timeout)) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::Socket { what: "wait for events".to_owned(), errno }),
            }
        }
    }
}

fn read(kind: u16, payload: &[u8]) -> Option<Event> {
    Some(match kind {
        NEW_LINK => Event::Link(link::read(payload)?),
        DEL_LINK => Event::LinkGone(link::read(payload)?),
        NEW_ADDRESS => Event::Address(address::read(payload)?),
        DEL_ADDRESS => Event::AddressGone(address::read(payload)?),
        NEW_ROUTE => Event::Route(routes::read(payload)?),
        DEL_ROUTE => Event::RouteGone(routes::read(payload)?),
        NEW_NEIGHBOUR => Event::Neighbour(neighbour::read(payload)?),
        DEL_NEIGHBOUR => Event::NeighbourGone(neighbour::read(payload)?),
        NEW_RULE => Event::Rule(rule::read(payload)?),
        DEL_RULE => Event::RuleGone(rule::read(payload)?),
        _ => return None,
    })
}
