//! The kernel's connections: read from the table, and received when they end.

use crate::namespaces::TestNamespace;
use anyhow::{Context as _, Result};
use netlink::Family;
use netlink::netfilter::conntrack::{
    Client, ConnectionEvent, ConnectionEvents, ConnectionTable, Counted, Entry,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

/// A service of each family, whose only backend has another address and port.
const RULES: &str = "
    table ip nat {
        chain output {
            type nat hook output priority -100;
            ip daddr 10.96.0.1 udp dport 53 dnat to 10.0.0.1:5353
        }
    }
    table ip6 nat {
        chain output {
            type nat hook output priority -100;
            ip6 daddr fd96::1 udp dport 53 dnat to [fd00::1]:5353
        }
    }
";

/// Sends three packets to the service, and one back.
fn talk(service: &str, backend: &str) -> std::io::Result<u16> {
    let server = UdpSocket::bind((backend.parse::<IpAddr>().map_err(std::io::Error::other)?, 5353))?;
    server.set_read_timeout(Some(Duration::from_secs(30)))?;
    let client = UdpSocket::bind((backend.parse::<IpAddr>().map_err(std::io::Error::other)?, 0))?;
    let mut peer = None;
    for _ in 0..3 {
        client.send_to(&[1; 100], (service, 53))?;
        let mut buffer = [0; 200];
        peer = Some(server.recv_from(&mut buffer)?.1);
    }
    if let Some(peer) = peer {
        server.send_to(&[2; 10], peer)?;
    }
    Ok(client.local_addr()?.port())
}

fn check(entry: &Entry, service: &str, backend: &str, port: u16, header: u64) {
    let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
    assert!(entry.is_dest_translated() && entry.is_answered() && !entry.is_over(), "{entry:?}");
    assert_eq!((entry.original.dest, entry.original.dest_port), (address(service), 53));
    let seen = entry.as_filtered();
    assert_eq!((seen.source, seen.source_port, seen.protocol), (address(backend), port, 17));
    assert_eq!((seen.dest, seen.dest_port), (address(backend), 5353));
    let original = Counted { packets: 3, bytes: 3 * (100 + header) };
    let reply = Counted { packets: 1, bytes: 10 + header };
    assert_eq!(entry.counted, Some((original, reply)));
}

#[test]
fn counts_and_translations_are_read_and_final_ones_received() -> Result<()> {
    let there = TestNamespace::new()?;
    there.ip(&["link", "set", "lo", "up"])?;
    there.ip(&["address", "add", "10.0.0.1/32", "dev", "lo"])?;
    there.ip(&["address", "add", "fd00::1/128", "dev", "lo", "nodad"])?;
    there.ip(&["route", "add", "10.96.0.0/16", "dev", "lo"])?;
    there.ip(&["-6", "route", "add", "fd96::/64", "dev", "lo"])?;
    there.nft(RULES)?;
    let (mut events, mut table, mut client) = there.namespace.run(|| {
        netlink::sysctl::write("net/netfilter/nf_conntrack_acct", "1")?;
        Ok::<_, anyhow::Error>((ConnectionEvents::open(true)?, ConnectionTable::open()?, Client::open()?))
    })??;
    for (family, service, backend, header) in
        [(Family::V4, "10.96.0.1", "10.0.0.1", 28), (Family::V6, "fd96::1", "fd00::1", 48)]
    {
        let port = there.namespace.run(|| talk(service, backend))?.context("talking to a service")?;
        let mut found = Vec::new();
        table.read(family, |entry| found.push(entry))?;
        let entry = found.iter().find(|entry| entry.original.source_port == port).context("in the table")?;
        check(entry, service, backend, port, header);
        client.forget(&BTreeSet::from([service.parse()?]))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut begun, mut gone) = (None, None);
        while gone.is_none() && Instant::now() < deadline {
            events.wait(Duration::from_secs(1), |event| match event {
                ConnectionEvent::New(one) if one.id == entry.id => begun = Some(one),
                ConnectionEvent::Gone(one) if one.id == entry.id => gone = Some(one),
                _ => {}
            })?;
        }
        check(&gone.context("its end was not reported")?, service, backend, port, header);
        assert_eq!(begun.context("its beginning was not reported")?.as_filtered(), entry.as_filtered());
        assert_eq!(events.lost(), 0);
    }
    Ok(())
}
