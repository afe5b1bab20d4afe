//! Answers ARP and NDP for addresses other than the host's own, on a separate thread: requests do not have to wait
//! until rules are written.
//!
//! The thread is always given the complete set of addresses, which replaces the previous one. It exists only if
//! configured, and sleeps until a request or a new set arrives.

use ipnet::IpNet;
use messages::InterfaceName;
use netlink::discovery::{arp, ndp};
use netlink::{Family, MacAddress};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// When opening a failed socket is retried.
const RETRY: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// How many requests on one device are answered before the other devices get their turn.
const MOST: usize = 256;

/// The addresses answered for on one device, in one IP version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The device's number.
    pub(super) device: u32,
    /// Its hardware address, which is the answer.
    pub(super) mac: MacAddress,
    /// The addresses.
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// The addresses answered for, by device and IP version.
pub(super) type Places = BTreeMap<(InterfaceName, Family), Place>;

/// The addresses that are inside a network of an interface, by interface.
pub(super) fn inside<'a>(
    addresses: &BTreeSet<IpAddr>,
    networks: impl Iterator<Item = (&'a InterfaceName, IpNet)>,
) -> BTreeMap<InterfaceName, BTreeSet<IpAddr>> {
    let mut wanted: BTreeMap<InterfaceName, BTreeSet<IpAddr>> = BTreeMap::new();
    for (interface, network) in networks {
        let mut inside = addresses.iter().filter(|address| network.contains(*address)).copied().peekable();
        if inside.peek().is_some() {
            wanted.entry(interface.clone()).or_default().extend(inside);
        }
    }
    wanted
}

/// A handle to the thread, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Answers {
    sender: Option<Sender<(Places, bool)>>,
    wake: Arc<OwnedFd>,
}

impl Answers {
    /// Starts the thread, in the network namespace of this one.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn start() -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, receiver) = channel();
        let bell = Arc::clone(&wake);
        std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(move || Responder::default().run(&receiver, &bell))?;
        Ok(Self { sender: Some(sender), wake })
    }

    /// Answers for exactly these addresses from now on. New ones are announced; with `announce` all are.
    pub(super) fn tell(&self, places: Places, announce: bool) {
        // The thread ends only with this value.
        let _ = self.sender.as_ref().map(|sender| sender.send((places, announce)));
        self.ring();
    }

    fn ring(&self) {
        // Fails only when the counter overflows.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.sender = None;
        self.ring();
    }
}

#[derive(Debug)]
enum Socket {
    Arp(arp::Socket),
    /// With the joined groups.
    Ndp(ndp::Socket, BTreeSet<Ipv6Addr>),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Arp(socket) => socket.as_fd(),
            Self::Ndp(socket, _) => socket.as_fd(),
        }
    }
}

/// The thread's own state.
#[derive(Debug, Default)]
struct Responder {
    wanted: Places,
    open: BTreeMap<(InterfaceName, Family), (Place, Socket)>,
}

impl Responder {
    fn run(mut self, receiver: &Receiver<(Places, bool)>, bell: &OwnedFd) {
        loop {
            let missing = self.open.len() < self.wanted.len();
            let mut descriptors = vec![PollFd::new(bell, PollFlags::IN)];
            descriptors.extend(self.open.values().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)));
            // An interrupted wait only leads to another look.
            let _ = poll(&mut descriptors, missing.then_some(&RETRY));
            // Fails only when the counter is zero.
            let _ = rustix::io::read(bell, &mut [0; 8]);
            let mut announce = false;
            loop {
                match receiver.try_recv() {
                    Ok((places, all)) => {
                        self.wanted = places;
                        announce |= all;
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.follow(announce);
            self.answer();
        }
    }

    /// Opens and closes sockets as wanted.
    fn follow(&mut self, announce: bool) {
        let wanted = &self.wanted;
        self.open.retain(|key, (place, _)| {
            wanted.get(key).is_some_and(|new| (new.device, new.mac) == (place.device, place.mac))
        });
        for (key, place) in &self.wanted {
            if !self.open.contains_key(key) {
                let opened = match key.1 {
                    Family::V4 => arp::Socket::open(place.device).map(Socket::Arp),
                    Family::V6 => ndp::Socket::open(&key.0, place.device)
                        .map(|socket| Socket::Ndp(socket, BTreeSet::new())),
                };
                match opened {
                    Ok(socket) => {
                        tracing::info!(interface = %key.0, family = %key.1, "answering neighbour requests");
                        let nothing = Place { addresses: BTreeSet::new(), ..place.clone() };
                        self.open.insert(key.clone(), (nothing, socket));
                    }
                    Err(error) => {
                        tracing::warn!(interface = %key.0, %error, "cannot answer neighbours; retrying");
                        continue;
                    }
                }
            }
            if let Some((known, socket)) = self.open.get_mut(key) {
                if let Socket::Ndp(socket, joined) = socket {
                    join(socket, joined, &place.addresses);
                }
                for address in place.addresses.iter().filter(|one| announce || !known.addresses.contains(one))
                {
                    if let Err(error) = tell_all(socket, *address, place.mac) {
                        tracing::warn!(interface = %key.0, %address, %error, "cannot announce an address");
                    }
                }
                known.addresses.clone_from(&place.addresses);
            }
        }
    }

    /// Answers waiting requests.
    fn answer(&mut self) {
        self.open.retain(|(interface, _), (place, socket)| {
            for _ in 0..MOST {
                match answer_one(socket, place) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!(%interface, %error, "cannot receive neighbour requests; retrying");
                        return false;
                    }
                }
            }
            true
        });
    }
}

/// Reads one request and answers it, if the address is ours; returns false when no request is waiting.
fn answer_one(socket: &Socket, place: &Place) -> netlink::Result<bool> {
    let sent = match socket {
        Socket::Arp(socket) => {
            let Some(request) = socket.next()? else { return Ok(false) };
            let asked = place.addresses.contains(&IpAddr::V4(request.target)) && request.sender != place.mac;
            if asked { socket.send(&arp::reply(&request, place.mac)) } else { Ok(()) }
        }
        Socket::Ndp(socket, _) => {
            let Some(asked) = socket.next()? else { return Ok(false) };
            if place.addresses.contains(&IpAddr::V6(asked.target)) {
                let (message, to) = ndp::answer(&asked, place.mac);
                socket.send(&message, to)
            } else {
                Ok(())
            }
        }
    };
    if let Err(error) = sent {
        // The neighbour repeats its request.
        tracing::debug!(%error, "a neighbour was not answered");
    }
    Ok(true)
}

/// Joins the groups of exactly these addresses: several addresses can have the same group.
fn join(socket: &ndp::Socket, joined: &mut BTreeSet<Ipv6Addr>, addresses: &BTreeSet<IpAddr>) {
    let groups: BTreeSet<Ipv6Addr> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V6(address) => Some(ndp::solicited_group(*address)),
            IpAddr::V4(_) => None,
        })
        .collect();
    joined.retain(|group| {
        if groups.contains(group) {
            return true;
        }
        if let Err(error) = socket.leave(*group) {
            tracing::debug!(%error, "requests for foreign addresses are still received");
        }
        false
    });
    for group in &groups {
        if joined.contains(group) {
            continue;
        }
        match socket.join(*group) {
            Ok(()) => _ = joined.insert(*group),
            Err(error) => tracing::warn!(%error, "requests for some addresses may not be received"),
        }
    }
}

fn tell_all(socket: &Socket, address: IpAddr, mac: MacAddress) -> netlink::Result<()> {
    match (socket, address) {
        (Socket::Arp(socket), IpAddr::V4(address)) => socket.send(&arp::announcement(address, mac)),
        (Socket::Ndp(socket, _), IpAddr::V6(address)) => {
            socket.send(&ndp::announcement(address, mac), ndp::ALL_NODES)
        }
        // Addresses of the other version are never in this set.
        (Socket::Arp(_), IpAddr::V6(_)) | (Socket::Ndp(..), IpAddr::V4(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::inside;
    use ipnet::IpNet;
    use messages::InterfaceName;
    use std::net::IpAddr;

    #[test]
    fn addresses_are_answered_where_their_network_is() {
        let interfaces: [(InterfaceName, &str); 4] = [
            ("eth0".into(), "10.65.0.1/24"),
            ("eth0".into(), "10.65.0.1/32"),
            ("eth1".into(), "10.65.1.1/24"),
            ("eth1".into(), "fd00:65::1/64"),
        ];
        let networks = interfaces.iter().map(|(name, text)| (name, text.parse::<IpNet>().expect("net")));
        let addresses = ["10.65.0.7", "10.65.1.8", "10.66.0.9", "fd00:65::7"];
        let addresses = addresses.iter().map(|text| text.parse::<IpAddr>().expect("address")).collect();
        let found: Vec<String> =
            inside(&addresses, networks).iter().map(|(name, all)| format!("{name} {all:?}")).collect();
        assert_eq!(found, ["eth0 {10.65.0.7}", "eth1 {10.65.1.8, fd00:65::7}"]);
    }
}
