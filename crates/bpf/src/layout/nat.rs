//! `cali_v4_nat_fe3`, `…_nat_be`, `…_mglv2`, `…_nat_aff`, `…_srmsg`, `…_ct_nats` and those of IPv6: services.

use super::{Family, From, To};
use crate::table::Layout;

/// An address of a service, and the clients that it applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrontendKey<F: Family> {
    /// The number of matching bits of the source's address; the rest of the key always has to match.
    pub source_bits: u32,
    /// The service's address.
    pub address: F::Address,
    /// The service's port.
    pub port: u16,
    /// The service's protocol.
    pub protocol: u8,
    /// The source's network.
    pub source: F::Address,
}

impl<F: Family> FrontendKey<F> {
    /// The size in bits of the fields before the source's address.
    #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
    const FIXED: u32 = 8 * (F::WIDTH as u32 + 3);
}

impl<F: Family> Layout for FrontendKey<F> {
    const SIZE: usize = 8 + 2 * F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&(Self::FIXED + self.source_bits).to_ne_bytes())
            .put(self.address.as_ref())
            .put(&self.port.to_ne_bytes())
            .put(&[self.protocol])
            .put(self.source.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self {
            source_bits: from.u32().saturating_sub(Self::FIXED),
            address: from.address::<F>(),
            port: from.u16(),
            protocol: from.u8(),
            source: from.address::<F>(),
        }
    }
}

/// How a service handles packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontend {
    /// The service's id.
    pub id: u32,
    /// The number of its backends; [`Self::DROP`] for clients that it does not accept.
    pub count: u32,
    /// How many of the backends, at the start of the list, are on this node.
    pub local: u32,
    /// The seconds for which a client stays with its backend; 0 for none.
    pub affinity: u32,
    /// A combination of [`Self::EXTERNAL_LOCAL`] and the other flags.
    pub flags: u32,
}

impl Frontend {
    /// The count of a frontend that drops.
    pub const DROP: u32 = u32::MAX;
    /// Flag: packets from outside the cluster are sent to backends of this node only.
    pub const EXTERNAL_LOCAL: u32 = 0x1;
    /// Flag: packets from inside the cluster are sent to backends of this node only.
    pub const INTERNAL_LOCAL: u32 = 0x2;
    /// Flag: packets are left to the host.
    pub const EXCLUDED: u32 = 0x4;
    /// Flag: backends are chosen by the Maglev table.
    pub const MAGLEV: u32 = 0x8;
}

impl Layout for Frontend {
    const SIZE: usize = 20;

    fn write(&self, to: &mut [u8]) {
        let mut to = To(to, 0);
        for field in [self.id, self.count, self.local, self.affinity, self.flags] {
            to.put(&field.to_ne_bytes());
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let mut next = || from.u32();
        Self { id: next(), count: next(), local: next(), affinity: next(), flags: next() }
    }
}

/// A backend of a service by its index, also in the Maglev table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendKey {
    /// The service's id.
    pub id: u32,
    /// The backend's index.
    pub ordinal: u32,
}

impl Layout for BackendKey {
    const SIZE: usize = 8;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.id.to_ne_bytes()).put(&self.ordinal.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { id: from.u32(), ordinal: from.u32() }
    }
}

/// The address and port of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backend<F: Family> {
    /// Its address.
    pub address: F::Address,
    /// Its port.
    pub port: u16,
}

impl<F: Family> Layout for Backend<F> {
    const SIZE: usize = F::WIDTH + 4;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(self.address.as_ref()).put(&self.port.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { address: from.address::<F>(), port: from.u16() }
    }
}

/// A client that stays with its backend of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityKey<F: Family> {
    /// The service's address.
    pub address: F::Address,
    /// The service's port.
    pub port: u16,
    /// The service's protocol.
    pub protocol: u8,
    /// The client's address.
    pub client: F::Address,
}

impl<F: Family> Layout for AffinityKey<F> {
    const SIZE: usize = 8 + 2 * F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(self.address.as_ref())
            .put(&self.port.to_ne_bytes())
            .put(&[self.protocol])
            .skip(1)
            .put(self.client.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (address, port, protocol) = (from.address::<F>(), from.u16(), from.u8());
        Self { address, port, protocol, client: from.skip(1).address::<F>() }
    }
}

/// The backend of a client, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinity<F: Family> {
    /// The backend.
    pub backend: Backend<F>,
    /// Since when, in nanoseconds of the monotonic clock.
    pub since: u64,
}

impl<F: Family> Layout for Affinity<F> {
    const SIZE: usize = Backend::<F>::SIZE.next_multiple_of(8) + 8;

    fn write(&self, to: &mut [u8]) {
        let gap = Self::SIZE - 8 - Backend::<F>::SIZE;
        To(to, 0).put(&self.backend.bytes()).skip(gap).put(&self.since.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        Self { backend: Backend::read(&from[..Backend::<F>::SIZE]), since: From(from, Self::SIZE - 8).u64() }
    }
}

/// A socket and the backend that it got for a service; the key of `…_srmsg` has no protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketKey<F: Family, const WITH_PROTOCOL: bool> {
    /// The socket's cookie.
    pub cookie: u64,
    /// The backend's address.
    pub address: F::Address,
    /// The backend's port as in `bpf_sock_addr`: network order in 32 bits.
    pub port: u32,
    /// The protocol; 0 in `…_srmsg`.
    pub protocol: u8,
}

impl<F: Family, const WITH_PROTOCOL: bool> Layout for SocketKey<F, WITH_PROTOCOL> {
    const SIZE: usize = (12 + F::WIDTH + WITH_PROTOCOL as usize).next_multiple_of(8);

    fn write(&self, to: &mut [u8]) {
        let mut to = To(to, 0);
        to.put(&self.cookie.to_ne_bytes()).put(self.address.as_ref()).put(&self.port.to_ne_bytes());
        if WITH_PROTOCOL {
            to.put(&[self.protocol]);
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (cookie, address, port) = (from.u64(), from.address::<F>(), from.u32());
        Self { cookie, address, port, protocol: if WITH_PROTOCOL { from.u8() } else { 0 } }
    }
}

/// The service that a socket addressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketService<F: Family> {
    /// The service's address.
    pub address: F::Address,
    /// The service's port as in `bpf_sock_addr`.
    pub port: u32,
}

impl<F: Family> Layout for SocketService<F> {
    const SIZE: usize = F::WIDTH + 4;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(self.address.as_ref()).put(&self.port.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { address: from.address::<F>(), port: from.u32() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{V4, V6};
    use super::*;

    #[test]
    fn sizes_are_calicos() {
        assert_eq!((FrontendKey::<V4>::SIZE, FrontendKey::<V6>::SIZE, Frontend::SIZE), (16, 40, 20));
        assert_eq!((BackendKey::SIZE, Backend::<V4>::SIZE, Backend::<V6>::SIZE), (8, 8, 20));
        assert_eq!((AffinityKey::<V4>::SIZE, AffinityKey::<V6>::SIZE), (16, 40));
        assert_eq!((Affinity::<V4>::SIZE, Affinity::<V6>::SIZE), (16, 32));
        assert_eq!((SocketKey::<V4, false>::SIZE, SocketKey::<V6, false>::SIZE), (16, 32));
        assert_eq!((SocketKey::<V4, true>::SIZE, SocketKey::<V6, true>::SIZE), (24, 32));
        assert_eq!((SocketService::<V4>::SIZE, SocketService::<V6>::SIZE), (8, 20));
    }

    #[test]
    fn every_field_has_its_offset() {
        let key = FrontendKey::<V4> {
            source_bits: 24,
            address: [10, 96, 0, 1],
            port: 443,
            protocol: 6,
            source: [10, 0, 1, 0],
        };
        assert_eq!(key.bytes(), [80, 0, 0, 0, 10, 96, 0, 1, 0xbb, 1, 6, 10, 0, 1, 0, 0]);
        assert_eq!(FrontendKey::read(&key.bytes()), key);
        assert_eq!(FrontendKey::<V6>::default().bytes()[0], 152);
        let value = Frontend { id: 1, count: Frontend::DROP, local: 2, affinity: 3, flags: 4 };
        assert_eq!(value.bytes(), [1, 0, 0, 0, 255, 255, 255, 255, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(Frontend::read(&value.bytes()), value);
        let local = Frontend::EXTERNAL_LOCAL | Frontend::INTERNAL_LOCAL << 2;
        assert_eq!((local, Frontend::EXCLUDED, Frontend::MAGLEV), (0x9, 0x4, 0x8));
        let key = BackendKey { id: 1, ordinal: 2 };
        assert_eq!(key.bytes(), [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(BackendKey::read(&key.bytes()), key);
        let backend = Backend::<V4> { address: [1, 2, 3, 4], port: 0x1f90 };
        assert_eq!(backend.bytes(), [1, 2, 3, 4, 0x90, 0x1f, 0, 0]);
        let key = AffinityKey::<V4> { address: [1; 4], port: 2, protocol: 3, client: [4; 4] };
        assert_eq!(key.bytes(), [1, 1, 1, 1, 2, 0, 3, 0, 4, 4, 4, 4, 0, 0, 0, 0]);
        assert_eq!(AffinityKey::read(&key.bytes()), key);
        let value = Affinity { backend, since: 5 };
        assert_eq!(value.bytes(), [1, 2, 3, 4, 0x90, 0x1f, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Affinity::read(&value.bytes()), value);
        let wide = Affinity::<V6> { since: 6, ..Affinity::default() };
        assert_eq!((wide.bytes()[24], Affinity::read(&wide.bytes())), (6, wide));
        let key = SocketKey::<V4, true> { cookie: 1, address: [2; 4], port: 0x5000, protocol: 6 };
        assert_eq!(key.bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 0, 0x50, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SocketKey::read(&key.bytes()), key);
        let service = SocketService::<V4> { address: [1; 4], port: 0x5000 };
        assert_eq!((service.bytes()[5], SocketService::read(&service.bytes())), (0x50, service));
    }
}
