//! Walks blocks of header fields (RFC 7541) without knowing the contents of the tables: authorities that are spelled
//! out are found, and the rest is passed on unchanged. Pure.

use crate::huffman;
use http::uri::Authority;

/// The field's name, and its index in the static table.
const NAME: &[u8] = b":authority";
const PLACE: usize = 1;

/// The block with an authority that HTTP allows; `None` if the block cannot be parsed, or nothing needs to change.
///
/// A changed authority keeps its length: both sides' tables count lengths, and must agree on what fits.
pub(crate) fn admit(block: &[u8]) -> Option<Vec<u8>> {
    let mut admitted = Vec::with_capacity(block.len() + 64);
    let mut is_changed = false;
    let mut rest = Cursor(block);
    while let Some(first) = rest.0.first().copied() {
        let begin = rest.0;
        let kind = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (prefix, is_literal) = kind;
        let index = rest.number(prefix)?;
        let is_name = match (is_literal, index) {
            (true, 0) => rest.text()? == NAME,
            (true, index) => index == PLACE,
            (false, _) => false,
        };
        let head = begin.len() - rest.0.len();
        if is_literal {
            let value = rest.text();
            // Other fields may contain anything.
            let value = if is_name { value? } else { Vec::new() };
            if is_name && Authority::try_from(value.as_slice()).is_err() && !value.is_empty() {
                admitted.extend_from_slice(&begin[..head]);
                let name: Vec<u8> = value.into_iter().map(admitted_byte).collect();
                write_number(&mut admitted, name.len());
                admitted.extend_from_slice(&name);
                is_changed = true;
                continue;
            }
        }
        admitted.extend_from_slice(&begin[..begin.len() - rest.0.len()]);
    }
    is_changed.then_some(admitted)
}

/// Replaces a byte that is not allowed in a host by one that is.
fn admitted_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() || byte == b'.' { byte } else { b'-' }
}

/// Writes the length of a text without Huffman coding.
fn write_number(to: &mut Vec<u8>, mut number: usize) {
    const LIMIT: usize = 0x7f;
    let byte = |number: usize| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    if number < LIMIT {
        return to.push(byte(number));
    }
    to.push(byte(LIMIT));
    number -= LIMIT;
    while number >= 0x80 {
        to.push(byte(number & 0x7f | 0x80));
        number >>= 7;
    }
    to.push(byte(number));
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number whose first bits share a byte with other data.
    fn number(&mut self, prefix: u32) -> Option<usize> {
        let limit = (1 << prefix) - 1;
        let mut number = usize::from(self.byte()?) & limit;
        if number < limit {
            return Some(number);
        }
        // No number of a block that fits into a frame needs more.
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(self.byte()?);
            number += (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A text; the cursor moves behind it even if it cannot be decoded.
    fn text(&mut self) -> Option<Vec<u8>> {
        let is_coded = self.0.first()? & 0x80 != 0;
        let length = self.number(7)?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        if is_coded { huffman::decode(text) } else { Some(text.to_vec()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{admit, write_number};
    use proptest::prelude::*;

    fn field(head: &[u8], value: &[u8]) -> Vec<u8> {
        let mut field = head.to_vec();
        write_number(&mut field, value.len());
        field.extend_from_slice(value);
        field
    }

    #[test]
    fn paths_become_hosts_of_the_same_length_and_hosts_stay() {
        let path = b"/var/lib/kubelet/plugins_registry/csi.tigera.io-reg.sock";
        let host = b"-var-lib-kubelet-plugins-registry-csi.tigera.io-reg.sock";
        let escaped = b"%2Fcsi%2Fcsi.sock";
        // `:method: POST`, `:scheme: http`, a path, then the authority by index, as a literal, and never indexed.
        for (head, name, expected) in [
            (&[0x41][..], &path[..], Some(&host[..])),
            (&[0x01], path, Some(host)),
            (&[0x11], escaped, Some(b"-2Fcsi-2Fcsi.sock")),
            (b"\x40\x0a:authority", path, Some(host)),
            (&[0x41], b"localhost", None),
            (&[0x41], b"", None),
            (&[0x44], path, None),
        ] {
            let mut block = vec![0x83, 0x86];
            block.extend(field(&[0x44], b"/csi.v1.Node/NodeGetInfo"));
            let before = block.len();
            block.extend(field(head, name));
            block.extend([0xbe, 0x3f, 0x01]);
            let expected = expected.map(|name| {
                let mut changed = block[..before].to_vec();
                changed.extend(field(head, name));
                changed.extend([0xbe, 0x3f, 0x01]);
                changed
            });
            assert_eq!(admit(&block), expected, "{head:x?} {}", name.escape_ascii());
        }
    }

    #[test]
    fn huffman_coded_authorities_are_read() {
        // "/a": 011000 00011, padded with ones.
        let block = [0x41, 0x82, 0b0110_0000, 0b0111_1111];
        assert_eq!(admit(&block).as_deref(), Some(&[0x41, 0x02, b'-', b'a'][..]));
    }

    proptest! {
        #[test]
        fn no_block_makes_it_fall(block in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(admitted) = admit(&block) {
                // A second pass finds nothing to change.
                prop_assert_eq!(admit(&admitted), None);
            }
        }
    }
}
