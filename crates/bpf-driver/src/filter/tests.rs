//! Expressions applied to packets, and refused expressions.

use super::*;
use bpf::layout::event::EventKind;
use std::net::IpAddr;

fn event(protocol: u8, source: &str, destination: &str) -> Event {
    let end = |text: &str| -> (IpAddr, u16) {
        let (address, port) = text.rsplit_once('/').expect("a port");
        (address.parse().expect("an address"), port.parse().expect("a port"))
    };
    let ((source, source_port), (destination, destination_port)) = (end(source), end(destination));
    Event {
        time: 1,
        rule: 0,
        device: 3,
        reason: 4,
        length: 60,
        hook: 0,
        kind: EventKind::Dropped,
        protocol,
        source,
        destination,
        source_port,
        destination_port,
        mark: 0,
    }
}

#[test]
fn expressions_select_packets() {
    let web = event(6, "10.0.0.1/4000", "10.0.1.2/443");
    let dns = event(17, "fd00::1/4000", "fd00::2/53");
    let echo = event(1, "10.0.0.1/0", "10.0.1.2/2048");
    // Each with whether it matches the connection, the query, the echo.
    for (text, expected) in [
        ("", [true, true, true]),
        ("tcp", [true, false, false]),
        ("not tcp", [false, true, true]),
        ("ip6", [false, true, false]),
        ("icmp or udp", [false, true, true]),
        ("proto 17", [false, true, false]),
        ("host 10.0.0.1", [true, false, true]),
        ("10.0.0.1", [true, false, true]),
        ("dst host 10.0.0.1", [false, false, false]),
        ("src 10.0.0.1", [true, false, true]),
        ("net 10.0.0.0/24", [true, false, true]),
        ("src and dst net 10.0.0.0/24", [false, false, false]),
        ("src and dst net 10.0.0.0/16", [true, false, true]),
        ("net fd00::/64", [false, true, false]),
        ("port 443", [true, false, false]),
        ("port 80 or 443", [true, false, false]),
        ("udp port 443", [false, false, false]),
        ("tcp dst port 443", [true, false, false]),
        ("src port 443", [false, false, false]),
        ("portrange 50-60", [false, true, false]),
        ("port 2048", [false, false, false]),
        ("less 60", [true, true, true]),
        ("greater 61", [false, false, false]),
        // Left-associative.
        ("udp or tcp and port 53", [false, true, false]),
        ("tcp and port 53 or udp", [false, true, false]),
        ("udp or (tcp and port 53)", [false, true, false]),
        ("!(udp||icmp) && host 10.0.1.2", [true, false, false]),
    ] {
        let filter = Filter::read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = [&web, &dns, &echo].map(|event| filter.matches(event));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn unknown_words_are_named() {
    for (text, named) in [
        ("ether host 1", "`ether`"),
        ("tcp port http", "`http`"),
        ("tcp and", "ends too early"),
        ("(tcp", "bracket"),
        ("tcp udp", "`udp`"),
        ("tcp[13] & 2 != 0", "`tcp[13]`"),
        ("proto x", "`x`"),
        ("less many", "`many`"),
    ] {
        let error = Filter::read(text).expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
    let filters = [("eth0".to_owned(), "vlan 5".to_owned())].into();
    assert!(Filters::read(&filters).expect_err("a vlan").starts_with("`vlan 5` of eth0: "));
}

#[test]
fn an_interface_uses_its_own_expression_or_that_of_its_kind() {
    let filters = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let filters = Filters::read(&pairs).expect("expressions");
        filters.among(vec!["cali".to_owned()], vec!["lo".to_owned()])
    };
    let packet = event(6, "10.0.0.1/4000", "10.0.1.2/443");
    let wanted = |filters: &Filters| ["cali1", "eth0", "lo"].map(|name| filters.want(name, &packet));
    assert_eq!(wanted(&filters(&[])), [true, true, true]);
    assert_eq!(wanted(&filters(&[("weps", "tcp")])), [true, false, false]);
    assert_eq!(wanted(&filters(&[("heps", "tcp"), ("cali1", "udp")])), [false, true, false]);
    assert_eq!(wanted(&filters(&[("all", "tcp"), ("eth0", "udp")])), [true, false, true]);
}
