//! Probes: sends many packets at once, and determines the fate of each.
//!
//! A packet that is let through is seen within microseconds, so a lost one costs only a short wait after the last
//! answer. If that wait is too short, a packet that should have arrived appears lost, never the other way round: a test
//! may have to retry, but cannot pass wrongly.

use super::Namespace;
use super::packets::{icmp, payload, sctp_init, tag};
use super::station::{Arrival, OTHER, Station, raw_socket};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getpeername, recv, sendto,
    socket_with, sockopt,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// The time after the last event when no further events are expected.
const SILENCE: Duration = Duration::from_millis(40);

/// The packet that a probe sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// A TCP connection to a port.
    Tcp(u16),
    /// A UDP datagram to a port.
    Udp(u16),
    /// The start of an SCTP association with a port.
    Sctp(u16),
    /// ICMP of a type and code; type 8 is an echo request in both IP versions.
    Icmp(u8, u8),
    /// A protocol without ports, by number; stations see number 99.
    Other(u8),
}

/// One packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// The sender's namespace.
    pub from: &'a Namespace,
    /// The source address, if it is not the usual one.
    pub source: Option<IpAddr>,
    /// The source port, if it matters; otherwise one between 10,000 and 30,000.
    pub source_port: Option<u16>,
    /// The destination address.
    pub to: IpAddr,
    /// The intended receiver.
    pub receiver: &'a Station,
    /// The packet to send.
    pub traffic: Traffic,
}

/// The fate of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was answered; for UDP with the source address that the receiver saw.
    Answered(Option<IpAddr>),
    /// It arrived, but no answer came back.
    Arrived,
    /// It did not arrive.
    Lost,
}

impl Fate {
    /// Whether packets pass, in both directions if an answer is expected.
    #[must_use]
    pub fn is_through(self, traffic: Traffic) -> bool {
        match self {
            Self::Answered(_) => true,
            Self::Arrived => !traffic.is_answered(),
            Self::Lost => false,
        }
    }
}

impl Traffic {
    /// Whether receivers answer this kind of traffic.
    #[must_use]
    pub fn is_answered(self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Udp(_) | Self::Icmp(8 | 13, _))
    }

    /// The protocol number.
    #[must_use]
    pub fn protocol(self, v6: bool) -> u8 {
        match self {
            Self::Tcp(_) => 6,
            Self::Udp(_) => 17,
            Self::Sctp(_) => 132,
            Self::Icmp(..) => {
                if v6 {
                    58
                } else {
                    1
                }
            }
            Self::Other(number) => number,
        }
    }
}

/// A probe that has been sent.
struct Sent {
    socket: OwnedFd,
    tag: u16,
    fate: Fate,
}

/// Sends all probes at once and waits for events: at least until the probes marked in `wanted` have passed or
/// `patience` is over (`wanted` may be shorter, or empty if nothing is known), and then until no more events occur.
///
/// # Errors
/// When a namespace cannot be entered or a socket cannot be opened.
pub fn probe(probes: &[Probe<'_>], wanted: &[bool], patience: Duration) -> Result<Vec<Fate>> {
    let mut sent: BTreeMap<usize, Sent> = BTreeMap::new();
    let mut by_sender: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, probe) in probes.iter().enumerate() {
        by_sender.entry(probe.from.name()).or_default().push(index);
    }
    for indexes in by_sender.into_values() {
        let Some(first) = indexes.first() else { continue };
        let from = probes[*first].from;
        let opened = from.run(|| -> Result<Vec<(usize, Sent)>> {
            indexes.iter().map(|index| Ok((*index, send(&probes[*index])?))).collect()
        })??;
        sent.extend(opened);
    }
    let begun = Instant::now();
    let mut last_news = begun;
    loop {
        let waiting = sent.iter().any(|(index, sent)| {
            wanted.get(*index).copied().unwrap_or(false) && !sent.fate.is_through(probes[*index].traffic)
        });
        let now = Instant::now();
        let is_over = if waiting { now - begun > patience } else { now - last_news > SILENCE };
        if is_over {
            break;
        }
        if look(probes, &mut sent) {
            last_news = Instant::now();
        } else {
            // Sockets with errors are always ready; they must not keep a processor busy.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(sent.into_values().map(|sent| sent.fate).collect())
}

/// Waits a moment and processes all events; returns whether there were any.
fn look(probes: &[Probe<'_>], sent: &mut BTreeMap<usize, Sent>) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };
    let open: Vec<usize> = sent
        .iter()
        .filter(|(_, sent)| !matches!(sent.fate, Fate::Answered(_)))
        .map(|(index, _)| *index)
        .collect();
    let ready: Vec<bool> = {
        let mut descriptors: Vec<PollFd<'_>> = open
            .iter()
            .map(|index| {
                let tcp = matches!(probes[*index].traffic, Traffic::Tcp(_));
                PollFd::new(&sent[index].socket, if tcp { PollFlags::OUT } else { PollFlags::IN })
            })
            .collect();
        if descriptors.is_empty() {
            std::thread::sleep(Duration::from_millis(3));
        } else {
            // A signal in between counts as the end of the moment.
            let _ = poll(&mut descriptors, Some(&moment));
        }
        descriptors.iter().map(|one| !one.revents().is_empty()).collect()
    };
    let mut news = false;
    for (index, ready) in open.into_iter().zip(ready) {
        let probe = &probes[index];
        let Some(entry) = sent.get_mut(&index) else { continue };
        let seen = answer(probe, entry, ready);
        let arrived = || probe.receiver.has_seen(arrival(probe, entry.tag));
        if let Some(address) = seen {
            entry.fate = Fate::Answered(address);
            news = true;
        } else if entry.fate == Fate::Lost && arrived() {
            entry.fate = Fate::Arrived;
            news = true;
        }
    }
    news
}

fn arrival(probe: &Probe<'_>, tag: u16) -> Arrival {
    let v6 = probe.to.is_ipv6();
    (v6, probe.traffic.protocol(v6), tag)
}

/// How often, and at what interval, a connection is attempted while an earlier one still has the same ends.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// The number by which an arrival is identified: below those that kernels choose by themselves, and reused only after
/// thousands of others.
fn next_tag() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000
}

/// Starts a connection; `None` when an earlier one still has the same ends.
fn connected(probe: &Probe<'_>, source: IpAddr, tag: u16, port: u16) -> Result<Option<OwnedFd>> {
    let family = if probe.to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Closing resets the connection, so that the port is free at once.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    bind(&socket, &SocketAddr::new(source, tag)).with_context(|| format!("binding {source} {tag}"))?;
    match connect(&socket, &SocketAddr::new(probe.to, port)) {
        // The sender's own host refuses with these errors, immediately.
        Ok(()) | Err(Errno::INPROGRESS | Errno::PERM | Errno::HOSTUNREACH | Errno::NETUNREACH) => {
            Ok(Some(socket))
        }
        Err(Errno::ADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("connecting to {}", probe.to)),
    }
}

fn send(probe: &Probe<'_>) -> Result<Sent> {
    let mut tag = probe.source_port.unwrap_or_else(next_tag);
    let v6 = probe.to.is_ipv6();
    probe.receiver.forget(arrival(probe, tag));
    let (family, any) = if v6 {
        (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    } else {
        (AddressFamily::INET, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    };
    let source = probe.source.unwrap_or(any);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match probe.traffic {
        Traffic::Tcp(port) => {
            let mut tries = 0..TRIES;
            loop {
                if let Some(socket) = connected(probe, source, tag, port)? {
                    break socket;
                }
                if tries.next().is_none() {
                    bail!("connecting to {} from port {tag}: an earlier connection does not end", probe.to);
                }
                if probe.source_port.is_none() {
                    tag = next_tag();
                    probe.receiver.forget(arrival(probe, tag));
                }
                std::thread::sleep(PAUSE);
            }
        }
        Traffic::Udp(port) => {
            let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
            bind(&socket, &SocketAddr::new(source, tag))
                .with_context(|| format!("binding {source} {tag}"))?;
            sent_or_refused(&socket, &tag.to_be_bytes(), SocketAddr::new(probe.to, port))?;
            socket
        }
        Traffic::Sctp(port) => raw(probe, source, v6, 132, &sctp_init(tag, port))?,
        Traffic::Icmp(8, code) if v6 => raw(probe, source, v6, 58, &icmp(128, code, tag))?,
        Traffic::Icmp(icmp_type, code) => {
            raw(probe, source, v6, if v6 { 58 } else { 1 }, &icmp(icmp_type, code, tag))?
        }
        Traffic::Other(number) => {
            raw(probe, source, v6, number, &[&tag.to_be_bytes()[..], &[0; 6]].concat())?
        }
    };
    Ok(Sent { socket, tag, fate: Fate::Lost })
}

fn raw(probe: &Probe<'_>, source: IpAddr, v6: bool, protocol: u8, packet: &[u8]) -> Result<OwnedFd> {
    let socket = raw_socket(v6, protocol)?;
    if !source.is_unspecified() {
        bind(&socket, &SocketAddr::new(source, 0)).with_context(|| format!("binding {source}"))?;
    }
    sent_or_refused(&socket, packet, SocketAddr::new(probe.to, 0))?;
    Ok(socket)
}

/// Sends a packet; if the sender's own host refuses it, it counts as lost.
fn sent_or_refused(socket: &OwnedFd, packet: &[u8], to: SocketAddr) -> Result<()> {
    match sendto(socket, packet, SendFlags::empty(), &to) {
        Ok(_) | Err(Errno::PERM | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::CONNREFUSED) => Ok(()),
        // An eBPF program on the interface dropped it.
        Err(Errno::NOBUFS) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("sending to {to}")),
    }
}

/// The answer to a probe, if it has arrived.
#[expect(clippy::option_option, reason = "an answer may contain no address")]
fn answer(probe: &Probe<'_>, sent: &Sent, ready: bool) -> Option<Option<IpAddr>> {
    if !ready {
        return None;
    }
    let v6 = probe.to.is_ipv6();
    let mut buffer = [0; 2048];
    let mut next = || {
        recv(&sent.socket, &mut buffer[..], RecvFlags::empty())
            .ok()
            .map(|(length, _)| buffer[..length].to_vec())
    };
    match probe.traffic {
        // A socket whose connection failed is ready, too, and reports its error only once.
        Traffic::Tcp(_) => getpeername(&sent.socket).is_ok().then_some(None),
        Traffic::Udp(_) => {
            let packet = next()?;
            let (number, address) = packet.split_at_checked(2)?;
            let text = std::str::from_utf8(address).ok()?;
            (number == sent.tag.to_be_bytes()).then(|| text.parse().ok())
        }
        Traffic::Icmp(icmp_type, _) => {
            let wanted = match (icmp_type, v6) {
                (8, true) => 129,
                (8, false) => 0,
                (13, false) => 14,
                _ => return None,
            };
            while let Some(packet) = next() {
                let packet = payload(&packet, v6);
                if packet.first() == Some(&wanted) && tag(1, packet) == Some(sent.tag) {
                    return Some(None);
                }
            }
            None
        }
        Traffic::Sctp(_) | Traffic::Other(_) => None,
    }
}

const _: () = assert!(OTHER == 99, "the number that the documentation of Traffic::Other names");
