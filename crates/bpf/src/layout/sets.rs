//! `cali_v4_ip_sets` and that of IPv6: members of sets, as Calico's programs and its tool read them. Our programs use
//! the tables of `bpf-policy` instead.

use super::{Family, From, To};
use crate::table::Layout;

/// A network, or an address with a port, in a set. The map's value is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberKey<F: Family> {
    /// The set's id.
    pub set: u64,
    /// The number of matching bits; for an address with a port, all of them.
    pub bits: u32,
    /// The address.
    pub address: F::Address,
    /// The port.
    pub port: u16,
    /// The port's protocol; 0 for a network without a port.
    pub protocol: u8,
}

impl<F: Family> MemberKey<F> {
    /// The size of the set's id in bits.
    const SET: u32 = 64;
    /// The size of the whole key in bits.
    #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
    const WHOLE: u32 = Self::SET + 8 * (F::WIDTH as u32 + 3);
    #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
    const ADDRESS: u32 = 8 * F::WIDTH as u32;
}

impl<F: Family> Layout for MemberKey<F> {
    const SIZE: usize = 16 + F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        let prefix = if self.protocol == 0 { Self::SET + self.bits } else { Self::WHOLE };
        To(to, 0)
            .put(&prefix.to_ne_bytes())
            .put(&self.set.to_be_bytes())
            .put(self.address.as_ref())
            .put(&self.port.to_ne_bytes())
            .put(&[self.protocol]);
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (prefix, set) = (from.u32(), u64::from_be_bytes(from.take()));
        Self {
            set,
            bits: prefix.saturating_sub(Self::SET).min(Self::ADDRESS),
            address: from.address::<F>(),
            port: from.u16(),
            protocol: from.u8(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{V4, V6};
    use super::*;

    #[test]
    fn members_have_calicos_bytes() {
        assert_eq!((MemberKey::<V4>::SIZE, MemberKey::<V6>::SIZE), (20, 32));
        let net = MemberKey::<V4> { set: 0x0102, bits: 24, address: [10, 0, 1, 0], port: 0, protocol: 0 };
        let expected = [88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 10, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(net.bytes(), expected);
        assert_eq!(MemberKey::read(&net.bytes()), net);
        let port = MemberKey::<V4> { set: 1, bits: 32, address: [10, 0, 1, 1], port: 80, protocol: 6 };
        let expected = [120, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 10, 0, 1, 1, 80, 0, 6, 0];
        assert_eq!(port.bytes(), expected);
        assert_eq!(MemberKey::read(&port.bytes()), port);
        let wide = MemberKey::<V6> { set: 1, bits: 128, address: [3; 16], port: 80, protocol: 17 };
        assert_eq!((wide.bytes()[0], wide.bytes()[28], wide.bytes()[30]), (216, 80, 17));
        assert_eq!(MemberKey::read(&wide.bytes()), wide);
    }
}
