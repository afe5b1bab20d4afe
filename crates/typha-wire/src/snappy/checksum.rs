//! CRC-32C as in snappy's frames. Uses eight tables, so that it does not slow down a snapshot of many megabytes.

const POLYNOMIAL: u32 = 0x82f6_3b78;

// Not a constant: a build without optimisation would copy all of it for each byte.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0u32;
    while byte < 256 {
        let mut sum = byte;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte as usize] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let last = tables[table - 1][byte];
            tables[table][byte] = last >> 8 ^ tables[0][(last & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

fn crc32c(bytes: &[u8]) -> u32 {
    let at = |table: usize, word: u32, shift: u32| TABLES[table][(word >> shift & 0xff) as usize];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = !0;
    for word in words {
        let low = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) ^ sum;
        let high = u32::from_le_bytes([word[4], word[5], word[6], word[7]]);
        sum = at(7, low, 0) ^ at(6, low, 8) ^ at(5, low, 16) ^ at(4, low, 24);
        sum ^= at(3, high, 0) ^ at(2, high, 8) ^ at(1, high, 16) ^ at(0, high, 24);
    }
    for byte in rest {
        sum = sum >> 8 ^ at(0, sum ^ u32::from(*byte), 0);
    }
    !sum
}

/// The checksum, rotated and offset as the format requires: a checksum of data that contains checksums must not be
/// trivial.
pub(super) fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // From RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&up), 0x46dd_794e);
    }
}
