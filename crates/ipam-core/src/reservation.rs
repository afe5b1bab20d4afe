//! Sets of addresses as sorted ranges, for reservations: they overlap, nest and may be as large as all of IPv6, so they
//! are never counted address by address.

use crate::address;
use ipnet::IpNet;
use std::net::IpAddr;

/// A set of addresses of both IP versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: Vec<Range>,
    v6: Vec<Range>,
}

/// All numbers from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u128,
    last: u128,
}

impl Range {
    fn of(net: &IpNet) -> Self {
        Self { first: address::number(net.network()), last: address::number(net.broadcast()) }
    }

    fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

impl FromIterator<IpNet> for AddressSet {
    fn from_iter<T: IntoIterator<Item = IpNet>>(nets: T) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for net in nets {
            match net {
                IpNet::V4(_) => v4.push(Range::of(&net)),
                IpNet::V6(_) => v6.push(Range::of(&net)),
            }
        }
        Self { v4: merged(v4), v6: merged(v6) }
    }
}

/// Sorts ranges and merges those that touch or overlap.
fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => last.last = last.last.max(range.last),
            _ => merged.push(range),
        }
    }
    merged
}

impl AddressSet {
    /// Adds further ranges to this set.
    #[must_use]
    pub fn with(&self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        let Self { mut v4, mut v6 } = Self::from_iter(nets);
        v4.extend_from_slice(&self.v4);
        v6.extend_from_slice(&self.v6);
        Self { v4: merged(v4), v6: merged(v6) }
    }

    /// Whether there is no address in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether an address is in the set.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.count_within(&IpNet::from(address)) == 1
    }

    /// How many addresses of a range are in the set; one too low for the range of all IPv6 addresses.
    #[must_use]
    pub fn count_within(&self, net: &IpNet) -> u128 {
        let ranges = match net {
            IpNet::V4(_) => &self.v4,
            IpNet::V6(_) => &self.v6,
        };
        let wanted = Range::of(net);
        let start = ranges.partition_point(|range| range.last < wanted.first);
        ranges[start..]
            .iter()
            .take_while(|range| range.first <= wanted.last)
            .map(|range| {
                Range { first: range.first.max(wanted.first), last: range.last.min(wanted.last) }.count()
            })
            .fold(0, u128::saturating_add)
    }

    /// Whether every address of a range is in the set, in one member or in several together.
    #[must_use]
    pub fn covers(&self, net: &IpNet) -> bool {
        self.count_within(net) == address::size(net)
    }

    /// If the set contains all addresses of a range: the end of the gapless part of the set that covers it, which may
    /// extend beyond the range. `None` if an address of the range is not in the set.
    #[must_use]
    pub fn end_of_cover(&self, net: &IpNet) -> Option<u128> {
        let ranges = match net {
            IpNet::V4(_) => &self.v4,
            IpNet::V6(_) => &self.v6,
        };
        let wanted = Range::of(net);
        let first = ranges.get(ranges.partition_point(|range| range.last < wanted.first))?;
        (first.first <= wanted.first && first.last >= wanted.last).then_some(first.last)
    }

    /// Whether some address of a range is in the set.
    #[must_use]
    pub fn overlaps(&self, net: &IpNet) -> bool {
        self.count_within(net) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(nets: &[&str]) -> AddressSet {
        nets.iter().map(|net| net.parse::<IpNet>().expect("a range")).collect()
    }

    #[test]
    fn huge_and_nested_reservations_are_counted_by_range() {
        let reserved = set(&[
            "10.0.0.0/8",
            "10.1.2.3/32",
            "10.1.0.0/16",
            "11.0.0.0/9",
            "11.128.0.0/9",
            "::/0",
            "fd00::/8",
        ]);
        for (net, count) in [
            ("10.0.0.0/7", 1_u128 << 25),
            ("10.1.2.0/24", 256),
            ("12.0.0.0/24", 0),
            ("0.0.0.0/0", 1 << 25),
            ("::/0", u128::MAX),
            ("fd00::/64", 1 << 64),
        ] {
            assert_eq!(reserved.count_within(&net.parse().expect("a range")), count, "{net}");
        }
        assert!(reserved.covers(&"11.0.0.0/8".parse().expect("a range")), "two halves cover the whole");
        assert!(reserved.covers(&"::/0".parse().expect("a range")));
        assert!(!reserved.covers(&"10.0.0.0/6".parse().expect("a range")));
        assert!(set(&[]).is_empty() && !set(&[]).contains("10.0.0.1".parse().expect("an address")));
    }

    proptest! {
        #[test]
        fn ranges_agree_with_single_addresses(
            nets in prop::collection::vec((0..64_u32, 26..=32_u8), 0..8),
            more in prop::collection::vec((0..64_u32, 26..=32_u8), 0..3),
            wanted in (0..64_u32, 26..=32_u8),
        ) {
            let net = |(offset, length): (u32, u8)| {
                let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + offset);
                IpNet::new(IpAddr::V4(address), length).expect("a range").trunc()
            };
            let naive: Vec<IpNet> = nets.iter().chain(&more).copied().map(net).collect();
            let set = nets.into_iter().map(net).collect::<AddressSet>().with(more.into_iter().map(net));
            let wanted = net(wanted);
            let inside = wanted.hosts().chain([wanted.network(), wanted.broadcast()]).collect::<std::collections::BTreeSet<_>>();
            let reserved = inside.iter().filter(|address| naive.iter().any(|net| net.contains(*address))).count();
            prop_assert_eq!(set.count_within(&wanted), reserved as u128);
            prop_assert_eq!(set.covers(&wanted), reserved == inside.len());
            prop_assert_eq!(set.overlaps(&wanted), reserved > 0);
            for address in inside {
                prop_assert_eq!(set.contains(address), naive.iter().any(|net| net.contains(&address)));
            }
        }
    }
}
