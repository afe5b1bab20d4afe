//! Finds the peer on a link without addresses: routers that peer by interface discover each other by advertisements
//! (RFC 4861), like other BGP speakers. Ours have a lifetime of zero, so no host uses us as its router.

use super::filters::near_messages;
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The maximum number of packets processed at a time.
const BATCH: usize = 64;

/// The neighbours found on links.
#[derive(Default)]
pub(super) struct Discovery {
    socket: Option<Socket>,
    joined: BTreeSet<u32>,
    neighbours: BTreeMap<u32, Ipv6Addr>,
}

impl Discovery {
    /// The neighbour on a link, if known.
    pub(super) fn neighbour(&self, link: u32) -> Option<Ipv6Addr> {
        self.neighbours.get(&link).copied()
    }

    /// Announces us on a link, and solicits others.
    pub(super) fn call(&mut self, link: u32, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        if self.socket.is_none() {
            let socket = open()?;
            epoll::add(epoll, &socket, EventData::new_u64(token), EventFlags::IN)?;
            self.socket = Some(socket);
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.joined.insert(link) {
            socket.join_multicast_v6(&ALL_ROUTERS, link)?;
        }
        let to = |group: Ipv6Addr| SockAddr::from(SocketAddrV6::new(group, 0, 0, link));
        // Type, code, checksum (the kernel's), hop limit, flags, a lifetime of zero, and no timers.
        socket.send_to(&[ADVERTISEMENT, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &to(ALL_NODES))?;
        socket.send_to(&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0], &to(ALL_ROUTERS))?;
        Ok(())
    }

    /// Processes received packets.
    pub(super) fn receive(&mut self) {
        let Some(socket) = &self.socket else { return };
        for _ in 0..BATCH {
            let mut buffer = [MaybeUninit::uninit(); 16];
            let Ok((_, from)) = socket.recv_from(&mut buffer) else { return };
            if let Some(SocketAddr::V6(from)) = from.as_socket()
                && from.ip().is_unicast_link_local()
                && self.joined.contains(&from.scope_id())
            {
                self.neighbours.insert(from.scope_id(), *from.ip());
            }
        }
    }
}

fn open() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_nonblocking(true)?;
    socket.set_unicast_hops_v6(255)?;
    socket.set_multicast_hops_v6(255)?;
    socket.set_multicast_loop_v6(false)?;
    // Only solicitations and advertisements sent on this very link.
    let only = [SOLICITATION, ADVERTISEMENT];
    socket.attach_filter(&near_messages(only))?;
    Ok(socket)
}
