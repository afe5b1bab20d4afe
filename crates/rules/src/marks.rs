//! The meaning of the bits of a packet's mark.

use crate::bpf_marks;

/// The error for a mask without enough bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// The mask has too few bits.
    #[error("the mark mask {mask:#x} has too few bits for {what}; {needed} are needed")]
    TooFewBits {
        /// The mask.
        mask: u32,
        /// The purpose of the missing bits.
        what: &'static str,
        /// The total number of bits that are needed.
        needed: u32,
    },
    /// The mask lacks bits that eBPF programs use.
    #[error(
        "the mark mask {mask:#x} must have all bits of {needed:#x}, by which eBPF programs and rules talk"
    )]
    NotForBpf {
        /// The mask.
        mask: u32,
        /// The bits that programs use.
        needed: u32,
    },
}

/// The bits. Those from `accept` to `scratch1` are single bits, all different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Policy allowed the packet.
    pub accept: u32,
    /// Policy passed the packet to the next tier.
    pub pass: u32,
    /// Policy denied the packet.
    pub drop: u32,
    /// All blocks of a rule matched; outside of rules: the packet comes from a workload.
    pub scratch0: u32,
    /// The current block of a rule matched.
    pub scratch1: u32,
    /// The packet belongs to WireGuard; 0 without WireGuard.
    pub wireguard: u32,
    /// The endpoint that a packet came from (IPVS): all remaining bits.
    pub endpoint: u32,
    /// The value of `endpoint` for packets that did not come from one of our endpoints.
    pub non_calico_endpoint: u32,
}

impl Marks {
    /// Takes bits from the mask, beginning with the lowest.
    ///
    /// # Errors
    /// When the mask has too few bits.
    pub fn from_mask(mask: u32, wireguard: bool, ipvs: bool) -> Result<Self, MarkError> {
        let needed = 5 + u32::from(wireguard) + u32::from(ipvs);
        if mask.count_ones() < needed {
            let what = match (wireguard, ipvs) {
                (false, false) => "policy",
                (true, false) => "policy and WireGuard",
                (_, true) => "policy and kube-proxy's IPVS mode",
            };
            return Err(MarkError::TooFewBits { mask, what, needed });
        }
        let mut rest = mask;
        let mut next = || {
            let lowest = rest & rest.wrapping_neg();
            rest &= !lowest;
            lowest
        };
        let (accept, pass, drop, scratch0, scratch1) = (next(), next(), next(), next(), next());
        let wireguard = if wireguard { next() } else { 0 };
        Ok(Self {
            accept,
            pass,
            drop,
            scratch0,
            scratch1,
            wireguard,
            endpoint: rest,
            non_calico_endpoint: rest & rest.wrapping_neg(),
        })
    }

    /// Takes bits from those that eBPF programs leave free.
    ///
    /// # Errors
    /// When the mask lacks bits of programs, or has too few others.
    pub fn beside_bpf(mask: u32, wireguard: bool) -> Result<Self, MarkError> {
        if mask & bpf_marks::MASK != bpf_marks::MASK {
            return Err(MarkError::NotForBpf { mask, needed: bpf_marks::MASK });
        }
        Self::from_mask(mask & !bpf_marks::MASK, wireguard, false)
    }

    /// The bits that are cleared before policy is evaluated; that of `drop` is not one of them.
    #[must_use]
    pub const fn cleared(&self) -> u32 {
        self.accept | self.pass | self.scratch0 | self.scratch1
    }
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            accept: 0x1_0000,
            pass: 0x2_0000,
            drop: 0x4_0000,
            scratch0: 0x8_0000,
            scratch1: 0x10_0000,
            wireguard: 0,
            endpoint: 0xffe0_0000,
            non_calico_endpoint: 0x20_0000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_bits_first() {
        assert_eq!(Marks::from_mask(0xffff_0000, false, false), Ok(Marks::default()));
        let marks = Marks::from_mask(0xffff_0000, true, true).unwrap_or_default();
        assert_eq!(
            (marks.wireguard, marks.endpoint, marks.non_calico_endpoint),
            (0x20_0000, 0xffc0_0000, 0x40_0000)
        );
        assert_eq!(Marks::default().cleared(), 0x1b_0000);
    }

    #[test]
    fn programs_have_bits_of_their_own() {
        let marks = Marks::beside_bpf(0xffff_0000, true).unwrap_or_default();
        assert_eq!((marks.accept, marks.scratch0), (0x1_0000, 0x8_0000));
        assert_eq!((marks.scratch1, marks.wireguard), (0x2000_0000, 0x4000_0000));
        assert_eq!(marks.cleared() & bpf_marks::MASK, 0);
        assert!(matches!(Marks::beside_bpf(0x0fff_0000, false), Err(MarkError::NotForBpf { .. })));
        assert!(matches!(Marks::beside_bpf(0x1ff0_0000, false), Err(MarkError::TooFewBits { .. })));
    }

    #[test]
    fn needs_that_cannot_be_met_are_errors() {
        assert!(Marks::from_mask(0x1f, false, false).is_ok());
        assert!(Marks::from_mask(0x0f, false, false).is_err());
        assert!(Marks::from_mask(0x1f, true, false).is_err());
        assert!(Marks::from_mask(0x3f, true, false).is_ok());
        assert!(Marks::from_mask(0x3f, false, true).is_ok());
        assert!(Marks::from_mask(0x3f, true, true).is_err());
    }
}
