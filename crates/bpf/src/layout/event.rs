//! `bpfp_events`: events about single packets, reported by programs. The map is ours alone; new events replace the
//! oldest ones.

use super::{From, To};
use crate::table::Layout;
use std::net::IpAddr;

/// Why a packet is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was dropped.
    Dropped,
    /// It matched a rule that logs, and was allowed.
    LoggedAllowed,
    /// It matched a rule that logs, and was denied.
    LoggedDenied,
    /// Reported by a newer program.
    Unknown(u8),
}

impl EventKind {
    fn number(self) -> u8 {
        match self {
            Self::Dropped => 1,
            Self::LoggedAllowed => 2,
            Self::LoggedDenied => 3,
            Self::Unknown(number) => number,
        }
    }

    fn from_number(number: u8) -> Self {
        let known = [Self::Dropped, Self::LoggedAllowed, Self::LoggedDenied];
        known.into_iter().find(|kind| kind.number() == number).unwrap_or(Self::Unknown(number))
    }
}

/// An event about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// The id in `cali_rule_ctrs2` of the last rule that it hit; 0 for none.
    pub rule: u64,
    /// The index of the device.
    pub device: u32,
    /// The index of the counter in `cali_counters6` that counted it.
    pub reason: u32,
    /// Its length in bytes.
    pub length: u32,
    /// 0 for ingress, 1 for egress.
    pub hook: u8,
    /// Why it is reported.
    pub kind: EventKind,
    /// Its protocol; 0 if it could not be parsed.
    pub protocol: u8,
    /// Its source.
    pub source: IpAddr,
    /// Its destination; after NAT if it was for a service.
    pub destination: IpAddr,
    /// The source's port.
    pub source_port: u16,
    /// The destination's port; for ICMP, type and code.
    pub destination_port: u16,
    /// Its mark.
    pub mark: u32,
}

impl Layout for Event {
    const SIZE: usize = 72;

    fn write(&self, to: &mut [u8]) {
        let wide = |address: IpAddr| match address {
            IpAddr::V4(four) => [&four.octets()[..], &[0; 12]].concat(),
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        let family = if self.source.is_ipv4() { 4 } else { 6 };
        To(to, 0)
            .put(&self.time.to_ne_bytes())
            .put(&self.rule.to_ne_bytes())
            .put(&self.device.to_ne_bytes())
            .put(&self.reason.to_ne_bytes())
            .put(&self.length.to_ne_bytes())
            .put(&[self.hook, family, self.protocol, self.kind.number()])
            .put(&wide(self.source))
            .put(&wide(self.destination))
            .put(&self.source_port.to_be_bytes())
            .put(&self.destination_port.to_be_bytes())
            .put(&self.mark.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (time, rule, device, reason, length) =
            (from.u64(), from.u64(), from.u32(), from.u32(), from.u32());
        let [hook, family, protocol, kind] = from.take();
        let mut address = || -> IpAddr {
            let bytes: [u8; 16] = from.take();
            if family == 4 { [bytes[0], bytes[1], bytes[2], bytes[3]].into() } else { bytes.into() }
        };
        let (source, destination) = (address(), address());
        let mut port = || u16::from_be_bytes(from.take());
        let (source_port, destination_port) = (port(), port());
        let kind = EventKind::from_number(kind);
        Self {
            time,
            rule,
            device,
            reason,
            length,
            hook,
            kind,
            protocol,
            source,
            destination,
            source_port,
            destination_port,
            mark: from.u32(),
        }
    }
}

/// Decodes a value of `bpfp_names`, which maps the rule ids of events to names.
#[must_use]
pub fn rule_name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_offset() {
        let event = Event {
            time: 1,
            rule: 2,
            device: 3,
            reason: 4,
            length: 5,
            hook: 1,
            kind: EventKind::LoggedDenied,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 0x0102,
            destination_port: 80,
            mark: 7,
        };
        let bytes = event.bytes();
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[20], bytes[24]), (1, 2, 3, 4, 5));
        assert_eq!(bytes[28..36], [1, 4, 6, 3, 10, 0, 0, 1]);
        assert_eq!((bytes[51], bytes[64..72].to_vec()), (2, vec![1, 2, 0, 80, 7, 0, 0, 0]));
        assert_eq!(Event::read(&bytes), event);
        let six = Event {
            source: [0xfd; 16].into(),
            destination: [0xfe; 16].into(),
            kind: EventKind::Unknown(9),
            ..event
        };
        assert_eq!(Event::read(&six.bytes()), six);
    }
}
