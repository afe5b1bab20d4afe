//! Encodes numbers, texts and networks in as few bytes as possible, for data that is kept by the hundred thousand.
//!
//! The reader only sees what this module wrote in the same process. It returns `None` for malformed bytes and never
//! panics, but it is not meant for data from elsewhere.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The byte before an IPv6 network; before an IPv4 network it is the prefix length.
const V6: u8 = 64;

/// Appends a number: seven bits per byte, the lowest first.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than 0x80 here")]
    out.push(number as u8);
}

/// Returns the number of bytes that a number takes.
pub(crate) fn number_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a text or other bytes, preceded by their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a network.
pub(crate) fn put_net(out: &mut Vec<u8>, net: &IpNet) {
    match net {
        IpNet::V4(net) => {
            out.push(net.prefix_len());
            out.extend_from_slice(&net.addr().octets());
        }
        IpNet::V6(net) => {
            out.extend_from_slice(&[V6, net.prefix_len()]);
            out.extend_from_slice(&net.addr().octets());
        }
    }
}

/// Reads what the functions of this module wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[cfg(test)]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        // Nearly all numbers here are less than 128.
        if let Some((&first, rest)) = self.0.split_first()
            && first < 0x80
        {
            self.0 = rest;
            return Some(first.into());
        }
        let mut number = 0;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    /// Reads a number that was written from a `u32`.
    #[inline]
    pub(crate) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads this many bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads bytes that are preceded by their length.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }

    #[inline]
    pub(crate) fn net(&mut self) -> Option<IpNet> {
        let first = self.byte()?;
        if first == V6 {
            let prefix = self.byte()?;
            let octets: [u8; 16] = self.take(16)?.try_into().ok()?;
            return Ipv6Net::new(Ipv6Addr::from(octets), prefix).ok().map(IpNet::V6);
        }
        let octets: [u8; 4] = self.take(4)?.try_into().ok()?;
        Ipv4Net::new(Ipv4Addr::from(octets), first).ok().map(IpNet::V4)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, number_len, put_bytes, put_net, put_number};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, bytes: Vec<u8>, v4: (u32, u8), v6: (u128, u8)) {
            let v4 = ipnet::Ipv4Net::new(v4.0.into(), v4.1 % 33).unwrap().into();
            let v6 = ipnet::Ipv6Net::new(v6.0.into(), v6.1 % 129).unwrap().into();
            let mut out = Vec::new();
            put_number(&mut out, number);
            prop_assert_eq!(out.len(), number_len(number));
            put_bytes(&mut out, &bytes);
            put_net(&mut out, &v4);
            put_net(&mut out, &v6);
            let mut reader = Reader(&out);
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.bytes(), Some(&bytes[..]));
            prop_assert_eq!(reader.net(), Some(v4));
            prop_assert_eq!(reader.net(), Some(v6));
            prop_assert!(reader.is_empty());
            prop_assert_eq!(reader.number(), None);
        }

        #[test]
        fn nonsense_does_not_panic(bytes: Vec<u8>) {
            let mut reader = Reader(&bytes);
            let mut left = bytes.len();
            while reader.number().is_some() && reader.bytes().is_some() && reader.net().is_some() {
                prop_assert!(reader.0.len() < left, "reading goes on");
                left = reader.0.len();
            }
        }
    }
}
