//! Integers: one byte below 128, otherwise a byte that gives the length, counting down from 256, then that many bytes,
//! big-endian.

use crate::Error;

/// Splits the first number off `input`. `None` when the number is incomplete.
///
/// # Errors
/// When the number has more than eight bytes.
#[inline]
pub fn split_uint(input: &[u8]) -> Result<Option<(u64, &[u8])>, Error> {
    let Some((&first, rest)) = input.split_first() else { return Ok(None) };
    if first < 128 {
        return Ok(Some((u64::from(first), rest)));
    }
    let count = first.wrapping_neg();
    if count > 8 {
        return Err(Error::WideInteger(count));
    }
    Ok(rest
        .split_at_checked(usize::from(count))
        .map(|(digits, rest)| (digits.iter().fold(0, |number, digit| number << 8 | u64::from(*digit)), rest)))
}

/// Appends an unsigned number in its shortest form.
pub fn put_uint(out: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        Ok(small) if small < 128 => out.push(small),
        _ => {
            let bytes = number.to_be_bytes();
            let digits = &bytes[number.leading_zeros() as usize / 8..];
            let count = u8::try_from(digits.len()).unwrap_or(8);
            out.push(count.wrapping_neg());
            out.extend_from_slice(digits);
        }
    }
}

/// Appends a signed number: the sign is the lowest bit.
pub fn put_int(out: &mut Vec<u8>, number: i64) {
    put_uint(out, zigzag(number));
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn zigzag(number: i64) -> u64 {
    let shifted = number.cast_unsigned() << 1;
    if number < 0 { !shifted } else { shifted }
}

/// Decodes a signed number from its unsigned form.
#[must_use]
pub fn unzigzag(number: u64) -> i64 {
    let half = (number >> 1).cast_signed();
    if number & 1 == 1 { !half } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_numbers() {
        for (number, bytes) in [
            (0, vec![0]),
            (127, vec![127]),
            (128, vec![0xff, 128]),
            (255, vec![0xff, 255]),
            (256, vec![0xfe, 1, 0]),
            (0xffff_ffff, vec![0xfc, 255, 255, 255, 255]),
            (u64::MAX, vec![0xf8, 255, 255, 255, 255, 255, 255, 255, 255]),
        ] {
            let mut out = Vec::new();
            put_uint(&mut out, number);
            assert_eq!(out, bytes, "{number}");
            assert_eq!(split_uint(&bytes), Ok(Some((number, &[][..]))));
            assert_eq!(split_uint(&bytes[..bytes.len() - 1]), Ok(None));
        }
        assert_eq!(split_uint(&[0xf7, 1]), Err(Error::WideInteger(9)));
        assert_eq!(split_uint(&[0x80]), Err(Error::WideInteger(128)));
        // Go writes the shortest form, but reads any.
        assert_eq!(split_uint(&[0xfe, 0, 5, 9]), Ok(Some((5, &[9][..]))));
    }

    #[test]
    fn signed_numbers() {
        for number in [0, 1, -1, 63, 64, -64, -65, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_int(&mut out, number);
            let (unsigned, _) = split_uint(&out).unwrap().unwrap();
            assert_eq!(unzigzag(unsigned), number);
        }
        let mut out = Vec::new();
        put_int(&mut out, -65);
        assert_eq!(out, [0xff, 129]);
    }
}
