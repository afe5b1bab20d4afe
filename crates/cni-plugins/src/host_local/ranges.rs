//! Ranges of addresses, and sets of ranges that are iterated in a circle. Pure.

use super::config::RangeDocument;
use cni_protocol::result::Ip;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// The part of a subnet that addresses are assigned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    subnet: IpNet,
    start: IpAddr,
    end: IpAddr,
    /// Never assigned.
    pub(super) gateway: IpAddr,
}

/// Ranges of one family, which together provide one address of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeSet(Vec<Range>);

impl Range {
    /// Checks a range and fills in defaults: the gateway is the subnet's first address; the range is the whole subnet
    /// except the network address and, for IPv4, the broadcast address.
    pub(super) fn read(document: RangeDocument) -> Result<Self, String> {
        let text = document.subnet.unwrap_or_default();
        let subnet: IpNet = text.parse().map_err(|_| format!("invalid CIDR address: {text}"))?;
        if subnet.prefix_len() + 2 > subnet.max_prefix_len() {
            return Err(format!("Network {subnet} too small to allocate from"));
        }
        if subnet.addr() != subnet.network() {
            let (length, network) = (subnet.prefix_len(), subnet.network());
            return Err(format!(
                "Network has host bits set. For a subnet mask of length {length} the network address is {network}"
            ));
        }
        let first = following(subnet.network());
        let last = match subnet {
            IpNet::V4(subnet) => preceding(subnet.broadcast().into()),
            IpNet::V6(subnet) => subnet.broadcast().into(),
        };
        for (name, bound) in [("RangeStart", document.start), ("RangeEnd", document.end)] {
            if let Some(bound) = bound.filter(|bound| !subnet.contains(bound)) {
                return Err(format!("{name} {bound} not in network {subnet}"));
            }
        }
        let start = document.start.unwrap_or(first);
        let end = document.end.unwrap_or(last);
        if end < start {
            return Err(format!("RangeEnd {end} not in network {subnet}"));
        }
        Ok(Self { subnet, start, end, gateway: document.gateway.unwrap_or(first) })
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.start.is_ipv4() && (self.start..=self.end).contains(&address)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.start) || self.contains(other.end) || other.contains(self.start)
    }

    /// The result for one address of the range.
    pub(super) fn ip(&self, address: IpAddr) -> Ip {
        // The subnet's length is valid for the address, which is in the subnet.
        let address = IpNet::new_assert(address, self.subnet.prefix_len());
        Ip { address, gateway: Some(self.gateway), interface: None }
    }
}

impl RangeSet {
    pub(super) fn new(ranges: Vec<Range>) -> Result<Self, String> {
        let Some(first) = ranges.first() else { return Err("empty range set".to_owned()) };
        if ranges.iter().any(|range| range.start.is_ipv4() != first.start.is_ipv4()) {
            return Err("mixed address families".to_owned());
        }
        for (number, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges.iter().skip(number + 1).find(|other| range.overlaps(other)) {
                return Err(format!("subnets {range} and {other} overlap"));
            }
        }
        Ok(Self(ranges))
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.0.iter().any(|range| range.start.is_ipv4())
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|range| other.0.iter().any(|of_other| range.overlaps(of_other)))
    }

    /// The range that contains an address.
    pub(super) fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }

    /// Every address except gateways once, starting after the last one assigned.
    pub(super) fn after(&self, last: Option<IpAddr>) -> impl Iterator<Item = (IpAddr, &Range)> {
        let place = last.and_then(|last| {
            let number = self.0.iter().position(|range| range.contains(last))?;
            Some((number, last))
        });
        let (number, behind) = match place {
            Some((number, last)) => (number, Some(last)),
            None => (0, None),
        };
        let whole = |range: &Range| (range.start, range.end);
        let mut parts: Vec<(&Range, (IpAddr, IpAddr))> = Vec::new();
        let circle = self.0.iter().cycle().skip(number).take(self.0.len());
        for (step, range) in circle.enumerate() {
            match behind {
                Some(last) if step == 0 => {
                    if last < range.end {
                        parts.push((range, (following(last), range.end)));
                    }
                }
                _ => parts.push((range, whole(range))),
            }
        }
        if let (Some(last), Some(range)) = (behind, self.0.get(number)) {
            parts.push((range, (range.start, last)));
        }
        parts
            .into_iter()
            .flat_map(|(range, (from, to))| addresses(from, to).map(move |address| (address, range)))
            .filter(|(address, range)| *address != range.gateway)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(Range::to_string).collect();
        f.write_str(&ranges.join(","))
    }
}

fn addresses(from: IpAddr, to: IpAddr) -> impl Iterator<Item = IpAddr> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let address = next?;
        next = (address < to).then(|| following(address));
        Some(address)
    })
}

fn following(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(address.to_bits().wrapping_add(1).into()),
        IpAddr::V6(address) => IpAddr::V6(address.to_bits().wrapping_add(1).into()),
    }
}

fn preceding(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(address.to_bits().wrapping_sub(1).into()),
        IpAddr::V6(address) => IpAddr::V6(address.to_bits().wrapping_sub(1).into()),
    }
}
