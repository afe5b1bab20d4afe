//! `bpfp_flows`: policy decisions about packets, for flow logs. The map is ours alone; new entries replace the oldest
//! ones.

use super::{From, To};
use crate::table::Layout;
use std::net::IpAddr;

/// The maximum number of rules reported per packet.
const MOST_HITS: usize = 16;

/// A packet that policy judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// When, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// Its length without the link-layer header.
    pub length: u32,
    /// 0 for ingress, 1 for egress.
    pub hook: u8,
    /// Its protocol.
    pub protocol: u8,
    /// Its source.
    pub source: IpAddr,
    /// Its destination; after NAT if it was for a service.
    pub destination: IpAddr,
    /// Its destination before NAT.
    pub original: IpAddr,
    /// The source's port; like the other ports, 0 for protocols without ports.
    pub source_port: u16,
    /// The destination's port.
    pub destination_port: u16,
    /// The destination's port before NAT.
    pub original_port: u16,
    /// The rules that it hit, in order, by their ids in `cali_rule_ctrs2`.
    pub hits: Vec<u64>,
}

impl Layout for Judged {
    const SIZE: usize = 200;

    fn write(&self, to: &mut [u8]) {
        let wide = |address: IpAddr| match address {
            IpAddr::V4(four) => [&four.octets()[..], &[0; 12]].concat(),
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        let family = if self.source.is_ipv4() { 4 } else { 6 };
        let count = self.hits.len().min(MOST_HITS);
        let mut to = To(to, 0);
        let mut place = to
            .put(&self.time.to_ne_bytes())
            .put(&self.length.to_ne_bytes())
            .put(&[self.hook, family, self.protocol, u8::try_from(count).unwrap_or(u8::MAX)])
            .put(&wide(self.source))
            .put(&wide(self.destination))
            .put(&wide(self.original))
            .put(&self.source_port.to_be_bytes())
            .put(&self.destination_port.to_be_bytes())
            .put(&self.original_port.to_be_bytes())
            .put(&[0; 2]);
        for hit in (0..MOST_HITS).map(|number| self.hits.get(number).copied().unwrap_or_default()) {
            place = place.put(&hit.to_ne_bytes());
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (time, length) = (from.u64(), from.u32());
        let [hook, family, protocol, count] = from.take();
        let mut address = || -> IpAddr {
            let bytes: [u8; 16] = from.take();
            if family == 4 { [bytes[0], bytes[1], bytes[2], bytes[3]].into() } else { bytes.into() }
        };
        let (source, destination, original) = (address(), address(), address());
        let mut port = || u16::from_be_bytes(from.take());
        let (source_port, destination_port, original_port) = (port(), port(), port());
        from.skip(2);
        let hits = (0..usize::from(count).min(MOST_HITS)).map(|_| from.u64()).collect();
        Self {
            time,
            length,
            hook,
            protocol,
            source,
            destination,
            original,
            source_port,
            destination_port,
            original_port,
            hits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_offset() {
        let judged = Judged {
            time: 1,
            length: 2,
            hook: 1,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            original: [10, 96, 0, 1].into(),
            source_port: 0x0102,
            destination_port: 80,
            original_port: 443,
            hits: vec![7, 8],
        };
        let bytes = judged.bytes();
        assert_eq!((bytes[0], bytes[8], bytes[12..16].to_vec()), (1, 2, vec![1, 4, 6, 2]));
        assert_eq!((bytes[16], bytes[35], bytes[49]), (10, 2, 96));
        assert_eq!(bytes[64..72], [1, 2, 0, 80, 1, 187, 0, 0]);
        assert_eq!((bytes[72], bytes[80], bytes[88]), (7, 8, 0));
        assert_eq!(Judged::read(&bytes), judged);
        let six = Judged {
            source: [0xfd; 16].into(),
            destination: [0xfe; 16].into(),
            original: [0xfe; 16].into(),
            hits: Vec::new(),
            ..judged
        };
        assert_eq!(Judged::read(&six.bytes()), six);
    }
}
