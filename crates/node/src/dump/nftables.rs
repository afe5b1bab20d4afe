//! Formats members of nftables' sets and maps like `nft`. Key types that we never use are shown as bytes.

use netlink::netfilter::nft::{Element, ElementFound, Key, KeyType, Verdict};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Formats a member of a set whose keys have this type.
pub(super) fn member(kind: Option<KeyType>, element: &ElementFound) -> String {
    let text = |key: &Key| key_text(kind, key);
    match element {
        ElementFound::Known(Element::Single(key)) => text(key),
        ElementFound::Known(Element::Range(first, last)) => match prefix(kind, first, last) {
            Some(length) if length == 8 * first.as_bytes().len() => text(first),
            Some(length) => format!("{}/{length}", text(first)),
            None => format!("{}-{}", text(first), text(last)),
        },
        ElementFound::Known(Element::Verdict(key, verdict)) => {
            format!("{} : {}", text(key), verdict_text(verdict))
        }
        ElementFound::Foreign(key) => format!("{} : not read", text(key)),
    }
}

fn key_text(kind: Option<KeyType>, key: &Key) -> String {
    let bytes = key.as_bytes();
    let number = |from: usize| bytes.get(from).copied().unwrap_or_default();
    let port = |from: usize| u16::from_be_bytes([number(from), number(from + 1)]);
    let known = kind.filter(|kind| kind.length() == bytes.len()).and_then(|kind| {
        Some(match kind {
            KeyType::Ipv4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
            KeyType::Ipv6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string(),
            KeyType::Ipv4ProtocolPort => {
                let address = Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?);
                format!("{address} . {} . {}", protocol(number(4)), port(8))
            }
            KeyType::Ipv6ProtocolPort => {
                let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?);
                format!("{address} . {} . {}", protocol(number(16)), port(20))
            }
            KeyType::Port => port(0).to_string(),
            KeyType::InterfaceName => format!("\"{}\"", key.as_interface()?),
            KeyType::IcmpTypeCode | KeyType::Icmpv6TypeCode => format!("{} . {}", number(0), number(4)),
        })
    });
    known.unwrap_or_else(|| format!("{key:?}"))
}

fn protocol(number: u8) -> String {
    match number {
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}

/// The prefix length of a range, if it is a network.
fn prefix(kind: Option<KeyType>, first: &Key, last: &Key) -> Option<usize> {
    if !matches!(kind, Some(KeyType::Ipv4 | KeyType::Ipv6)) {
        return None;
    }
    let number = |key: &Key| key.as_bytes().iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
    let (first_bits, last_bits) = (number(first), number(last));
    let free = first_bits ^ last_bits;
    let is_network = free & free.wrapping_add(1) == 0 && first_bits & free == 0;
    let bits = 8 * first.as_bytes().len();
    is_network.then(|| bits.saturating_sub(usize::try_from(free.count_ones()).unwrap_or_default()))
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => "drop".to_owned(),
        Verdict::Continue => "continue".to_owned(),
        Verdict::Return => "return".to_owned(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Goto(chain) => format!("goto {chain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::member;
    use netlink::netfilter::nft::{Element, ElementFound, Key, KeyType, Verdict};
    use std::net::IpAddr;

    fn address(text: &str) -> Key {
        Key::address(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn members_are_formatted_like_nft() {
        let single = |key| ElementFound::Known(Element::Single(key));
        let range = |first, last| ElementFound::Known(Element::Range(first, last));
        let web = "192.0.2.1".parse().unwrap();
        for (kind, element, expected) in [
            (KeyType::Ipv4, single(address("10.96.0.1")), "10.96.0.1"),
            (KeyType::Ipv4, range(address("10.0.0.0"), address("10.255.255.255")), "10.0.0.0/8"),
            (KeyType::Ipv4, range(address("0.0.0.0"), address("255.255.255.255")), "0.0.0.0/0"),
            (KeyType::Ipv4, range(address("10.0.0.1"), address("10.0.0.1")), "10.0.0.1"),
            (KeyType::Ipv4, range(address("10.0.0.1"), address("10.0.0.2")), "10.0.0.1-10.0.0.2"),
            (KeyType::Ipv6, range(address("fd00::"), address("fd00::ffff")), "fd00::/112"),
            (KeyType::Ipv6, range(address("::"), address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")), "::/0"),
            (KeyType::Ipv4ProtocolPort, single(Key::address_port(web, 6, 8080)), "192.0.2.1 . tcp . 8080"),
            (
                KeyType::Ipv6ProtocolPort,
                single(Key::address_port("fd00::1".parse().unwrap(), 17, 53)),
                "fd00::1 . udp . 53",
            ),
            (KeyType::Port, range(Key::port(80), Key::port(90)), "80-90"),
            (KeyType::IcmpTypeCode, single(Key::icmp(8, 0)), "8 . 0"),
            (
                KeyType::InterfaceName,
                ElementFound::Known(Element::Verdict(
                    Key::interface("cali1").unwrap(),
                    Verdict::Goto("cali-tw-cali1".into()),
                )),
                "\"cali1\" : goto cali-tw-cali1",
            ),
        ] {
            assert_eq!(member(Some(kind), &element), expected);
        }
        assert_eq!(member(None, &single(Key::port(80))), "0x0050");
    }
}
