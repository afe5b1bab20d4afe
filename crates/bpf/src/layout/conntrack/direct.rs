//! `bpfp_v4_direct`, `bpfp_v6_direct`: TCP connections between two workloads of this node that Linux does not track, by
//! the keys of their entries. These maps are ours; `bpf/direct.h` explains their purpose.

use super::super::{From, To};
use crate::table::Layout;

/// What is kept of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direct {
    /// When the SYN was seen, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// The policy of end A allowed it.
    pub a_approved: bool,
    /// The policy of end B allowed it.
    pub b_approved: bool,
    /// End B opened it.
    pub opened_by_b: bool,
    /// The handshake is complete.
    pub established: bool,
}

impl Layout for Direct {
    const SIZE: usize = 16;

    fn write(&self, to: &mut [u8]) {
        let bits = [self.a_approved, self.b_approved, self.opened_by_b, self.established];
        let bits: u32 = bits.iter().enumerate().map(|(place, bit)| u32::from(*bit) << place).sum();
        To(to, 0).put(&self.time.to_ne_bytes()).put(&bits.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (time, bits) = (from.u64(), from.u32());
        let bit = |place: u32| bits >> place & 1 == 1;
        Self { time, a_approved: bit(0), b_approved: bit(1), opened_by_b: bit(2), established: bit(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_match_the_programs() {
        let kept = Direct { time: 5, b_approved: true, established: true, ..Direct::default() };
        assert_eq!(kept.bytes(), [5, 0, 0, 0, 0, 0, 0, 0, 0b1010, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Direct::read(&kept.bytes()), kept);
        let other = Direct { a_approved: true, opened_by_b: true, ..Direct::default() };
        assert_eq!(other.bytes()[8], 0b101);
    }
}
