//! Encodes path attributes in the order of their codes; MP_REACH_NLRI first, so that a receiver finds the routes of a
//! message even if it cannot read other attributes (RFC 7606, 5.1).

use crate::{Aggregator, AsPath, Asn, Attributes, Family, NextHop, SegmentKind, SessionOptions, attribute};
use std::net::{IpAddr, Ipv4Addr};

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const PARTIAL: u8 = 0x20;
const EXTENDED_LENGTH: u8 = 0x10;

/// Writes all attributes except the next hop.
pub(super) fn write(out: &mut Vec<u8>, attributes: &Attributes, options: &SessionOptions) {
    put(out, TRANSITIVE, attribute::ORIGIN, &[attributes.origin.number()]);
    let mut value = Vec::new();
    as_path(&mut value, &attributes.as_path, options.four_byte_as);
    put(out, TRANSITIVE, attribute::AS_PATH, &value);
    if let Some(med) = attributes.med {
        put(out, OPTIONAL, attribute::MED, &med.to_be_bytes());
    }
    if let Some(preference) = attributes.local_pref.filter(|_| !options.external) {
        put(out, TRANSITIVE, attribute::LOCAL_PREF, &preference.to_be_bytes());
    }
    if attributes.atomic_aggregate {
        put(out, TRANSITIVE, attribute::ATOMIC_AGGREGATE, &[]);
    }
    if let Some(from) = attributes.aggregator {
        put(out, OPTIONAL | TRANSITIVE, attribute::AGGREGATOR, &aggregator(from, options.four_byte_as));
    }
    let mut list = |out: &mut Vec<u8>, flags, code, items: &mut dyn Iterator<Item = [u8; 4]>| {
        value.clear();
        items.for_each(|item| value.extend(item));
        if !value.is_empty() {
            put(out, flags, code, &value);
        }
    };
    let mut communities = attributes.communities.iter().map(|community| community.0.to_be_bytes());
    list(out, OPTIONAL | TRANSITIVE, attribute::COMMUNITIES, &mut communities);
    if !options.external {
        if let Some(id) = attributes.originator_id {
            put(out, OPTIONAL, attribute::ORIGINATOR_ID, &id.0.to_be_bytes());
        }
        let mut clusters = attributes.cluster_list.iter().map(|id| id.0.to_be_bytes());
        list(out, OPTIONAL, attribute::CLUSTER_LIST, &mut clusters);
    }
    let extended: Vec<u8> =
        attributes.extended_communities.iter().flat_map(|community| community.0).collect();
    if !extended.is_empty() {
        put(out, OPTIONAL | TRANSITIVE, attribute::EXTENDED_COMMUNITIES, &extended);
    }
    if !options.four_byte_as {
        if attributes.as_path.needs_four_bytes() {
            let mut value = Vec::new();
            as_path(&mut value, &attributes.as_path.without_confederation(), true);
            put(out, OPTIONAL | TRANSITIVE, attribute::AS4_PATH, &value);
        }
        if let Some(from) = attributes.aggregator.filter(|from| from.system.0 > u32::from(u16::MAX)) {
            put(out, OPTIONAL | TRANSITIVE, attribute::AS4_AGGREGATOR, &aggregator(from, true));
        }
    }
    if let Some(metric) = attributes.aigp.filter(|_| !options.external) {
        let mut value = vec![1, 0, 11];
        value.extend(metric.to_be_bytes());
        put(out, OPTIONAL, attribute::AIGP, &value);
    }
    let large = attributes.large_communities.iter();
    let large: Vec<u8> = large
        .flat_map(|community| [community.system, community.first, community.second])
        .flat_map(u32::to_be_bytes)
        .collect();
    if !large.is_empty() {
        put(out, OPTIONAL | TRANSITIVE, attribute::LARGE_COMMUNITIES, &large);
    }
    for unknown in &attributes.unknown {
        put(out, OPTIONAL | TRANSITIVE | PARTIAL, unknown.code, &unknown.value);
    }
}

/// Writes the attributes with NEXT_HOP at its place after AS_PATH.
pub(super) fn write_with_next_hop(out: &mut Vec<u8>, block: &[u8], next_hop: Ipv4Addr) {
    // ORIGIN has four bytes; AS_PATH contains its own length.
    let path_end = match block.get(4..8) {
        Some(&[flags, _, high, low]) if flags & EXTENDED_LENGTH != 0 => {
            8 + usize::from(u16::from_be_bytes([high, low]))
        }
        Some(&[_, _, length, _]) => 7 + usize::from(length),
        _ => block.len(),
    };
    let (head, tail) = block.split_at(path_end.min(block.len()));
    out.extend_from_slice(head);
    put(out, TRANSITIVE, attribute::NEXT_HOP, &next_hop.octets());
    out.extend_from_slice(tail);
}

/// Writes MP_REACH_NLRI up to its prefixes; returns the position of its length.
pub(super) fn begin_reach(out: &mut Vec<u8>, family: Family, next_hop: &NextHop) -> usize {
    out.extend([OPTIONAL | EXTENDED_LENGTH, attribute::MP_REACH]);
    let at = out.len();
    out.extend([0, 0]);
    out.extend_from_slice(&family.afi().to_be_bytes());
    out.push(family.safi());
    match (family, next_hop) {
        // An IPv6 route must have an IPv6 next hop; for an IPv4 one only the mapped address is available.
        (Family::Ipv6, NextHop::Ipv4(address)) => {
            out.push(16);
            out.extend(address.to_ipv6_mapped().octets());
        }
        (_, NextHop::Ipv6 { address, link_local: Some(link_local) }) => {
            out.push(32);
            out.extend(address.octets());
            out.extend(link_local.octets());
        }
        _ => match next_hop.address() {
            IpAddr::V4(address) => {
                out.push(4);
                out.extend(address.octets());
            }
            IpAddr::V6(address) => {
                out.push(16);
                out.extend(address.octets());
            }
        },
    }
    out.push(0);
    at
}

fn put(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(length) => out.extend([flags, code, length]),
        Err(_) => {
            out.extend([flags | EXTENDED_LENGTH, code]);
            out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(&value[..value.len().min(usize::from(u16::MAX))]);
}

fn as_path(out: &mut Vec<u8>, path: &AsPath, four_byte_as: bool) {
    for segment in path.segments() {
        out.extend([SegmentKind::number(segment.kind), super::byte(segment.numbers.len())]);
        for number in &segment.numbers {
            system(out, *number, four_byte_as);
        }
    }
}

fn system(out: &mut Vec<u8>, number: Asn, four_byte_as: bool) {
    if four_byte_as {
        out.extend(number.0.to_be_bytes());
    } else {
        out.extend(number.two_bytes().to_be_bytes());
    }
}

fn aggregator(from: Aggregator, four_byte_as: bool) -> Vec<u8> {
    let mut value = Vec::new();
    system(&mut value, from.system, four_byte_as);
    value.extend(from.id.0.to_be_bytes());
    value
}
