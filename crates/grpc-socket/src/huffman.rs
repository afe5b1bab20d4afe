//! Decodes texts of HTTP/2's header fields, which may be Huffman-coded (RFC 7541, appendix B).
//!
//! The code is canonical: the lengths define it completely, as shorter codes and smaller symbols come first. Written by
//! hand because the crates that implement it do not expose it.

/// The code length of each byte in bits.
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];

/// The length of the longest code.
const LONGEST: u8 = 30;

/// Decodes a text; `None` if it is not valid.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len() * 2);
    let (mut code, mut length) = (0_u32, 0_u8);
    for bit in text.iter().flat_map(|byte| (0..8).rev().map(move |place| u32::from(byte >> place & 1))) {
        code = code << 1 | bit;
        length += 1;
        if length > LONGEST {
            return None;
        }
        if let Some(byte) = symbol(code, length) {
            decoded.push(byte);
            (code, length) = (0, 0);
        }
    }
    // The rest is less than eight bits of the end-of-string code, which is all ones.
    (length < 8 && code == (1 << length) - 1).then_some(decoded)
}

/// The byte with this code.
fn symbol(code: u32, length: u8) -> Option<u8> {
    let count =
        |bits: u8| u32::try_from(BITS.iter().filter(|have| **have == bits).count()).unwrap_or_default();
    // The first code of each length follows the last one of the length before.
    let first = (1..length).fold(0, |first, bits| (first + count(bits)) << 1);
    let place = usize::try_from(code.checked_sub(first)?).ok()?;
    (0..=u8::MAX).filter(|byte| BITS[usize::from(*byte)] == length).nth(place)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn examples_of_the_standard_and_invalid_codes() {
        // RFC 7541, C.4.1 to C.4.3, C.6.1.
        for (text, expected) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], "custom-value"),
            (&[0x64, 0x02], "302"),
            (&[], ""),
        ] {
            assert_eq!(decode(text).as_deref(), Some(expected.as_bytes()));
        }
        // A padding of zeros, a padding of a whole byte, the end-of-string code.
        for text in [&[0x60][..], &[0x64, 0x02, 0xff], &[0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(decode(text), None, "{text:x?}");
        }
    }
}
