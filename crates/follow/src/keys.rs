//! Encodes keys of a feed as short byte strings, and decodes them; turns revisions into numbers, for
//! [`KeyTable`](crate::KeyTable). Only for this process: nothing is stored or sent in this form.

use api::Kind;
use ipnet::IpNet;
use model::feed::{FeedKey, FeedKeyRef, NamespacedName, ReadyFlag};
use model::v1::{HostConfigKey, HostEndpointKey, PolicyKey, WorkloadEndpointKey};
use model::{AffinityType, BlockAffinityKey, ResourceKey};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

#[cfg(test)]
mod tests;

/// Encodes a key. Two keys are equal exactly when their bytes are.
pub(crate) fn encode(key: FeedKeyRef<'_>, out: &mut Vec<u8>) {
    use FeedKeyRef as Key;
    let mut put = |tag: u8, kind: Option<Kind>, texts: &[&str]| {
        out.push(tag);
        out.extend(kind.map(kind_number));
        for text in texts {
            put_length(text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
    };
    match key {
        Key::Ready(ReadyFlag) => put(0, None, &[]),
        Key::GlobalConfig(name) => put(1, None, &[name]),
        Key::HostConfig(HostConfigKey { host, name }) => put(2, None, &[host, name]),
        Key::Policy(PolicyKey { kind, namespace, name }) => put(3, Some(*kind), &[namespace, name]),
        Key::Tier(name) => put(4, None, &[name]),
        Key::Profile(name) => put(5, None, &[name]),
        Key::ProfileRules(name) => put(6, None, &[name]),
        Key::WorkloadEndpoint(WorkloadEndpointKey { host, orchestrator, workload, endpoint }) => {
            put(7, None, &[host, orchestrator, workload, endpoint]);
        }
        Key::HostEndpoint(HostEndpointKey { host, endpoint }) => put(8, None, &[host, endpoint]),
        Key::NetworkSet(name) => put(9, None, &[name]),
        Key::IpPool(cidr) => put(10, None, &[&cidr.to_string()]),
        Key::Wireguard(node) => put(11, None, &[node]),
        Key::Block(cidr) => put(12, None, &[&cidr.to_string()]),
        Key::BlockAffinity(BlockAffinityKey { cidr, host, affinity_type }) => {
            put(13, None, &[&cidr.to_string(), host, affinity_type.as_str()]);
        }
        Key::Node(name) => put(14, None, &[name]),
        Key::BgpConfiguration(name) => put(15, None, &[name]),
        Key::BgpPeer(name) => put(16, None, &[name]),
        Key::BgpFilter(name) => put(17, None, &[name]),
        Key::Service(NamespacedName { namespace, name }) => put(18, None, &[namespace, name]),
        Key::EndpointSlice(NamespacedName { namespace, name }) => put(19, None, &[namespace, name]),
        Key::LiveMigration(NamespacedName { namespace, name }) => put(20, None, &[namespace, name]),
        Key::FelixConfiguration(name) => put(21, None, &[name]),
        Key::NodeStatus(name) => put(22, None, &[name]),
        Key::Resource(ResourceKey { kind, namespace, name }) => put(23, Some(*kind), &[namespace, name]),
    }
}

/// Decodes what [`encode`] wrote.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<FeedKey> {
    let input = &mut bytes;
    Some(match byte(input)? {
        0 => FeedKey::Ready(ReadyFlag),
        1 => FeedKey::GlobalConfig(text(input)?),
        2 => FeedKey::HostConfig(HostConfigKey { host: text(input)?, name: text(input)? }),
        3 => FeedKey::Policy(PolicyKey { kind: kind(input)?, namespace: text(input)?, name: text(input)? }),
        4 => FeedKey::Tier(text(input)?),
        5 => FeedKey::Profile(text(input)?),
        6 => FeedKey::ProfileRules(text(input)?),
        7 => FeedKey::WorkloadEndpoint(WorkloadEndpointKey {
            host: text(input)?,
            orchestrator: text(input)?,
            workload: text(input)?,
            endpoint: text(input)?,
        }),
        8 => FeedKey::HostEndpoint(HostEndpointKey { host: text(input)?, endpoint: text(input)? }),
        9 => FeedKey::NetworkSet(text(input)?),
        10 => FeedKey::IpPool(net(input)?),
        11 => FeedKey::Wireguard(text(input)?),
        12 => FeedKey::Block(net(input)?),
        13 => FeedKey::BlockAffinity(BlockAffinityKey {
            cidr: net(input)?,
            host: text(input)?,
            affinity_type: AffinityType::from_word(&text::<String>(input)?)?,
        }),
        14 => FeedKey::Node(text(input)?),
        15 => FeedKey::BgpConfiguration(text(input)?),
        16 => FeedKey::BgpPeer(text(input)?),
        17 => FeedKey::BgpFilter(text(input)?),
        18 => FeedKey::Service(namespaced(input)?),
        19 => FeedKey::EndpointSlice(namespaced(input)?),
        20 => FeedKey::LiveMigration(namespaced(input)?),
        21 => FeedKey::FelixConfiguration(text(input)?),
        22 => FeedKey::NodeStatus(text(input)?),
        _ => {
            FeedKey::Resource(ResourceKey { kind: kind(input)?, namespace: text(input)?, name: text(input)? })
        }
    })
}

fn namespaced(input: &mut &[u8]) -> Option<NamespacedName> {
    Some(NamespacedName { namespace: text(input)?, name: text(input)? })
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

/// A text, as whatever the place for it holds.
fn text<T: for<'a> From<&'a str>>(input: &mut &[u8]) -> Option<T> {
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
    std::str::from_utf8(bytes).ok().map(T::from)
}

fn net(input: &mut &[u8]) -> Option<IpNet> {
    text::<String>(input)?.parse().ok()
}

/// A revision as a number: two different revisions of one key have different stamps. Most stores count; a revision that
/// is not a number is represented by its hash.
pub(crate) fn stamp(revision: &str) -> u64 {
    const HASHED: u64 = 1 << 63;
    match revision.parse::<u64>() {
        Ok(number) if number < HASHED => number,
        _ => {
            let mut hasher = DefaultHasher::new();
            revision.hash(&mut hasher);
            hasher.finish() | HASHED
        }
    }
}
