//! `bpfp_rate` and `bpfp_limit`: how many packets a workload may send or get in a second, and how many connections of TCP at a time.

use super::{From, To};
use crate::table::Layout;

/// Whose limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitKey {
    /// The workload's device.
    pub device: u32,
    /// Of what comes to the workload; else of what it sends.
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

/// Packets in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds from one packet to the next.
    pub interval: u64,
    /// Nanoseconds that packets may be before their time.
    pub ahead: u64,
    /// When the next one is due, by the clock that only goes forward; programs write it.
    pub next: u64,
}

impl Rate {
    /// So many packets in a second, and so many at once.
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

/// Connections at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// How many there may be.
    pub most: u32,
    /// How many there are; programs count, and the sweep of connections counts again.
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
    fn bytes_are_those_of_the_c_structures() {
        let key = LimitKey { device: 7, is_to_workload: true, family: 6 };
        assert_eq!(key.bytes(), [7, 0, 0, 0, 1, 0, 6, 0]);
        assert_eq!(LimitKey::read(&key.bytes()), key);
        let rate = Rate::new(1000, 5);
        assert_eq!((rate.interval, rate.ahead), (1_000_000, 4_000_000));
        assert_eq!(Rate::read(&rate.bytes()), rate);
        assert_eq!(Limit { most: 3, count: 1 }.bytes(), [3, 0, 0, 0, 1, 0, 0, 0]);
    }
}
