//! Keys as short runs of bytes, both ways. Only for this process: nothing is stored or sent like this.

use api::Kind;
use ipnet::IpNet;
use model::v1::PolicyKey;
use model::{AffinityType, BlockAffinityKey, Key, ResourceKey, V1Key};

/// Writes a key. Two keys are equal exactly when their bytes are.
pub(super) fn encode(key: &Key, out: &mut Vec<u8>) {
    let mut put = |tag: u8, kind: Option<Kind>, texts: &[&str]| {
        out.push(tag);
        out.extend(kind.map(kind_number));
        for text in texts {
            put_length(text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
    };
    match key {
        Key::Resource(ResourceKey { kind, namespace, name }) => put(1, Some(*kind), &[namespace, name]),
        Key::Block { cidr } => put(2, None, &[&cidr.to_string()]),
        Key::BlockAffinity(BlockAffinityKey { cidr, host, affinity_type }) => {
            put(3, None, &[&cidr.to_string(), host, affinity_type.as_str()]);
        }
        Key::V1(V1Key::ReadyFlag) => put(4, None, &[]),
        Key::V1(V1Key::GlobalConfig { name }) => put(5, None, &[name]),
        Key::V1(V1Key::HostConfig { host, name }) => put(6, None, &[host, name]),
        Key::V1(V1Key::Wireguard { node }) => put(7, None, &[node]),
        Key::V1(V1Key::WorkloadEndpoint { host, orchestrator, workload, endpoint }) => {
            put(8, None, &[host, orchestrator, workload, endpoint]);
        }
        Key::V1(V1Key::HostEndpoint { host, endpoint }) => put(9, None, &[host, endpoint]),
        Key::V1(V1Key::NetworkSet { name }) => put(10, None, &[name]),
        Key::V1(V1Key::Policy(PolicyKey { kind, namespace, name })) => {
            put(11, Some(*kind), &[namespace, name]);
        }
        Key::V1(V1Key::Tier { name }) => put(12, None, &[name]),
        Key::V1(V1Key::ProfileRules { name }) => put(13, None, &[name]),
        Key::V1(V1Key::ProfileLabels { name }) => put(14, None, &[name]),
        Key::V1(V1Key::IpPool { cidr }) => put(15, None, &[&cidr.to_string()]),
        // No feed tells about the others. Should one ever do, their path says the same in more bytes.
        other => put(0, None, &[&other.path().unwrap_or_else(|_| other.to_string())]),
    }
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Key> {
    let input = &mut bytes;
    let tag = byte(input)?;
    Some(match tag {
        1 => Key::Resource(ResourceKey { kind: kind(input)?, namespace: text(input)?, name: text(input)? }),
        2 => Key::Block { cidr: net(input)? },
        3 => Key::BlockAffinity(BlockAffinityKey {
            cidr: net(input)?,
            host: text(input)?,
            affinity_type: AffinityType::from_word(&text(input)?)?,
        }),
        4 => Key::V1(V1Key::ReadyFlag),
        5 => Key::V1(V1Key::GlobalConfig { name: text(input)? }),
        6 => Key::V1(V1Key::HostConfig { host: text(input)?, name: text(input)? }),
        7 => Key::V1(V1Key::Wireguard { node: text(input)? }),
        8 => Key::V1(V1Key::WorkloadEndpoint {
            host: text(input)?,
            orchestrator: text(input)?,
            workload: text(input)?,
            endpoint: text(input)?,
        }),
        9 => Key::V1(V1Key::HostEndpoint { host: text(input)?, endpoint: text(input)? }),
        10 => Key::V1(V1Key::NetworkSet { name: text(input)? }),
        11 => Key::V1(V1Key::Policy(PolicyKey {
            kind: kind(input)?,
            namespace: text(input)?,
            name: text(input)?,
        })),
        12 => Key::V1(V1Key::Tier { name: text(input)? }),
        13 => Key::V1(V1Key::ProfileRules { name: text(input)? }),
        14 => Key::V1(V1Key::ProfileLabels { name: text(input)? }),
        15 => Key::V1(V1Key::IpPool { cidr: net(input)? }),
        _ => Key::parse(&text(input)?)?,
    })
}

fn kind_number(kind: Kind) -> u8 {
    let place = Kind::ALL.iter().position(|known| *known == kind).unwrap_or(usize::from(u8::MAX));
    u8::try_from(place).unwrap_or(u8::MAX)
}

/// Seven bits in each byte, the lowest first.
fn put_length(mut length: usize, out: &mut Vec<u8>) {
    while length > 0x7f {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0x7f) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0x7f));
}

fn byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

fn kind(input: &mut &[u8]) -> Option<Kind> {
    Kind::ALL.get(usize::from(byte(input)?)).copied()
}

fn text(input: &mut &[u8]) -> Option<String> {
    let mut length = 0usize;
    for shift in (0..usize::BITS).step_by(7) {
        let part = byte(input)?;
        length |= usize::from(part & 0x7f) << shift;
        if part & 0x80 == 0 {
            break;
        }
    }
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    String::from_utf8(bytes.to_vec()).ok()
}

fn net(input: &mut &[u8]) -> Option<IpNet> {
    text(input)?.parse().ok()
}
