//! `bpfp_rate` and `bpfp_limit`: the packet rate of a workload in either direction, and its number of concurrent TCP
//! connections.

use super::{From, To};
use crate::table::Layout;

/// The subject of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitKey {
    /// The index of the workload's device.
    pub device: u32,
    /// The limit is for traffic to the workload; otherwise for traffic from it.
    pub is_to_workload: bool,
    /// 4 or 6.
    pub family: u16,
}

impl Layout for LimitKey {
    const SIZE: usize = 8;

    fn write(&self, to: &mut [u8]) {
        let direction = u16::from(self.is_to_workload);
        To(to, 0)
            .put(&self.device.to_ne_bytes())
            .put(&direction.to_ne_bytes())
            .put(&self.family.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { device: from.u32(), is_to_workload: from.u16() != 0, family: from.u16() }
    }
}

/// A packet rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// The interval between packets in nanoseconds.
    pub interval: u64,
    /// How far packets may be ahead of their time, in nanoseconds.
    pub ahead: u64,
    /// When the next packet is due, in nanoseconds of the monotonic clock; updated by programs.
    pub next: u64,
}

impl Rate {
    /// A limit of `rate` packets per second with bursts of `burst` packets.
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> Self {
        let interval = 1_000_000_000 / rate.max(1);
        Self { interval, ahead: interval.saturating_mul(burst.max(1) - 1), next: 0 }
    }
}

impl Layout for Rate {
    const SIZE: usize = 24;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&self.interval.to_ne_bytes())
            .put(&self.ahead.to_ne_bytes())
            .put(&self.next.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { interval: from.u64(), ahead: from.u64(), next: from.u64() }
    }
}

/// A limit of concurrent connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number.
    pub most: u32,
    /// The current number; programs update it, and the sweep of connections recounts.
    pub count: u32,
}

impl Layout for Limit {
    const SIZE: usize = 8;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.most.to_ne_bytes()).put(&self.count.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { most: from.u32(), count: from.u32() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_match_the_c_structures() {
        let key = LimitKey { device: 7, is_to_workload: true, family: 6 };
        assert_eq!(key.bytes(), [7, 0, 0, 0, 1, 0, 6, 0]);
        assert_eq!(LimitKey::read(&key.bytes()), key);
        let rate = Rate::new(1000, 5);
        assert_eq!((rate.interval, rate.ahead), (1_000_000, 4_000_000));
        assert_eq!(Rate::read(&rate.bytes()), rate);
        assert_eq!(Limit { most: 3, count: 1 }.bytes(), [3, 0, 0, 0, 1, 0, 0, 0]);
    }
}
