//! WireGuard's messages as bytes.
//!
//! A message and each of its attributes have at most 64 KiB, so a change of many peers, or of a peer with many
//! networks, takes several messages. A dump of a device may also take several messages, and a peer may continue in the
//! next.

use super::keys::LENGTH;
use super::{Device, DeviceChange, Peer, PeerChange, PublicKey};
use crate::wire::{Attribute, Writer, attributes};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const INDEX: u16 = 1;
pub(super) const NAME: u16 = 2;
const PRIVATE_KEY: u16 = 3;
const PUBLIC_KEY: u16 = 4;
const PORT: u16 = 6;
const MARK: u16 = 7;
const PEERS: u16 = 8;

const PEER_KEY: u16 = 1;
const PEER_FLAGS: u16 = 3;
const PEER_ENDPOINT: u16 = 4;
const PEER_KEEPALIVE: u16 = 5;
const PEER_HANDSHAKE: u16 = 6;
const PEER_RECEIVED: u16 = 7;
const PEER_SENT: u16 = 8;
const PEER_ALLOWED: u16 = 9;
const REMOVE: u32 = 1;
const REPLACE_ALLOWED: u32 = 2;
const ONLY_KNOWN: u32 = 4;

const ALLOWED_FAMILY: u16 = 1;
const ALLOWED_ADDRESS: u16 = 2;
const ALLOWED_LENGTH: u16 = 3;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// The networks of one peer in one message, and how large messages become: at most 40 bytes for a network and 100 for a
/// peer.
const MAX_ALLOWED: usize = 256;
const MAX_BYTES: usize = 16 * 1024;

/// Splits the change into parts of which each fits in a message.
pub(super) fn parts(change: &DeviceChange) -> Vec<DeviceChange> {
    let mut parts = vec![DeviceChange { peers: Vec::new(), ..change.clone() }];
    let mut bytes = 0;
    for peer in change.peers.iter().flat_map(pieces) {
        let more = 100 + 40 * peer.allowed.len();
        if bytes + more > MAX_BYTES {
            parts.push(DeviceChange::default());
            bytes = 0;
        }
        bytes += more;
        if let Some(last) = parts.last_mut() {
            last.peers.push(peer);
        }
    }
    parts
}

fn pieces(peer: &PeerChange) -> Vec<PeerChange> {
    let mut pieces = Vec::with_capacity(1);
    let mut rest = peer.allowed.as_slice();
    loop {
        let (now, later) = rest.split_at(rest.len().min(MAX_ALLOWED));
        let piece = match pieces.is_empty() {
            true => PeerChange { allowed: now.to_vec(), ..peer.clone() },
            // The first part created the peer, replaced its networks, and set everything else.
            false => PeerChange { only_known: true, allowed: now.to_vec(), ..PeerChange::new(peer.key) },
        };
        pieces.push(piece);
        if later.is_empty() {
            return pieces;
        }
        rest = later;
    }
}

/// Writes one part.
pub(super) fn write(writer: &mut Writer, name: &str, part: &DeviceChange) {
    writer.text(NAME, name);
    if let Some(key) = &part.private_key {
        writer.bytes(PRIVATE_KEY, key.bytes());
    }
    if let Some(port) = part.port {
        writer.u16(PORT, port);
    }
    if let Some(mark) = part.mark {
        writer.u32(MARK, mark);
    }
    if !part.peers.is_empty() {
        writer.nested(PEERS, |list| {
            for peer in &part.peers {
                list.nested(0, |one| write_peer(one, peer));
            }
        });
    }
}

fn write_peer(writer: &mut Writer, peer: &PeerChange) {
    writer.bytes(PEER_KEY, peer.key.bytes());
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    let flags = flag(peer.remove, REMOVE)
        | flag(peer.replace_allowed, REPLACE_ALLOWED)
        | flag(peer.only_known, ONLY_KNOWN);
    if flags != 0 {
        writer.u32(PEER_FLAGS, flags);
    }
    if let Some(endpoint) = &peer.endpoint {
        writer.bytes(PEER_ENDPOINT, &socket_address(endpoint));
    }
    if let Some(keepalive) = peer.keepalive {
        writer.u16(PEER_KEEPALIVE, keepalive);
    }
    if !peer.allowed.is_empty() {
        writer.nested(PEER_ALLOWED, |list| {
            for net in &peer.allowed {
                list.nested(0, |one| {
                    let family = if net.addr().is_ipv4() { AF_INET } else { AF_INET6 };
                    one.u16(ALLOWED_FAMILY, family)
                        .address(ALLOWED_ADDRESS, net.network())
                        .u8(ALLOWED_LENGTH, net.prefix_len());
                });
            }
        });
    }
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn socket_address(address: &SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(address) => {
            bytes.extend_from_slice(&AF_INET.to_ne_bytes());
            bytes.extend_from_slice(&address.port().to_be_bytes());
            bytes.extend_from_slice(&address.ip().octets());
            bytes.extend_from_slice(&[0; 8]);
        }
        SocketAddr::V6(address) => {
            bytes.extend_from_slice(&AF_INET6.to_ne_bytes());
            bytes.extend_from_slice(&address.port().to_be_bytes());
            bytes.extend_from_slice(&0_u32.to_ne_bytes());
            bytes.extend_from_slice(&address.ip().octets());
            bytes.extend_from_slice(&address.scope_id().to_ne_bytes());
        }
    }
    bytes
}

fn read_socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk::<2>()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk::<2>()?);
    let address: IpAddr = match family {
        AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        AF_INET6 => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Merges the content of one message into a device.
pub(super) fn read(device: &mut Device, body: &[u8]) {
    for attribute in attributes(body) {
        match attribute.number {
            INDEX => device.index = attribute.u32().unwrap_or_default(),
            NAME => device.name = attribute.text().unwrap_or_default(),
            PUBLIC_KEY => device.public_key = key(&attribute),
            PORT => device.port = attribute.u16().unwrap_or_default(),
            MARK => device.mark = attribute.u32().unwrap_or_default(),
            PEERS => attribute.attributes().for_each(|peer| read_peer(device, &peer)),
            _ => {}
        }
    }
}

fn key(attribute: &Attribute<'_>) -> Option<PublicKey> {
    PublicKey::from_bytes(<[u8; LENGTH]>::try_from(attribute.value).ok()?)
}

fn read_peer(device: &mut Device, attribute: &Attribute<'_>) {
    let known = attribute.attributes().find(|one| one.number == PEER_KEY);
    let Some(key) = known.as_ref().and_then(key) else { return };
    let peer: &mut Peer = device.peers.entry(key).or_default();
    for one in attribute.attributes() {
        match one.number {
            PEER_ENDPOINT => peer.endpoint = read_socket_address(one.value),
            PEER_KEEPALIVE => peer.keepalive = one.u16().unwrap_or_default(),
            PEER_HANDSHAKE => peer.last_handshake = first_u64(one.value),
            PEER_RECEIVED => peer.received = first_u64(one.value),
            PEER_SENT => peer.sent = first_u64(one.value),
            PEER_ALLOWED => peer.allowed.extend(one.attributes().filter_map(|net| read_allowed(&net))),
            _ => {}
        }
    }
}

/// Reads the first eight bytes: a whole counter, or the seconds of a time.
fn first_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().copied().map_or(0, u64::from_ne_bytes)
}

fn read_allowed(attribute: &Attribute<'_>) -> Option<IpNet> {
    let (mut address, mut length) = (None, None);
    for one in attribute.attributes() {
        match one.number {
            ALLOWED_ADDRESS => address = one.address(),
            ALLOWED_LENGTH => length = one.u8(),
            _ => {}
        }
    }
    IpNet::new(address?, length?).ok()
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, parts, read, read_socket_address, socket_address, write};
    use crate::wire::{Writer, attributes};
    use crate::wireguard::{Device, DeviceChange, Peer, PeerChange, PrivateKey, PublicKey};
    use ipnet::IpNet;
    use std::collections::BTreeSet;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32]).expect("a key")
    }

    fn nets(count: u32) -> Vec<IpNet> {
        (0..count).map(|number| IpNet::new_assert(std::net::Ipv4Addr::from(number).into(), 32)).collect()
    }

    #[test]
    fn addresses_with_ports() {
        for text in ["10.0.0.1:51820", "[fd00::1]:51821"] {
            let address = text.parse().expect("an address");
            let bytes = socket_address(&address);
            assert_eq!(read_socket_address(&bytes), Some(address));
            assert_eq!(bytes.len(), if address.is_ipv4() { 16 } else { 28 });
            assert!((0..20.min(bytes.len() / 3)).all(|end| read_socket_address(&bytes[..end]).is_none()));
        }
    }

    #[test]
    fn written_messages_read_back() {
        let change = DeviceChange {
            private_key: Some(PrivateKey::generate().expect("a key")),
            port: Some(51820),
            mark: Some(0x20_0000),
            peers: vec![
                PeerChange {
                    endpoint: Some("10.0.0.2:51820".parse().expect("an address")),
                    keepalive: Some(25),
                    allowed: vec![
                        "10.1.0.0/26".parse().expect("a network"),
                        "fd00::/122".parse().expect("one"),
                    ],
                    ..PeerChange::new(key(1))
                },
                PeerChange::removal(key(2)),
            ],
        };
        let mut writer = Writer::default();
        write(&mut writer, "wg0", &change);
        let bytes = writer.finish();
        let mut device = Device::default();
        read(&mut device, &bytes);
        assert_eq!((device.name.as_str(), device.port, device.mark), ("wg0", 51820, 0x20_0000));
        // The private key is not read, even where the kernel shows it.
        assert_eq!(device.public_key, None);
        let expected = Peer {
            endpoint: Some("10.0.0.2:51820".parse().expect("an address")),
            keepalive: 25,
            allowed: change.peers[0].allowed.iter().copied().collect(),
            ..Peer::default()
        };
        assert_eq!(device.peers.get(&key(1)), Some(&expected));
        for end in 0..bytes.len() {
            read(&mut Device::default(), &bytes[..end]);
        }
    }

    #[test]
    fn a_peer_may_continue_in_the_next_message() {
        let mut device = Device::default();
        for half in nets(10).chunks(5) {
            let mut writer = Writer::default();
            let peer = PeerChange { allowed: half.to_vec(), ..PeerChange::new(key(3)) };
            write(&mut writer, "wg0", &DeviceChange { peers: vec![peer], ..DeviceChange::default() });
            read(&mut device, &writer.finish());
        }
        assert_eq!(device.peers[&key(3)].allowed, nets(10).into_iter().collect());
    }

    #[test]
    fn large_changes_are_split_into_equivalent_messages() {
        let large = PeerChange {
            replace_allowed: true,
            endpoint: Some("10.0.0.2:1".parse().expect("an address")),
            allowed: nets(1000),
            ..PeerChange::new(key(1))
        };
        let small = (2..200).map(|number| PeerChange { allowed: nets(3), ..PeerChange::new(key(number)) });
        let change = DeviceChange {
            port: Some(9),
            peers: std::iter::once(large).chain(small).collect(),
            ..DeviceChange::default()
        };
        let parts = parts(&change);
        assert!(parts.len() > 2);
        assert_eq!(parts.iter().filter(|part| part.port.is_some()).count(), 1);
        let pieces: Vec<&PeerChange> = parts.iter().flat_map(|part| &part.peers).collect();
        assert_eq!(pieces.iter().filter(|piece| piece.replace_allowed).count(), 1);
        let all: BTreeSet<IpNet> = pieces
            .iter()
            .filter(|piece| piece.key == key(1))
            .flat_map(|piece| piece.allowed.clone())
            .collect();
        assert_eq!(all.len(), 1000);
        for part in &parts {
            let mut writer = Writer::default();
            write(&mut writer, "wireguard.cali", part);
            let bytes = writer.finish();
            assert!(bytes.len() <= MAX_BYTES + 1024, "{}", bytes.len());
            assert!(attributes(&bytes).count() >= 2);
        }
        // An empty change is one message that changes nothing.
        assert_eq!(super::parts(&DeviceChange::default()).len(), 1);
    }
}
