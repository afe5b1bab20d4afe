//! Messages as bytes: a writer that nests attributes, and a reader that never fails on what it does not know.
//!
//! The kernel is trusted to frame its messages; lengths are checked all the same, and an attribute of an unexpected
//! length reads as absent.

use netlink_packet_core::NlasIterator;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The flag of an attribute that holds attributes.
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type that hold its number.
const NUMBER: u16 = 0x3fff;
/// The length of an attribute's own header.
const HEADER: usize = 4;

/// The payload of a message under construction.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Starts a payload with this family header.
    #[must_use]
    pub fn new(header: &[u8]) -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(512) };
        writer.bytes.extend_from_slice(header);
        writer.pad();
        writer
    }

    /// Adds an attribute of any bytes.
    pub fn bytes(&mut self, number: u16, value: &[u8]) -> &mut Self {
        self.parts(number, value, &[])
    }

    fn parts(&mut self, number: u16, value: &[u8], end: &[u8]) -> &mut Self {
        // No caller has an attribute near the limit of 64 KiB; the kernel rejects a longer one by its own check.
        let length = u16::try_from(value.len() + end.len() + HEADER).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(end);
        self.pad();
        self
    }

    /// Adds an attribute of one byte.
    pub fn u8(&mut self, number: u16, value: u8) -> &mut Self {
        self.bytes(number, &[value])
    }

    /// Adds an attribute of two bytes.
    pub fn u16(&mut self, number: u16, value: u16) -> &mut Self {
        self.bytes(number, &value.to_ne_bytes())
    }

    /// Adds an attribute of two bytes in network order.
    pub fn u16_be(&mut self, number: u16, value: u16) -> &mut Self {
        self.bytes(number, &value.to_be_bytes())
    }

    /// Adds an attribute of four bytes.
    pub fn u32(&mut self, number: u16, value: u32) -> &mut Self {
        self.bytes(number, &value.to_ne_bytes())
    }

    /// Adds an attribute of four bytes in network order.
    pub fn u32_be(&mut self, number: u16, value: u32) -> &mut Self {
        self.bytes(number, &value.to_be_bytes())
    }

    /// Adds an attribute of eight bytes in network order.
    pub fn u64_be(&mut self, number: u16, value: u64) -> &mut Self {
        self.bytes(number, &value.to_be_bytes())
    }

    /// Adds an attribute of text, with the zero byte that ends it.
    pub fn text(&mut self, number: u16, value: &str) -> &mut Self {
        self.parts(number, value.as_bytes(), &[0])
    }

    /// Adds an attribute that holds an address.
    pub fn address(&mut self, number: u16, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(address) => self.bytes(number, &address.octets()),
            IpAddr::V6(address) => self.bytes(number, &address.octets()),
        }
    }

    /// Adds an attribute that holds attributes, marked as such (`NLA_F_NESTED`).
    pub fn nested(&mut self, number: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.nested_plain(number | NESTED, fill)
    }

    /// Adds an attribute that holds attributes, without the mark: the older route families do not set it.
    pub fn nested_plain(&mut self, number: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.bytes.get_mut(start..start + 2) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        self.pad();
        self
    }

    /// Adds bytes that are not an attribute (a family header inside an attribute).
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    /// The finished payload.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(HEADER), 0);
    }
}

/// One attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its number, without the flag bits.
    pub number: u16,
    /// What it holds.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Its value as one byte.
    #[must_use]
    pub fn u8(&self) -> Option<u8> {
        self.value.first().copied().filter(|_| self.value.len() == 1)
    }

    /// Its value as two bytes.
    #[must_use]
    pub fn u16(&self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_ne_bytes)
    }

    /// Its value as two bytes in network order.
    #[must_use]
    pub fn u16_be(&self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_be_bytes)
    }

    /// Its value as four bytes.
    #[must_use]
    pub fn u32(&self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_ne_bytes)
    }

    /// Its value as four bytes with a sign.
    #[must_use]
    pub fn i32(&self) -> Option<i32> {
        self.value.try_into().ok().map(i32::from_ne_bytes)
    }

    /// Its value as four bytes in network order.
    #[must_use]
    pub fn u32_be(&self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    /// Its value as eight bytes in network order.
    #[must_use]
    pub fn u64_be(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }

    /// Its value as text, up to the zero byte that ends it.
    #[must_use]
    pub fn str(&self) -> Option<&'a str> {
        let end = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        std::str::from_utf8(&self.value[..end]).ok()
    }

    /// Its value as an owned text, up to the zero byte that ends it.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.str().map(str::to_owned)
    }

    /// Its value as an address, by its length.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        if let Ok(octets) = <[u8; 4]>::try_from(self.value) {
            return Some(Ipv4Addr::from(octets).into());
        }
        <[u8; 16]>::try_from(self.value).ok().map(|octets| Ipv6Addr::from(octets).into())
    }

    /// The attributes nested in it.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'a>> + use<'a> {
        attributes(self.value)
    }
}

/// The attributes of a payload after its family header. The iteration ends at the first one that cannot be read.
pub fn attributes(payload: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    let mut rest = NlasIterator::new(payload);
    let mut start = 0_usize;
    std::iter::from_fn(move || {
        let found = rest.next()?.ok()?;
        let length = usize::from(found.length());
        let value = payload.get(start + HEADER..start + length)?;
        let number = found.kind() & NUMBER;
        start += length.next_multiple_of(HEADER);
        Some(Attribute { number, value })
    })
}

/// Splits off the first `N` bytes of a payload; `None` when it is shorter.
#[must_use]
pub fn split_header<const N: usize>(payload: &[u8]) -> Option<(&[u8; N], &[u8])> {
    payload.split_first_chunk::<N>()
}

/// Four bytes of a header.
#[must_use]
pub fn header_u32(header: &[u8], offset: usize) -> u32 {
    header.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Writer, attributes};

    #[test]
    fn written_attributes_read_back() {
        let mut writer = Writer::new(&[1, 2, 3]);
        writer.u8(1, 7).text(2, "eth0").nested(3, |inner| {
            inner.u32(1, 9).u16_be(2, 0x1234);
        });
        let bytes = writer.finish();
        assert_eq!(&bytes[..4], [1, 2, 3, 0]);
        let found: Vec<Attribute<'_>> = attributes(&bytes[4..]).collect();
        assert_eq!(found[0].u8(), Some(7));
        assert_eq!(found[1].text().as_deref(), Some("eth0"));
        let inner: Vec<Attribute<'_>> = found[2].attributes().collect();
        assert_eq!((inner[0].u32(), inner[1].u16_be()), (Some(9), Some(0x1234)));
        assert_eq!(found.len(), 3);
        // Of another length than requested: absent, not wrong.
        assert_eq!((found[1].u32(), found[0].address()), (None, None));
    }

    #[test]
    fn truncation_ends_the_iteration() {
        let mut writer = Writer::default();
        writer.u32(1, 1).u32(2, 2);
        let bytes = writer.finish();
        for end in 0..bytes.len() {
            assert!(attributes(&bytes[..end]).count() <= 1 + usize::from(end == bytes.len()));
        }
        // A length below the header's own ends it too.
        assert_eq!(attributes(&[2, 0, 1, 0, 8, 0, 1, 0, 0, 0, 0, 0]).count(), 0);
    }
}
