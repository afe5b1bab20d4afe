//! Removal of connections on a real kernel.

use crate::host::Host;
use netlink::netfilter::conntrack::Client;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

#[test]
fn only_connections_of_the_address_are_forgotten() {
    let host = Host::new();
    for (source, destination, port) in [
        ("10.0.0.1", "10.0.0.2", 1),
        ("10.0.0.2", "10.0.0.1", 2),
        ("10.0.0.3", "10.0.0.4", 3),
        ("fd00::1", "fd00::2", 4),
        ("fd00::3", "fd00::4", 5),
    ] {
        host.shell(&format!(
            "conntrack -I -s {source} -d {destination} -p udp --sport {port} --dport 53 --timeout 600"
        ));
    }
    // The address appears only in the reply direction: the destination was translated.
    host.shell("conntrack -I -s 10.0.0.5 -d 10.96.0.1 -r 10.0.0.1 -q 10.0.0.5 -p udp --sport 6 --dport 53 --reply-port-src 53 --reply-port-dst 6 --timeout 600");
    let forget = |list: &[&str]| {
        let addresses: BTreeSet<IpAddr> = list.iter().map(|one| one.parse().expect("an address")).collect();
        host.run(|| Client::open().expect("a socket").forget(&addresses).expect("forgotten"))
    };
    assert_eq!(forget(&["192.0.2.1"]), 0);
    assert_eq!(forget(&["10.0.0.1", "fd00::2"]), 4);
    let left = format!(
        "{}{}",
        host.shell("conntrack -L -f ipv4 2>/dev/null"),
        host.shell("conntrack -L -f ipv6 2>/dev/null")
    );
    assert_eq!(left.lines().count(), 2, "{left}");
    assert!(
        left.contains("10.0.0.3") && left.contains("fd00::3")
            || left.contains("fd00:0000:0000:0000:0000:0000:0000:0003"),
        "{left}"
    );
    assert_eq!(forget(&["10.0.0.1"]), 0);
    // For many addresses the table is read once.
    let many: Vec<String> =
        (3..20).map(|last| format!("10.0.0.{last}")).chain(["fd00::4".to_owned()]).collect();
    assert_eq!(forget(&many.iter().map(String::as_str).collect::<Vec<_>>()), 2);
}

/// The kernel returns only matching connections, so that a small query stays small in a large table.
#[test]
fn thousands_of_other_connections_do_not_matter() {
    let host = Host::new();
    let mut script = String::new();
    for index in 0..300 {
        let _ = writeln!(
            script,
            "-I -s 10.1.{}.{} -d 10.2.0.1 -p udp --sport 5 --dport 53 --timeout 600",
            index / 200,
            index % 200
        );
    }
    host.feed("conntrack -R -", &script);
    let addresses: BTreeSet<IpAddr> = ["10.1.0.7".parse().expect("an address")].into();
    assert_eq!(host.run(|| Client::open().expect("a socket").forget(&addresses).expect("forgotten")), 1);
    assert_eq!(host.shell("conntrack -C").trim(), "299");
    let everybody: BTreeSet<IpAddr> = ["10.2.0.1".parse().expect("an address")].into();
    assert_eq!(host.run(|| Client::open().expect("a socket").forget(&everybody).expect("forgotten")), 299);
}
