//! BFD with its sockets: a listening one per family and number of hops, and a sending one per peer.
//!
//! Packets over one hop must have a time to live of 255, so no distant host can have sent them (RFC 5881, 5). A filter
//! in the kernel enforces that, so packets of others cost nothing here.

use super::filters::near;
use super::host::Host;
use super::sockets::scoped;
use crate::bfd::{Bfd, News, Packet, State};
use crate::engine::Watched as Wish;
use crate::session::{Moment, Random};
use rib::PeerId;
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// The ports of RFC 5881 and RFC 5883.
const PORTS: [u16; 2] = [3784, 4784];
/// The first permitted source port (RFC 5881, 4), and the number of ports.
const SOURCES: (u16, u32) = (49152, 16384);
const FULL_TTL: u32 = 255;
/// The maximum number of packets processed before others get their turn.
const BATCH: usize = 256;

/// The maximum number of listening sockets.
pub(super) const LISTENERS: u64 = 4;
const PLACES: usize = 4;

/// A finding of BFD about a peer.
pub(super) struct Found {
    pub(super) peer: PeerId,
    pub(super) remote: IpAddr,
    pub(super) news: News,
}

/// A watched peer.
struct Watched {
    wish: Wish,
    multihop: bool,
    bfd: Bfd,
    sender: UdpSocket,
}

impl Watched {
    fn send(&self, packet: &Packet) {
        // A packet that cannot be sent counts as lost, which is what BFD detects.
        let _ = self.sender.send(&packet.encode());
    }
}

/// All watched peers.
pub(super) struct Watch {
    sessions: BTreeMap<PeerId, Watched>,
    listeners: [Option<UdpSocket>; PLACES],
    next: u32,
    random: Random,
}

impl Watch {
    pub(super) fn new(seed: u64) -> Self {
        let next = u32::try_from(seed >> 40).unwrap_or(1).max(1);
        Self {
            sessions: BTreeMap::new(),
            listeners: [const { None }; PLACES],
            next,
            random: Random::new(seed),
        }
    }

    /// Watches these peers and no others. `token` is that of the first listener.
    pub(super) fn reconcile(
        &mut self,
        wishes: Vec<(PeerId, Wish)>,
        host: &Host,
        epoll: &OwnedFd,
        token: u64,
        now: Moment,
    ) {
        let wishes: BTreeMap<PeerId, (Wish, bool)> = wishes
            .into_iter()
            .map(|(peer, wish)| {
                let near = wish.link.is_some() || host.is_near(wish.remote);
                let multihop = wish.bfd.multihop.unwrap_or(!near);
                (peer, (wish, multihop))
            })
            .collect();
        self.sessions.retain(|peer, watched| {
            let stays = wishes
                .get(peer)
                .is_some_and(|(wish, multihop)| (wish, multihop) == (&watched.wish, &watched.multihop));
            if !stays {
                let last = watched.bfd.end();
                watched.send(&last);
            }
            stays
        });
        for (peer, (wish, multihop)) in wishes {
            if self.sessions.contains_key(&peer) {
                continue;
            }
            let remote = wish.remote;
            if let Err(error) = self.add(peer, wish, multihop, now) {
                tracing::warn!("BFD cannot watch {remote}: {error}");
            }
        }
        for index in 0..self.listeners.len() {
            let is_wanted = self.sessions.values().any(|watched| place(watched) == index);
            if !is_wanted {
                self.listeners[index] = None;
            } else if self.listeners[index].is_none() {
                let opened = listen(index).and_then(|socket| {
                    let data = EventData::new_u64(token + index as u64);
                    epoll::add(epoll, &socket, data, EventFlags::IN)?;
                    Ok(socket)
                });
                match opened {
                    Ok(socket) => self.listeners[index] = Some(socket),
                    Err(error) => {
                        tracing::warn!("listening for BFD on port {} failed: {error}", PORTS[index / 2]);
                    }
                }
            }
        }
    }

    fn add(&mut self, peer: PeerId, wish: Wish, multihop: bool, now: Moment) -> io::Result<()> {
        let discriminator = self.next;
        self.next = self.next.checked_add(1).unwrap_or(1);
        let settings =
            crate::bfd::Settings { interval: wish.bfd.interval, multiplier: wish.bfd.multiplier.get() };
        let sender = sender(&wish, multihop, discriminator)?;
        let bfd = Bfd::new(settings, discriminator, now);
        self.sessions.insert(peer, Watched { wish, multihop, bfd, sender });
        Ok(())
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.sessions.values().filter_map(|watched| watched.bfd.deadline()).min()
    }

    pub(super) fn tick(&mut self, now: Moment) -> Vec<Found> {
        let mut found = Vec::new();
        for (peer, watched) in &mut self.sessions {
            if watched.bfd.deadline().is_some_and(|deadline| deadline <= now) {
                let (packet, news) = watched.bfd.tick(now, &mut self.random);
                if let Some(packet) = packet {
                    watched.send(&packet);
                }
                found.extend(news.map(|news| Found { peer: *peer, remote: watched.wish.remote, news }));
            }
        }
        found
    }

    /// Processes packets that arrived at a listener.
    pub(super) fn receive(&mut self, index: usize, now: Moment) -> Vec<Found> {
        let mut found = Vec::new();
        let mut buffer = [0; 128];
        for _ in 0..BATCH {
            let Some(listener) = self.listeners.get(index).and_then(Option::as_ref) else { break };
            let Ok((length, from)) = listener.recv_from(&mut buffer) else { break };
            let Some(packet) = Packet::decode(&buffer[..length]) else { continue };
            let link = match from {
                SocketAddr::V6(from) if from.ip().is_unicast_link_local() => Some(from.scope_id()),
                _ => None,
            };
            let session = self.sessions.iter_mut().find(|(_, watched)| {
                place(watched) == index
                    && watched.wish.remote == from.ip()
                    && (link.is_none() || watched.wish.link == link)
                    && (packet.yours == 0 || packet.yours == watched.bfd.discriminator())
            });
            let Some((peer, watched)) = session else { continue };
            let (answer, news) = watched.bfd.received(&packet, now);
            if let Some(answer) = answer {
                watched.send(&answer);
            }
            found.extend(news.map(|news| Found { peer: *peer, remote: watched.wish.remote, news }));
        }
        found
    }

    /// Shuts down all sessions, so that peers do not treat the end as a failure.
    pub(super) fn end(&mut self) {
        for watched in self.sessions.values_mut().filter(|watched| watched.bfd.state() == State::Up) {
            let last = watched.bfd.end();
            watched.send(&last);
        }
        self.sessions.clear();
    }
}

/// The index of the listener for a peer.
fn place(watched: &Watched) -> usize {
    usize::from(watched.multihop) * 2 + usize::from(watched.wish.remote.is_ipv6())
}

fn udp(v6: bool) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if v6 {
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(FULL_TTL)?;
    } else {
        socket.set_ttl_v4(FULL_TTL)?;
    }
    Ok(socket)
}

fn any(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

fn listen(index: usize) -> io::Result<UdpSocket> {
    let (v6, multihop) = (index % 2 == 1, index >= 2);
    let socket = udp(v6)?;
    if !multihop {
        socket.attach_filter(&near(v6))?;
    }
    socket.bind(&SocketAddr::new(any(v6), PORTS[usize::from(multihop)]).into())?;
    Ok(socket.into())
}

fn sender(wish: &Wish, multihop: bool, discriminator: u32) -> io::Result<UdpSocket> {
    let socket = udp(wish.remote.is_ipv6())?;
    let own = wish.source.unwrap_or_else(|| any(wish.remote.is_ipv6()));
    let mut outcome = Err(io::Error::from(io::ErrorKind::AddrInUse));
    for attempt in 0..64 {
        let offset = (discriminator.wrapping_add(attempt * 251)) % SOURCES.1;
        let port = SOURCES.0 + u16::try_from(offset).unwrap_or_default();
        let address: SockAddr = scoped(own, port, wish.link);
        outcome = socket.bind(&address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome?;
    socket.connect(&scoped(wish.remote, PORTS[usize::from(multihop)], wish.link))?;
    Ok(socket.into())
}
