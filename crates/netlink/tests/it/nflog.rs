//! Packets that rules report, read from the kernel.

use crate::namespaces::TestNamespace;
use anyhow::{Result, ensure};
use netlink::netfilter::nflog::{LoggedPacket, Nflog};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

const RULES: &str = r#"
    table inet test {
        chain input {
            type filter hook input priority 0;
            udp dport 53 log prefix "DPI|default" snaplen 80 group 5 drop
            udp dport 54 log prefix "API0|gnp/dns" snaplen 80 group 5
        }
    }
"#;

/// The parts of a packet that the test checks.
type Shown = (String, IpAddr, u8, u16, u32);

fn shown(packet: &LoggedPacket<'_>) -> Shown {
    let tuple = &packet.start.tuple;
    (packet.prefix.to_owned(), tuple.dest, tuple.protocol, tuple.dest_port, packet.start.length)
}

#[test]
fn packets_have_their_rules_text_and_their_full_length() -> Result<()> {
    let there = TestNamespace::new()?;
    there.ip(&["link", "set", "lo", "up"])?;
    there.nft(RULES)?;
    let mut reader = there.namespace.run(|| Nflog::open(5))??;
    there.namespace.run(|| {
        for (address, port) in [("127.0.0.1", 53), ("127.0.0.1", 54), ("::1", 53)] {
            let socket = UdpSocket::bind(if address == "::1" { "[::1]:0" } else { "127.0.0.1:0" })?;
            socket.send_to(&[7; 500], (address, port))?;
        }
        Ok::<(), std::io::Error>(())
    })??;
    let mut packets = Vec::new();
    let expected: Vec<Shown> = vec![
        ("DPI|default".into(), "127.0.0.1".parse()?, 17, 53, 528),
        ("API0|gnp/dns".into(), "127.0.0.1".parse()?, 17, 54, 528),
        ("DPI|default".into(), "::1".parse()?, 17, 53, 548),
    ];
    while packets.len() < expected.len() {
        reader.wait(Duration::from_secs(30), |packet| packets.push(shown(packet)))?;
    }
    assert_eq!(packets, expected);
    let counts = reader.counts();
    assert_eq!((counts.packets, counts.lost, counts.overruns, counts.unreadable), (3, 0, 0, 0));
    Ok(())
}

#[test]
fn a_group_has_one_reader() -> Result<()> {
    let there = TestNamespace::new()?;
    let first = there.namespace.run(|| Nflog::open(5))??;
    let refused = there.namespace.run(|| Nflog::open(5))?.expect_err("one reader").to_string();
    assert!(refused.contains("NFLOG group 5"), "{refused}");
    assert!(refused.contains("another process may be reading it"), "{refused}");
    // Other groups are free, and so is this one once its reader is gone.
    there.namespace.run(|| Nflog::open(6))??;
    drop(first);
    there.namespace.run(|| Nflog::open(5))??;
    Ok(())
}

#[test]
fn packets_not_read_in_time_are_counted() -> Result<()> {
    const SENT: u64 = 150_000;
    let there = TestNamespace::new()?;
    there.ip(&["link", "set", "lo", "up"])?;
    there.nft(RULES)?;
    let mut reader = there.namespace.run(|| Nflog::open(5))??;
    let socket = there.namespace.run(|| UdpSocket::bind("127.0.0.1:0"))??;
    for _ in 0..SENT {
        socket.send_to(&[7; 40], ("127.0.0.1", 53))?;
    }
    let mut last = false;
    let mut rounds = 0;
    // The packet after the flood reveals the gap before it.
    while !last {
        socket.send_to(&[7; 40], ("127.0.0.1", 54))?;
        rounds += 1;
        ensure!(rounds < 10_000, "the packet after the flood never came: {:?}", reader.counts());
        reader.wait(Duration::from_secs(1), |packet| last |= packet.prefix.starts_with('A'))?;
    }
    let counts = reader.counts();
    assert!(counts.overruns > 0 && counts.lost > 0, "{counts:?}");
    let accounted = counts.packets + counts.lost;
    assert!((SENT + 1..=SENT + rounds).contains(&accounted), "{counts:?} after {rounds} rounds");
    Ok(())
}
