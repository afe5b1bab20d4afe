//! WireGuard devices of a real kernel, in a guest that supports them.

use ipnet::IpNet;
use netlink::wireguard::{Client, DeviceChange, Devices as _, PeerChange, PrivateKey, PublicKey};
use netlink::{DeviceKind, Errno, Handle, Kernel as _, NewLink, Operation, first_failure};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testkit::guest::Guest;

fn key(number: u16) -> PublicKey {
    let mut bytes = [7; 32];
    bytes[..2].copy_from_slice(&number.to_ne_bytes());
    PublicKey::from_bytes(bytes).expect("a key")
}

fn nets(count: u32) -> Vec<IpNet> {
    (0..count).map(|number| IpNet::new_assert(Ipv4Addr::from(0x0a00_0000 + number).into(), 32)).collect()
}

#[test]
fn devices_are_configured_and_read() {
    Guest::new("wireguard::devices_are_configured_and_read").run(|| {
        let mut kernel = Handle::open().expect("a socket");
        let device = NewLink { up: true, ..NewLink::new("wg0", DeviceKind::Plain("wireguard".to_owned())) };
        let dummy = NewLink::new("other0", DeviceKind::Dummy);
        first_failure(kernel.apply(&[Operation::AddLink(device), Operation::AddLink(dummy)]))
            .expect("devices");
        let mut client = Client::open().expect("WireGuard");
        assert_eq!(client.device("nothing").expect("an answer"), None);
        let error = client.device("other0").expect_err("no WireGuard device");
        assert_eq!(error.errno(), Some(Errno::OPNOTSUPP));

        let fresh = client.device("wg0").expect("an answer").expect("the device");
        assert_eq!((fresh.name.as_str(), fresh.public_key, fresh.peers.len()), ("wg0", None, 0));
        let change = DeviceChange {
            private_key: Some(PrivateKey::generate().expect("a key")),
            port: Some(51820),
            mark: Some(0x20_0000),
            peers: Vec::new(),
        };
        client.configure("wg0", &change).expect("a change");
        let found = client.device("wg0").expect("an answer").expect("the device");
        assert!(found.public_key.is_some());
        assert_eq!((found.port, found.mark), (51820, 0x20_0000));

        // More than fits in one message, both written and read.
        let large = PeerChange {
            endpoint: Some("192.0.2.1:51820".parse().expect("an address")),
            keepalive: Some(25),
            replace_allowed: true,
            allowed: nets(3000),
            ..PeerChange::new(key(0))
        };
        let v6 = |number: u16| IpNet::new_assert(Ipv6Addr::new(0xfd00, number, 0, 0, 0, 0, 0, 0).into(), 64);
        let others = (1..400).map(|number| PeerChange {
            endpoint: Some((IpAddr::from(Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, number)), 51821).into()),
            allowed: vec![v6(number)],
            ..PeerChange::new(key(number))
        });
        let peers = std::iter::once(large).chain(others).collect();
        client.configure("wg0", &DeviceChange { peers, ..DeviceChange::default() }).expect("peers");
        let found = client.device("wg0").expect("an answer").expect("the device");
        assert_eq!(found.peers.len(), 400);
        let first = &found.peers[&key(0)];
        assert_eq!(first.allowed, nets(3000).into_iter().collect::<BTreeSet<_>>());
        assert_eq!((first.keepalive, first.last_handshake), (25, 0));
        assert_eq!(first.endpoint, "192.0.2.1:51820".parse().ok());
        assert_eq!(found.peers[&key(399)].endpoint, "[fd01::18f]:51821".parse().ok());
        assert_eq!(found.peers[&key(399)].allowed, [v6(399)].into());

        // A network that moves to another peer is behind that one only; an unknown peer stays unknown.
        let moved = PeerChange { allowed: nets(2), ..PeerChange::new(key(1)) };
        let unknown = PeerChange { only_known: true, allowed: nets(9), ..PeerChange::new(key(500)) };
        let fewer = PeerChange { replace_allowed: true, ..PeerChange::new(key(2)) };
        let peers = vec![moved, unknown, fewer, PeerChange::removal(key(3))];
        client.configure("wg0", &DeviceChange { peers, ..DeviceChange::default() }).expect("peers");
        let found = client.device("wg0").expect("an answer").expect("the device");
        assert_eq!(found.peers.len(), 399);
        assert_eq!(found.peers[&key(0)].allowed.len(), 2998);
        assert_eq!(found.peers[&key(1)].allowed.len(), 3);
        assert!(found.peers[&key(2)].allowed.is_empty());
        assert!(!found.peers.contains_key(&key(3)) && !found.peers.contains_key(&key(500)));
    });
}
