//! Conditions on protocol and port. ICMP type and code are the two bytes of a port.

use messages::{IcmpMatch, PortRange};

/// 16-bit ranges: sorted, disjoint and not adjacent, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ranges(Vec<(u16, u16)>);

/// The conditions on protocol and port. Ranges other than all ports require a protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortConditions {
    pub(crate) protocol: Option<u8>,
    pub(crate) not_protocol: Option<u8>,
    pub(crate) ranges: Ranges,
}

impl Default for PortConditions {
    fn default() -> Self {
        Self { protocol: None, not_protocol: None, ranges: Ranges::full() }
    }
}

impl PortConditions {
    /// Whether every packet matches.
    pub(crate) fn is_always(&self) -> bool {
        self.protocol.is_none() && self.not_protocol.is_none() && self.ranges.is_full()
    }

    /// The matching ranges of a protocol.
    pub(crate) fn of_protocol(&self, protocol: u8) -> &[(u16, u16)] {
        let is_in = self.protocol.is_none_or(|wanted| wanted == protocol);
        if is_in && self.not_protocol != Some(protocol) { &self.ranges.0 } else { &[] }
    }

    /// The protocols with conditions.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = u8> {
        self.protocol.into_iter().chain(self.not_protocol)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for protocol in [self.protocol, self.not_protocol] {
            out.extend(protocol.map_or([0, 0], |number| [1, number]));
        }
        out.extend((self.ranges.0.len() as u64).to_le_bytes());
        for (first, last) in &self.ranges.0 {
            out.extend(first.to_le_bytes());
            out.extend(last.to_le_bytes());
        }
    }
}

impl Ranges {
    /// All ports.
    pub(crate) fn full() -> Self {
        Self(vec![(0, u16::MAX)])
    }

    pub(super) fn of(ports: &[PortRange]) -> Self {
        Self::merged(ports.iter().map(|range| (range.first, range.last)).collect())
    }

    pub(super) fn of_icmp(message: &IcmpMatch) -> Self {
        let kind = u16::from(message.icmp_type) << 8;
        match message.code {
            Some(code) => Self(vec![(kind | u16::from(code), kind | u16::from(code))]),
            None => Self(vec![(kind, kind | 0xff)]),
        }
    }

    /// Sorts and merges ranges; a range that ends before it begins is dropped.
    fn merged(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0 == [(0, u16::MAX)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn complement(&self) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0_u32;
        for (first, last) in &self.0 {
            if let Some(before) = u32::from(*first).checked_sub(1).filter(|before| *before >= next) {
                rest.push((low(next), low(before)));
            }
            next = u32::from(*last) + 1;
        }
        if next <= u32::from(u16::MAX) {
            rest.push((low(next), u16::MAX));
        }
        Self(rest)
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        for (first, last) in &self.0 {
            for (other_first, other_last) in &other.0 {
                let (first, last) = (*first.max(other_first), *last.min(other_last));
                if first <= last {
                    both.push((first, last));
                }
            }
        }
        Self::merged(both)
    }
}

/// A port that may have been counted past the last one.
fn low(port: u32) -> u16 {
    u16::try_from(port).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(u16, u16)]) -> Ranges {
        Ranges::merged(ranges.to_vec())
    }

    #[test]
    fn ranges_merge_and_complement() {
        let max = u16::MAX;
        assert_eq!(ranges(&[(5, 9), (1, 4), (20, 10), (8, 12), (30, 30)]), Ranges(vec![(1, 12), (30, 30)]));
        for (some, rest) in [
            (vec![], vec![(0, max)]),
            (vec![(0, max)], vec![]),
            (vec![(0, 0)], vec![(1, max)]),
            (vec![(max, max)], vec![(0, max - 1)]),
            (vec![(1, 2), (4, 5)], vec![(0, 0), (3, 3), (6, max)]),
        ] {
            assert_eq!(Ranges(some.clone()).complement(), Ranges(rest.clone()));
            assert_eq!(Ranges(rest).complement(), Ranges(some));
        }
    }

    #[test]
    fn ranges_intersect() {
        let both = ranges(&[(1, 10), (20, 30)]).intersection(&ranges(&[(5, 25), (40, 50)]));
        assert_eq!(both, Ranges(vec![(5, 10), (20, 25)]));
    }

    #[test]
    fn icmp_is_two_bytes() {
        let of = |icmp_type, code| Ranges::of_icmp(&IcmpMatch { icmp_type, code });
        assert_eq!(of(8, None), Ranges(vec![(0x0800, 0x08ff)]));
        assert_eq!(of(3, Some(4)), Ranges(vec![(0x0304, 0x0304)]));
    }
}
