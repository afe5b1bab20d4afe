//! Connections: opens, accepts, reads and writes them, a bounded amount at a time.

use super::log::words;
use super::sockets::{self, Listener, Place};
use super::{DISCOVERY, LISTENERS, READ, READS, RETRY, Speaker};
use crate::engine::Ends;
use crate::session::Direction;
use bgp::intent::Remote;
use netlink::Kernel as _;
use rib::PeerId;
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::Socket;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// A connection, possibly still being opened.
pub(super) struct Connection {
    pub(super) socket: Socket,
    peer: PeerId,
    direction: Direction,
    remote: IpAddr,
    link: Option<u32>,
    connecting: bool,
    writing: bool,
}

impl Speaker {
    pub(super) fn accept(&mut self, index: usize) {
        loop {
            let Some(listener) = &self.listeners[index] else { return };
            let (socket, remote) = match listener.socket.accept() {
                Ok((socket, remote)) => (socket, remote.as_socket()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(%error, "a connection went away before it was accepted");
                    return;
                }
            };
            if let Some(remote) = remote {
                self.accepted(socket, remote);
            }
        }
    }

    pub(super) fn accepted(&mut self, socket: Socket, remote: SocketAddr) {
        let Some(ends) = self.ends(&socket, remote) else { return };
        let (address, link) = (ends.remote, ends.link.as_ref().map(|link| link.index));
        if let Err(error) = socket.set_nonblocking(true).and_then(|()| socket.set_tcp_nodelay(true)) {
            tracing::debug!(%error, "a connection went away before it was accepted");
            return;
        }
        let now = self.now();
        let accepted = self.engine.accept(ends, now);
        // A connection that the new one replaces is closed first.
        self.outputs();
        match accepted {
            Ok(peer) => {
                if let Some(endpoint) = self.engine.endpoint(peer)
                    && let Err(error) = sockets::restrict(&socket, endpoint, address)
                {
                    tracing::warn!(%error, "TTL security cannot be set on a connection of {address}");
                }
                self.add(Connection {
                    socket,
                    peer,
                    direction: Direction::Incoming,
                    remote: address,
                    link,
                    connecting: false,
                    writing: false,
                });
            }
            Err(last) => {
                if last.is_empty() {
                    tracing::debug!("a connection from {address} was refused");
                }
                // Data that cannot be sent immediately is dropped.
                let _ = (&socket).write(&last);
            }
        }
    }

    pub(super) fn ends(&self, socket: &Socket, remote: SocketAddr) -> Option<Ends> {
        let local = socket.local_addr().ok()?.as_socket()?;
        let link = match remote {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
            _ => None,
        };
        let link_local = link.and_then(|index| self.host.link_local(index));
        Some(Ends {
            local: local.ip().to_canonical(),
            link_local,
            remote: remote.ip().to_canonical(),
            link: link.and_then(|index| self.host.interface(index)),
        })
    }

    pub(super) fn add(&mut self, connection: Connection) {
        let token = self.next;
        self.next += 1;
        let flags = if connection.connecting { EventFlags::OUT } else { EventFlags::IN };
        if let Err(error) = epoll::add(&self.epoll, &connection.socket, EventData::new_u64(token), flags) {
            let now = self.now();
            tracing::warn!(%error, "cannot wait for a connection");
            self.engine.closed(connection.peer, connection.direction, Some(error.to_string()), now);
            return;
        }
        self.by_peer.insert((connection.peer, connection.direction), token);
        self.connections.insert(token, connection);
    }

    pub(super) fn connection_event(&mut self, token: u64, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.connecting {
            self.finish_connecting(token);
            return;
        }
        let (peer, direction) = (connection.peer, connection.direction);
        if flags.contains(EventFlags::OUT) {
            self.flush(peer, direction);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(token, peer, direction);
        }
    }

    pub(super) fn finish_connecting(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let peer = connection.peer;
        let error = match connection.socket.take_error() {
            Ok(None) => connection.socket.peer_addr().err(),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        let now = self.begun.elapsed();
        if let Some(error) = error {
            self.drop_connection(token);
            self.engine.connect_failed(peer, words(&error), now);
            return;
        }
        connection.connecting = false;
        let data = EventData::new_u64(token);
        let (remote, link) = (connection.remote, connection.link);
        if let Err(error) = epoll::modify(&self.epoll, &connection.socket, data, EventFlags::IN) {
            self.drop_connection(token);
            self.engine.connect_failed(peer, error.to_string(), now);
            return;
        }
        let scope = SocketAddr::V6(std::net::SocketAddrV6::new(
            match remote {
                IpAddr::V6(address) => address,
                IpAddr::V4(address) => address.to_ipv6_mapped(),
            },
            0,
            0,
            link.unwrap_or_default(),
        ));
        let ends = self.connections.get(&token).and_then(|connection| self.ends(&connection.socket, scope));
        if let Some(ends) = ends {
            self.engine.connected(peer, ends, now);
        }
    }

    pub(super) fn read(&mut self, token: u64, peer: PeerId, direction: Direction) {
        for _ in 0..READS {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            let outcome = (&connection.socket).read(&mut self.buffer);
            let now = self.begun.elapsed();
            match outcome {
                Ok(0) => {
                    self.drop_connection(token);
                    self.engine.closed(peer, direction, None, now);
                }
                Ok(count) => {
                    self.engine.received(peer, direction, &self.buffer[..count], now);
                    // Fewer bytes than requested: nothing more is available.
                    if count < READ {
                        self.outputs();
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.drop_connection(token);
                    self.engine.closed(peer, direction, Some(words(&error)), now);
                }
            }
            self.outputs();
        }
    }

    pub(super) fn drop_connection(&mut self, token: u64) {
        if let Some(connection) = self.connections.remove(&token) {
            self.by_peer.remove(&(connection.peer, connection.direction));
            // Closing the descriptor with the value also removes it from epoll.
        }
    }

    pub(super) fn flush(&mut self, peer: PeerId, direction: Direction) {
        let Some(token) = self.by_peer.get(&(peer, direction)).copied() else { return };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.connecting {
            return;
        }
        let mut full = false;
        loop {
            let bytes = self.engine.output(peer, direction);
            if bytes.is_empty() {
                break;
            }
            match (&connection.socket).write(bytes) {
                Ok(count) => self.engine.sent(peer, direction, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    full = true;
                    self.engine.blocked(peer, self.begun.elapsed());
                    break;
                }
                // Reading reports the same error, after the peer's last data.
                Err(_) => break,
            }
        }
        if full != connection.writing {
            connection.writing = full;
            let flags = if full { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(token);
            if let Err(error) = epoll::modify(&self.epoll, &connection.socket, data, flags) {
                tracing::warn!(%error, "cannot wait for a connection");
            }
        }
    }

    pub(super) fn connect(&mut self, peer: PeerId) {
        let now = self.now();
        let Some(endpoint) = self.engine.endpoint(peer).cloned() else { return };
        let found = match &endpoint.remote {
            Remote::Address { address, interface } => {
                let link = interface.as_deref().and_then(|name| self.host.index_of(name));
                match interface {
                    Some(name) if link.is_none() => Err(format!("interface {name} was not found")),
                    _ => Ok((*address, link)),
                }
            }
            Remote::Unnumbered { interface } => self.neighbour(interface),
            Remote::Dynamic { .. } => Err("connections to a range are not possible".to_owned()),
        };
        let outcome = found.and_then(|(address, link)| {
            sockets::connect(&endpoint, address, link)
                .map(|socket| (socket, address, link))
                .map_err(|error| words(&error))
        });
        match outcome {
            Ok((socket, remote, link)) => {
                let direction = Direction::Outgoing;
                self.add(Connection {
                    socket,
                    peer,
                    direction,
                    remote,
                    link,
                    connecting: true,
                    writing: false,
                });
            }
            Err(error) => self.engine.connect_failed(peer, error, now),
        }
    }

    /// The only neighbour on a link: the first link-local address that the kernel knows.
    pub(super) fn neighbour(&mut self, interface: &str) -> Result<(IpAddr, Option<u32>), String> {
        let link =
            self.host.index_of(interface).ok_or_else(|| format!("interface {interface} was not found"))?;
        // Its advertisements make it known to us, and ours make us known to it.
        if let Err(error) = self.discovery.call(link, &self.epoll, DISCOVERY) {
            tracing::debug!(%error, interface, "no advertisement can be sent");
        }
        if let Some(address) = self.discovery.neighbour(link) {
            return Ok((address.into(), Some(link)));
        }
        let found = self
            .routes
            .kernel()
            .neighbours(netlink::Family::V6, Some(link))
            .map_err(|error| error.to_string())?;
        let address = found
            .into_iter()
            .filter_map(|neighbour| neighbour.address)
            .find(|address| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()));
        address
            .map(|address| (address, Some(link)))
            .ok_or_else(|| format!("no neighbour on {interface} is known yet"))
    }

    /// Listens at the addresses of the intent, with the keys of its sessions.
    pub(super) fn listen(&mut self) {
        let Some(intent) = self.engine.intent() else { return };
        let places = [&intent.v4, &intent.v6].map(|family| {
            let v6 = family.version == bgp::IpVersion::V6;
            let place = Place::new(family.listen.address, family.listen.effective_port(), v6);
            (!family.sessions.is_empty()).then_some(place)
        });
        for (index, place) in places.into_iter().enumerate() {
            if self.listeners[index].as_ref().map(|listener| listener.place) != place {
                self.listeners[index] = None;
                let Some(place) = place else { continue };
                let token = LISTENERS + index as u64;
                let opened = Listener::open(place).and_then(|listener| {
                    epoll::add(&self.epoll, &listener.socket, EventData::new_u64(token), EventFlags::IN)?;
                    Ok(listener)
                });
                match opened {
                    Ok(listener) => self.listeners[index] = Some(listener),
                    Err(error) => {
                        let Place { address, port } = place;
                        tracing::warn!("listening on {address} port {port} failed, trying again: {error}");
                        self.retry_at.get_or_insert(Instant::now() + RETRY);
                    }
                }
            }
            if let Some(listener) = &mut self.listeners[index] {
                for (network, error) in listener.set_keys(self.engine.endpoints()) {
                    tracing::warn!("the password of sessions with {network} cannot be set: {error}");
                }
            }
        }
    }
}
