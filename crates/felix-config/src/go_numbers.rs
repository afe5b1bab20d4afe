//! Parses numbers as Go does: prefixes for the base, a leading zero for octal, underscores between digits.

/// An integer as `strconv.ParseInt(text, 0, 64)` reads it.
pub(crate) fn int(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = magnitude(digits, underscores_fit(text))?;
    let signed = if is_negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    i64::try_from(signed).ok()
}

/// An unsigned 32-bit integer as `strconv.ParseUint(text, 0, 32)` reads it.
pub(crate) fn uint32(text: &str) -> Option<u32> {
    magnitude(text, underscores_fit(text)).and_then(|magnitude| u32::try_from(magnitude).ok())
}

/// A decimal integer as `strconv.Atoi` reads it.
pub(crate) fn decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A floating-point number as `strconv.ParseFloat(text, 64)` reads it.
pub(crate) fn float(text: &str) -> Option<f64> {
    if text.contains('_') && !underscores_fit(text) {
        return None;
    }
    let plain = text.replace('_', "");
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let value = hexadecimal_float(digits)?;
        return Some(if plain.starts_with('-') { -value } else { value });
    }
    let is_word = |word: &str| unsigned.eq_ignore_ascii_case(word);
    if is_word("nan") {
        return (unsigned.len() == plain.len()).then_some(f64::NAN);
    }
    let value: f64 = plain.parse().ok()?;
    // A number too large for Go is an error, not infinity.
    (value.is_finite() || is_word("inf") || is_word("infinity")).then_some(value)
}

fn magnitude(text: &str, may_have_underscores: bool) -> Option<u64> {
    let (base, digits) = match text.as_bytes() {
        [] => return None,
        [b'0', letter, _, ..] if letter.eq_ignore_ascii_case(&b'x') => (16, &text[2..]),
        [b'0', letter, _, ..] if letter.eq_ignore_ascii_case(&b'o') => (8, &text[2..]),
        [b'0', letter, _, ..] if letter.eq_ignore_ascii_case(&b'b') => (2, &text[2..]),
        [b'0', ..] => (8, &text[1..]),
        _ => (10, text),
    };
    let mut value: u64 = 0;
    for character in digits.chars() {
        if character == '_' && may_have_underscores {
            continue;
        }
        let digit = character.to_digit(base)?;
        value = value.checked_mul(base.into())?.checked_add(digit.into())?;
    }
    Some(value)
}

/// Whether each underscore is between digits, or between the base's prefix and a digit.
fn underscores_fit(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text).as_bytes();
    let (mut after_digit, is_hexadecimal, digits) = match text {
        [b'0', letter, rest @ ..] if matches!(letter.to_ascii_lowercase(), b'b' | b'o' | b'x') => {
            (true, letter.eq_ignore_ascii_case(&b'x'), rest)
        }
        _ => (false, false, text),
    };
    let mut after_underscore = false;
    for byte in digits {
        if byte.is_ascii_digit() || (is_hexadecimal && byte.is_ascii_hexdigit()) {
            (after_digit, after_underscore) = (true, false);
        } else if *byte == b'_' {
            if !after_digit {
                return false;
            }
            (after_digit, after_underscore) = (false, true);
        } else {
            if after_underscore {
                return false;
            }
            after_digit = false;
        }
    }
    !after_underscore
}

/// Parses `digits[.digits]pEXPONENT`; the exponent of two is decimal and mandatory.
fn hexadecimal_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent = decimal(exponent)?.clamp(-10_000, 10_000);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0_f64;
    for character in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(character.to_digit(16)?);
    }
    let shift = exponent - 4 * i64::try_from(fraction.len()).ok()?;
    let value = value * 2.0_f64.powi(i32::try_from(shift).ok()?);
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_like_go() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("+7", Some(7)),
            ("0x1F", Some(31)),
            ("-0X10", Some(-16)),
            ("010", Some(8)),
            ("0o17", Some(15)),
            ("0b101", Some(5)),
            ("1_000", Some(1000)),
            ("0x_ff", Some(255)),
            ("0_7", Some(7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("09", None),
            ("0x", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1.5", None),
            (" 1", None),
            ("", None),
            ("-", None),
            ("x", None),
            ("١", None),
        ] {
            assert_eq!(int(text), expected, "{text}");
        }
        assert_eq!(uint32("0xffff0000"), Some(0xffff_0000));
        assert_eq!((uint32("-1"), uint32("0x100000000")), (None, None));
        assert_eq!(
            (decimal("+80"), decimal("0x10"), decimal("1_0"), decimal("")),
            (Some(80), None, None, None)
        );
    }

    #[test]
    fn floats_are_parsed_like_go() {
        for (text, expected) in [
            ("90", Some(90.0)),
            ("1.5", Some(1.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e+06", Some(1e6)),
            ("-2", Some(-2.0)),
            ("1_000.5", Some(1000.5)),
            ("0x1p4", Some(16.0)),
            ("-0x1.8p1", Some(-3.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e400", None),
            ("0x1", None),
            ("+nan", None),
            ("1__0", None),
            ("", None),
            ("90s", None),
            (" 90", None),
        ] {
            assert_eq!(float(text), expected, "{text}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
    }
}
