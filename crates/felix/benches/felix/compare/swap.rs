//! A host that changes owners under traffic: another Felix has programmed it, ours takes over, and the other takes it
//! back.
//!
//! One pod sends datagrams to another: every millisecond one of a known flow and one of a new flow to an allowed port,
//! and one of a new flow to a denied port. All allowed ones must arrive, and no denied one; and one TCP connection must
//! survive all of it. Tested with one packet filter, and from one filter to the other.

use super::{ETCD_PORT, Who, start};
use crate::cluster::{Cluster, HOST};
use crate::daemon::Felix;
use crate::host::Filter;
use crate::packets::pod;
use crate::traffic::Pods;
use crate::two_hosts::relay;
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use netlink::namespace::Namespace as Entered;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::network::Namespace;
use tokio::runtime::Runtime;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 10);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 11);
const INTERFACES: [&str; 2] = ["caliswapc", "caliswaps"];
const ALLOWED: u16 = 80;
const DENIED: u16 = 81;
/// Leftovers are removed after the first round.
const SETTLED: Duration = Duration::from_secs(5);

/// The packet filters of the other Felix and of ours.
const PAIRS: [(Filter, Filter); 4] = [
    (Filter::Nftables, Filter::Nftables),
    (Filter::Iptables, Filter::Iptables),
    (Filter::Iptables, Filter::Nftables),
    (Filter::Nftables, Filter::Iptables),
];

pub(crate) fn hosts_change_hands(runtime: &Runtime, peer: &str) -> Result<()> {
    let mut failures = Vec::new();
    for (theirs, ours) in PAIRS {
        let counts = change_hands(runtime, peer, theirs, ours)?;
        println!(
            "theirs {} to ours {} and back: {} of {} allowed datagrams of one flow, {} of {} of new flows, {} of {} denied ones ({} until ours had taken over), {} round trips of TCP",
            theirs.name(),
            ours.name(),
            counts.known.arrived(),
            counts.known.sent(),
            counts.new.arrived(),
            counts.new.sent(),
            counts.denied.arrived(),
            counts.denied.sent(),
            counts.denied_with_ours.load(Ordering::Relaxed),
            counts.round_trips.load(Ordering::Relaxed),
        );
        // Calico's Felix lets denied packets through while it changes from iptables to nftables, whoever wrote the
        // iptables rules.
        let is_tight = match theirs == ours {
            true => counts.denied.arrived() == 0,
            false => counts.denied_with_ours.load(Ordering::Relaxed) == 0,
        };
        let is_whole = counts.known.is_whole() && counts.new.is_whole() && is_tight;
        if !is_whole {
            failures.push(format!("{} to {}", theirs.name(), ours.name()));
        }
    }
    ensure!(failures.is_empty(), "packets were lost, or let through: {failures:?}");
    Ok(())
}

#[derive(Default)]
struct Count {
    sent: AtomicU64,
    arrived: AtomicU64,
}

impl Count {
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    fn is_whole(&self) -> bool {
        self.sent() > 0 && self.sent() == self.arrived()
    }
}

#[derive(Default)]
struct Counts {
    known: Count,
    new: Count,
    denied: Count,
    /// Denied datagrams that arrived before ours had taken over.
    denied_with_ours: AtomicU64,
    round_trips: AtomicU64,
    is_over: AtomicBool,
}

async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    let pods = [("client", INTERFACES[0], CLIENT), ("server", INTERFACES[1], SERVER)];
    let pods = pods.map(|(name, interface, address)| pod(HOST, name, interface, address));
    cluster.write(pods.into_iter().collect::<Result<_>>()?).await?;
    let rule = |protocol: &str| {
        json!({"action": "Allow", "protocol": protocol, "source": {"selector": "role == 'client'"},
            "destination": {"ports": [ALLOWED]}})
    };
    let policy = json!({"metadata": {"name": "server"},
        "spec": {"selector": "role == 'server'", "order": 1, "types": ["Ingress"], "ingress": [rule("TCP"), rule("UDP")]}});
    cluster.client.create_any(Resource::from_value(Kind::GlobalNetworkPolicy, policy)?).await?;
    Ok(cluster)
}

fn change_hands(runtime: &Runtime, peer: &str, theirs: Filter, ours: Filter) -> Result<Counts> {
    let cluster = runtime.block_on(cluster())?;
    let name = "swap";
    let host = Namespace::new(name)?;
    host.batch(
        "link add eth0 type veth peer name wire0\naddr add 10.65.0.1/24 dev eth0\nlink set wire0 up\nlink set eth0 up\n\
         route add default via 10.65.0.254",
    )?;
    let _pods = Pods::make("swap-", [Some(name); 2], INTERFACES, [CLIENT, SERVER])?;
    let enter = |name: &str| Entered::open(&Path::new("/run/netns").join(name));
    let relayed = relay(&enter(name)?, ETCD_PORT, &cluster.etcd.endpoint())?;
    let (client, server) = (enter("swap-c")?, enter("swap-s")?);
    let begin = |who: Who, filter: Filter| -> Result<Felix> {
        let mut felix = start(who, peer, &host, &relayed, filter, &[])?;
        host.run(|| felix.wait_until_ready())??;
        std::thread::sleep(SETTLED);
        Ok(felix)
    };
    let counts = Counts::default();
    let first = begin(Who::Theirs, theirs)?;
    let allowed = server.run(|| UdpSocket::bind((SERVER, ALLOWED)))??;
    let denied = server.run(|| UdpSocket::bind((SERVER, DENIED)))??;
    let listener = server.run(|| TcpListener::bind((SERVER, ALLOWED)))??;
    let outcome = std::thread::scope(|scope| -> Result<()> {
        let threads = [
            scope.spawn(|| receive(&allowed, &counts)),
            scope.spawn(|| receive_denied(&denied, &counts)),
            scope.spawn(|| client.run(|| send(&counts))?),
            scope.spawn(|| client.run(|| talk(&listener, &counts))?),
        ];
        let turns = || -> Result<()> {
            std::thread::sleep(Duration::from_secs(1));
            drop(first);
            let second = begin(Who::Ours, ours)?;
            counts.denied_with_ours.store(counts.denied.arrived(), Ordering::Relaxed);
            drop(second);
            let third = begin(Who::Theirs, theirs)?;
            drop(third);
            Ok(())
        };
        let outcome = turns();
        counts.is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        outcome
    });
    for pod in ["swap-c", "swap-s"] {
        crate::host::shell(&format!("ip netns del {pod}"), "")?;
    }
    outcome?;
    Ok(counts)
}

/// Sends until the end: the first byte identifies the flow of a datagram.
fn send(counts: &Counts) -> Result<()> {
    let known = UdpSocket::bind((CLIENT, 0))?;
    while !counts.is_over.load(Ordering::Relaxed) {
        known.send_to(&[0], (SERVER, ALLOWED))?;
        counts.known.sent.fetch_add(1, Ordering::Relaxed);
        UdpSocket::bind((CLIENT, 0))?.send_to(&[1], (SERVER, ALLOWED))?;
        counts.new.sent.fetch_add(1, Ordering::Relaxed);
        // A rejection would be reported by the next call, so each datagram has a socket of its own.
        UdpSocket::bind((CLIENT, 0))?.send_to(&[2], (SERVER, DENIED))?;
        counts.denied.sent.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn receive(socket: &UdpSocket, counts: &Counts) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut byte = [9];
    loop {
        match socket.recv(&mut byte) {
            Ok(_) if byte[0] == 0 => counts.known.arrived.fetch_add(1, Ordering::Relaxed),
            Ok(_) => counts.new.arrived.fetch_add(1, Ordering::Relaxed),
            Err(_) if counts.is_over.load(Ordering::Relaxed) => return Ok(()),
            Err(_) => 0,
        };
    }
}

fn receive_denied(socket: &UdpSocket, counts: &Counts) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    loop {
        match socket.recv(&mut [9]) {
            Ok(_) => counts.denied.arrived.fetch_add(1, Ordering::Relaxed),
            Err(_) if counts.is_over.load(Ordering::Relaxed) => return Ok(()),
            Err(_) => 0,
        };
    }
}

/// One connection, with a byte sent there and back repeatedly.
fn talk(listener: &TcpListener, counts: &Counts) -> Result<()> {
    let mut near = TcpStream::connect(listener.local_addr()?).context("the first connection")?;
    let (mut far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_nodelay(true)?;
    }
    let mut byte = [0];
    let mut longest = Duration::ZERO;
    while !counts.is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        near.write_all(&byte)?;
        far.read_exact(&mut byte).context("the connection is cut")?;
        far.write_all(&byte)?;
        near.read_exact(&mut byte).context("the connection is cut")?;
        longest = longest.max(begin.elapsed());
        counts.round_trips.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("  longest round trip of TCP {} ms", longest.as_millis());
    Ok(())
}
