//! Decodes the value of each attribute.

use super::{OPTIONAL, PARTIAL, Prefixes, Raw, Read, Refusal, TRANSITIVE, discard, withdraw};
use crate::decode::reader::Reader;
use crate::{
    Aggregator, AsPath, Asn, Attributes, Community, ExtendedCommunity, Family, FaultKind, LargeCommunity,
    NextHop, Origin, RouterId, Segment, SegmentKind, SessionOptions, UnknownAttribute, UpdateFault,
    attribute,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The four-byte attributes that two-byte speakers passed on beside AS_PATH and AGGREGATOR.
#[derive(Debug, Default)]
pub(super) struct FourBytes {
    path: Option<AsPath>,
    aggregator: Option<Aggregator>,
}

impl FourBytes {
    /// Restores the numbers that two-byte speakers could not represent (RFC 6793, 4.2.3).
    pub(super) fn merge(self, attributes: &mut Attributes, options: &SessionOptions) {
        if options.four_byte_as {
            return;
        }
        if let Some(old) = attributes.aggregator {
            // A two-byte speaker formed this aggregate; AS4_PATH from before it no longer applies.
            if old.system != Asn(u32::from(crate::AS_TRANS)) {
                return;
            }
            if let Some(aggregator) = self.aggregator {
                attributes.aggregator = Some(aggregator);
            }
        }
        if let Some(path) = self.path {
            attributes.as_path = attributes.as_path.merged_with_four_bytes(&path);
        }
    }
}

/// Decodes an attribute other than those that carry prefixes.
pub(super) fn take(
    raw: Raw<'_>,
    options: &SessionOptions,
    read: &mut Read<'_>,
    four_bytes: &mut FourBytes,
    unknown: &mut Vec<UnknownAttribute>,
) -> Result<(), Refusal> {
    let attributes = &mut read.attributes;
    let internal_only = matches!(
        raw.code,
        attribute::LOCAL_PREF | attribute::ORIGINATOR_ID | attribute::CLUSTER_LIST | attribute::AIGP
    );
    if internal_only && options.external {
        return Err(discard(FaultKind::NotFromExternal));
    }
    let length = || withdraw(FaultKind::Length);
    match raw.code {
        attribute::ORIGIN => {
            let [number] = fixed(raw.value).ok_or_else(length)?;
            attributes.origin = Origin::from_number(number).ok_or_else(|| withdraw(FaultKind::Value))?;
            read.has_origin = true;
        }
        attribute::AS_PATH => {
            attributes.as_path = as_path(raw.value, options.four_byte_as, options.external)
                .ok_or_else(|| withdraw(FaultKind::Value))?;
            read.has_as_path = true;
        }
        attribute::NEXT_HOP => {
            let address = Ipv4Addr::from(fixed::<4>(raw.value).ok_or_else(length)?);
            if !is_host(address) {
                return Err(withdraw(FaultKind::Value));
            }
            read.next_hop = Some(NextHop::Ipv4(address));
        }
        attribute::MED => attributes.med = Some(u32::from_be_bytes(fixed(raw.value).ok_or_else(length)?)),
        attribute::LOCAL_PREF => {
            attributes.local_pref = Some(u32::from_be_bytes(fixed(raw.value).ok_or_else(length)?));
        }
        attribute::ATOMIC_AGGREGATE => {
            if !raw.value.is_empty() {
                return Err(discard(FaultKind::Length));
            }
            attributes.atomic_aggregate = true;
        }
        attribute::AGGREGATOR => {
            let aggregator = aggregator(raw.value, options.four_byte_as);
            attributes.aggregator = Some(aggregator.ok_or_else(|| discard(FaultKind::Length))?);
        }
        attribute::COMMUNITIES => {
            attributes.communities =
                list(raw.value, |bytes| Community(u32::from_be_bytes(bytes))).ok_or_else(length)?;
        }
        attribute::EXTENDED_COMMUNITIES => {
            attributes.extended_communities = list(raw.value, ExtendedCommunity).ok_or_else(length)?;
        }
        attribute::LARGE_COMMUNITIES => {
            attributes.large_communities = list(raw.value, large_community).ok_or_else(length)?;
        }
        attribute::ORIGINATOR_ID => {
            attributes.originator_id =
                Some(RouterId(u32::from_be_bytes(fixed(raw.value).ok_or_else(length)?)));
        }
        attribute::CLUSTER_LIST => {
            attributes.cluster_list =
                list(raw.value, |bytes| RouterId(u32::from_be_bytes(bytes))).ok_or_else(length)?;
        }
        attribute::AS4_PATH | attribute::AS4_AGGREGATOR if options.four_byte_as => {}
        attribute::AS4_PATH => {
            let path = as_path(raw.value, true, false).filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| discard(FaultKind::Value))?;
            four_bytes.path = Some(path.without_confederation());
        }
        attribute::AS4_AGGREGATOR => {
            four_bytes.aggregator =
                Some(aggregator(raw.value, true).ok_or_else(|| discard(FaultKind::Length))?);
        }
        attribute::AIGP => attributes.aigp = Some(aigp(raw.value).ok_or_else(|| discard(FaultKind::Value))?),
        _ if raw.flags & OPTIONAL == 0 => return Err(Refusal::Reset(UpdateFault::UnknownWellKnown)),
        _ if raw.flags & TRANSITIVE == 0 => {}
        code => {
            let flags = OPTIONAL | TRANSITIVE | (raw.flags & PARTIAL);
            unknown.push(UnknownAttribute { code, flags, value: raw.value.into() });
        }
    }
    Ok(())
}

fn fixed<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

/// A non-empty list of items of equal length.
fn list<T, const N: usize>(value: &[u8], item: impl Fn([u8; N]) -> T) -> Option<Box<[T]>> {
    let (items, rest) = value.as_chunks::<N>();
    (rest.is_empty() && !items.is_empty()).then(|| items.iter().copied().map(item).collect())
}

fn large_community(bytes: [u8; 12]) -> LargeCommunity {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    LargeCommunity {
        system: u32::from_be_bytes([a, b, c, d]),
        first: u32::from_be_bytes([e, f, g, h]),
        second: u32::from_be_bytes([i, j, k, l]),
    }
}

fn aggregator(value: &[u8], four_byte_as: bool) -> Option<Aggregator> {
    let mut reader = Reader::new(value);
    let system = if four_byte_as { reader.u32()? } else { u32::from(reader.u16()?) };
    let id = RouterId(reader.u32()?);
    reader.is_empty().then_some(Aggregator { system: Asn(system), id })
}

/// The metric of the first AIGP entry; later ones must be ignored (RFC 7311).
fn aigp(value: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(value);
    while !reader.is_empty() {
        let (kind, length) = (reader.u8()?, usize::from(reader.u16()?));
        let content = reader.take(length.checked_sub(3)?)?;
        if kind == 1 {
            return Some(u64::from_be_bytes(content.try_into().ok()?));
        }
    }
    None
}

fn as_path(value: &[u8], four_byte_as: bool, external: bool) -> Option<AsPath> {
    let mut reader = Reader::new(value);
    let mut segments = Vec::new();
    while !reader.is_empty() {
        let kind = SegmentKind::from_number(reader.u8()?)?;
        let count = usize::from(reader.u8()?);
        if count == 0 || (external && kind.is_confederation()) {
            return None;
        }
        let numbers = if four_byte_as {
            let (numbers, _) = reader.take(count * 4)?.as_chunks::<4>();
            numbers.iter().map(|number| Asn(u32::from_be_bytes(*number))).collect()
        } else {
            let (numbers, _) = reader.take(count * 2)?.as_chunks::<2>();
            numbers.iter().map(|number| Asn(u32::from(u16::from_be_bytes(*number)))).collect()
        };
        segments.push(Segment { kind, numbers });
    }
    Some(AsPath::from_segments(segments))
}

/// Whether an address can be that of a host.
fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn is_host_v6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// Decodes MP_REACH_NLRI. `None` if its family is not exchanged: it must be ignored then.
pub(super) fn reach<'a>(value: &'a [u8], options: &SessionOptions) -> Result<Option<Prefixes<'a>>, Refusal> {
    let cut = || Refusal::Reset(UpdateFault::OptionalAttribute);
    let mut reader = Reader::new(value);
    let afi = reader.u16().ok_or_else(cut)?;
    let safi = reader.u8().ok_or_else(cut)?;
    let length = usize::from(reader.u8().ok_or_else(cut)?);
    let next_hop = reader.take(length).ok_or_else(cut)?;
    reader.u8().ok_or_else(cut)?;
    let Some(family) = Family::from_numbers(afi, safi).filter(|family| options.exchanges(*family)) else {
        return Ok(None);
    };
    let next_hop = match (family, next_hop.len()) {
        (Family::Ipv4, 4) => {
            let [a, b, c, d] = fixed(next_hop).ok_or_else(cut)?;
            Some(Ipv4Addr::new(a, b, c, d)).filter(|address| is_host(*address)).map(NextHop::Ipv4)
        }
        (Family::Ipv4, 16 | 32) if !options.extended_next_hop => return Err(cut()),
        (_, 16) => next_hop_v6(Ipv6Addr::from(fixed::<16>(next_hop).ok_or_else(cut)?), None),
        (_, 32) => {
            let address = Ipv6Addr::from(fixed::<16>(&next_hop[..16]).ok_or_else(cut)?);
            let second = Ipv6Addr::from(fixed::<16>(&next_hop[16..]).ok_or_else(cut)?);
            next_hop_v6(address, Some(second))
        }
        _ => return Err(cut()),
    };
    let with_path = options.add_path_receive[family.index()];
    Ok(Some(Prefixes { family, with_path, next_hop, nlri: reader.rest() }))
}

/// An unnumbered peer may send zeros, or the link-local address again, as its global address.
fn next_hop_v6(address: Ipv6Addr, second: Option<Ipv6Addr>) -> Option<NextHop> {
    let link_local = second.filter(Ipv6Addr::is_unicast_link_local);
    if address.is_unspecified() || address.is_unicast_link_local() {
        let address = link_local.unwrap_or(address);
        return is_host_v6(address).then_some(NextHop::Ipv6 { address, link_local: None });
    }
    is_host_v6(address).then_some(NextHop::Ipv6 { address, link_local })
}

/// Decodes MP_UNREACH_NLRI. `None` if its family is not exchanged: it must be ignored then.
pub(super) fn unreach<'a>(
    value: &'a [u8],
    options: &SessionOptions,
) -> Result<Option<Prefixes<'a>>, Refusal> {
    let cut = || Refusal::Reset(UpdateFault::OptionalAttribute);
    let mut reader = Reader::new(value);
    let (afi, safi) = (reader.u16().ok_or_else(cut)?, reader.u8().ok_or_else(cut)?);
    let family = Family::from_numbers(afi, safi).filter(|family| options.exchanges(*family));
    Ok(family.map(|family| {
        let with_path = options.add_path_receive[family.index()];
        Prefixes { family, with_path, next_hop: None, nlri: reader.rest() }
    }))
}
