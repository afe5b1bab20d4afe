//! The receiving end of probes: sockets that answer, and raw sockets that see everything that the packet filter
//! accepts.

use super::Namespace;
use super::packets::{payload, tag};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with, sockopt,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, TcpListener, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A protocol without ports, and unused here.
pub(crate) const OTHER: u8 = 99;

/// A packet that was accepted: whether it is IPv6, protocol, tag.
pub(crate) type Arrival = (bool, u8, u16);

/// Answers in a namespace until dropped.
#[derive(Debug)]
pub struct Station {
    arrivals: Arc<Mutex<BTreeSet<Arrival>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Raw { v6: bool, protocol: u8, socket: OwnedFd },
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
            Self::Raw { socket, .. } => socket.as_fd(),
        }
    }
}

impl Station {
    /// Answers on these ports of TCP and UDP (with the sender's address, as seen here), for both IP versions. If there
    /// are several addresses, a UDP answer comes from the requested address only if it is one of `addresses`; if
    /// `addresses` is empty, all addresses are served.
    ///
    /// # Errors
    /// When a port is in use, or raw sockets are not permitted.
    pub fn open(namespace: &Namespace, tcp: &[u16], udp: &[u16], addresses: &[IpAddr]) -> Result<Self> {
        let sockets = namespace.run(|| open(tcp, udp, addresses))??;
        let arrivals = Arc::new(Mutex::new(BTreeSet::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (arrivals, ended) = (Arc::clone(&arrivals), Arc::clone(&ended));
            move || serve(&sockets, &arrivals, &ended)
        });
        Ok(Self { arrivals, ended, thread: Some(thread) })
    }

    pub(crate) fn has_seen(&self, arrival: Arrival) -> bool {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).contains(&arrival)
    }

    pub(crate) fn forget(&self, arrival: Arrival) {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).remove(&arrival);
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has already been printed.
            let _ = thread.join();
        }
    }
}

fn open(tcp: &[u16], udp: &[u16], addresses: &[IpAddr]) -> Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for port in tcp {
        let socket =
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).with_context(|| format!("TCP {port}"))?;
        socket.set_nonblocking(true)?;
        sockets.push(Socket::Tcp(socket));
    }
    let everywhere = [IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let addresses = if addresses.is_empty() { &everywhere } else { addresses };
    for port in udp {
        for address in addresses {
            let socket =
                UdpSocket::bind((*address, *port)).with_context(|| format!("UDP {address} {port}"))?;
            socket.set_nonblocking(true)?;
            sockets.push(Socket::Udp(socket));
        }
    }
    for v6 in [false, true] {
        let icmp = if v6 { 58 } else { 1 };
        for protocol in [6, 17, 132, OTHER, icmp] {
            let socket = raw_socket(v6, protocol)?;
            // Bursts of many probes must not be dropped here.
            sockopt::set_socket_recv_buffer_size(&socket, 1 << 20)?;
            sockets.push(Socket::Raw { v6, protocol, socket });
        }
    }
    Ok(sockets)
}

/// A raw socket of this protocol in the thread's namespace.
pub(crate) fn raw_socket(v6: bool, protocol: u8) -> Result<OwnedFd> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let number = NonZeroU32::new(u32::from(protocol)).map_or(ipproto::RAW, Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::RAW, flags, Some(number))
        .context("opening a raw socket (this needs root)")
}

fn serve(sockets: &[Socket], arrivals: &Mutex<BTreeSet<Arrival>>, ended: &AtomicBool) {
    // Long enough to cost nothing, short enough to end soon.
    let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut buffer = [0; 2048];
    while !ended.load(Ordering::Relaxed) {
        let mut ready: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        if !poll(&mut ready, Some(&pause)).is_ok_and(|count| count > 0) {
            continue;
        }
        for (socket, ready) in sockets.iter().zip(&ready) {
            if ready.revents().is_empty() {
                continue;
            }
            match socket {
                // Accepting is the answer.
                Socket::Tcp(listener) => while listener.accept().is_ok() {},
                Socket::Udp(socket) => {
                    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        let mut answer = buffer[..length.min(2)].to_vec();
                        answer.extend(from.ip().to_canonical().to_string().as_bytes());
                        // The sender will notice that an answer is missing.
                        let _ = socket.send_to(&answer, from);
                    }
                }
                Socket::Raw { v6, protocol, socket } => {
                    while let Ok((length, _)) = recv(socket, &mut buffer[..], RecvFlags::empty()) {
                        if let Some(tag) = tag(*protocol, payload(&buffer[..length], *v6)) {
                            let mut seen = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                            seen.insert((*v6, *protocol, tag));
                        }
                    }
                }
            }
        }
    }
}
