//! Keys and values of maps that Calico's programs, tools and bootstrap container read and write, byte for byte.
//!
//! Addresses are in network order, ports and numbers in the processor's order; padding is zero and part of the key. The
//! maps for IPv4 and IPv6 have the same shape with addresses of 4 or 16 bytes: [`Family`].

pub mod conntrack;
pub mod devices;
pub mod event;
pub mod judged;
pub mod limits;
pub mod nat;
pub mod network;
pub mod sets;

/// An IP version, as the width of its addresses.
pub trait Family: Copy + std::fmt::Debug + Default + Ord + std::hash::Hash + 'static {
    /// An address as in packets.
    type Address: Copy + std::fmt::Debug + Default + Ord + std::hash::Hash + AsRef<[u8]> + AsMut<[u8]>;
    /// The size of an address in bytes.
    const WIDTH: usize;
    /// The number in names of maps: `v4`, `v6`.
    const NUMBER: u8;
}

/// IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct V4;

/// IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct V6;

impl Family for V4 {
    type Address = [u8; 4];
    const WIDTH: usize = 4;
    const NUMBER: u8 = 4;
}

impl Family for V6 {
    type Address = [u8; 16];
    const WIDTH: usize = 16;
    const NUMBER: u8 = 6;
}

/// Writes consecutive fields.
struct To<'a>(&'a mut [u8], usize);

impl To<'_> {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
        self
    }

    fn skip(&mut self, bytes: usize) -> &mut Self {
        self.1 += bytes;
        self
    }
}

/// Reads consecutive fields.
struct From<'a>(&'a [u8], usize);

impl From<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[self.1..self.1 + N]);
        self.1 += N;
        bytes
    }

    fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn address<F: Family>(&mut self) -> F::Address {
        let mut address = F::Address::default();
        address.as_mut().copy_from_slice(&self.0[self.1..self.1 + F::WIDTH]);
        self.1 += F::WIDTH;
        address
    }

    fn skip(&mut self, bytes: usize) -> &mut Self {
        self.1 += bytes;
        self
    }
}
