//! TCP sockets for sessions: binding, TCP MD5, TTL security.

use crate::engine::Endpoint;
use bgp::intent::Remote;
use ipnet::IpNet;
use netlink::session_options::{set_least_ttl, set_md5};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A segment with this time to live was sent by a direct neighbour.
const FULL_TTL: u8 = 255;

fn tcp(address: IpAddr) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket address, with the index of its link if needed.
pub(super) fn scoped(address: IpAddr, port: u16, link: Option<u32>) -> SockAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SockAddr::from(SocketAddrV6::new(v6, port, 0, link.unwrap_or_default()))
        }
        _ => SockAddr::from(SocketAddr::new(address, port)),
    }
}

/// Starts to connect. `link` is that of a link-local peer.
pub(super) fn connect(endpoint: &Endpoint, remote: IpAddr, link: Option<u32>) -> io::Result<Socket> {
    let socket = tcp(remote)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(password) = &endpoint.password {
        set_md5(&socket, IpNet::from(remote), link, password.expose().as_bytes())?;
    }
    restrict(&socket, endpoint, remote)?;
    if let Some(source) = endpoint.source {
        socket.bind(&scoped(source, 0, link))?;
    }
    match socket.connect(&scoped(remote, endpoint.port, link)) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Err(error)
        }
        _ => Ok(socket),
    }
}

/// Accepts only packets of a peer that is near enough (RFC 5082).
pub(super) fn restrict(socket: &Socket, endpoint: &Endpoint, remote: IpAddr) -> io::Result<()> {
    let Some(hops) = endpoint.ttl_security else { return Ok(()) };
    if remote.is_ipv4() {
        socket.set_ttl_v4(u32::from(FULL_TTL))?;
    } else {
        socket.set_unicast_hops_v6(u32::from(FULL_TTL))?;
    }
    set_least_ttl(socket, remote.is_ipv6(), FULL_TTL - (hops.get() - 1))
}

/// A listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

impl Place {
    pub(super) fn new(address: Option<IpAddr>, port: u16, v6: bool) -> Self {
        let all = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        Self { address: address.unwrap_or(all), port }
    }
}

/// A listening socket, and its TCP MD5 keys.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) place: Place,
    pub(super) socket: Socket,
    keys: BTreeMap<IpNet, bgp::Password>,
}

impl Listener {
    pub(super) fn open(place: Place) -> io::Result<Self> {
        let socket = tcp(place.address)?;
        socket.set_reuse_address(true)?;
        if place.address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&SockAddr::from(SocketAddr::new(place.address, place.port)))?;
        socket.listen(128)?;
        Ok(Self { place, socket, keys: BTreeMap::new() })
    }

    /// Sets the keys of sessions on the socket, and removes those of removed sessions.
    pub(super) fn set_keys<'a>(
        &mut self,
        endpoints: impl Iterator<Item = &'a Endpoint>,
    ) -> Vec<(IpNet, io::Error)> {
        let mut wanted = BTreeMap::new();
        for endpoint in endpoints {
            // The kernel selects keys of link-local peers by address alone; the address of an unnumbered peer is not
            // known here.
            let network = match &endpoint.remote {
                Remote::Unnumbered { .. } => None,
                _ => endpoint.network(),
            };
            if let (Some(network), Some(password)) = (network, &endpoint.password)
                && network.addr().is_ipv4() == self.place.address.is_ipv4()
            {
                wanted.insert(network, password.clone());
            }
        }
        let mut failures = Vec::new();
        for network in self.keys.keys().filter(|network| !wanted.contains_key(*network)) {
            failures.extend(set_md5(&self.socket, *network, None, b"").err().map(|error| (*network, error)));
        }
        for (network, key) in &wanted {
            if self.keys.get(network) != Some(key) {
                let outcome = set_md5(&self.socket, *network, None, key.expose().as_bytes());
                failures.extend(outcome.err().map(|error| (*network, error)));
            }
        }
        self.keys = wanted;
        failures
    }
}
