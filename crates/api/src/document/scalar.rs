//! The meaning of a plain YAML scalar: Go's YAML 1.1 interpretation, which Calico's tool applies to the same files.
//!
//! Quoted text is not handled here. Nor is the schema consulted: the walk does that.

use std::borrow::Cow;

/// The meaning of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    Integer(i64),
    /// Larger than an `i64`.
    Unsigned(u64),
    Float(f64),
    Text,
}

/// The meaning of unquoted `text`.
pub(super) fn meaning(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Meaning::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Meaning::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Meaning::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Meaning::Text;
    }
    let digits = text.replace('_', "");
    if let Some(integer) = integer(&digits) {
        return integer;
    }
    // Beyond the range of a double, Go leaves it as text.
    if is_decimal(&digits)
        && let Ok(float) = digits.parse::<f64>()
        && float.is_finite()
    {
        return Meaning::Float(float);
    }
    Meaning::Text
}

/// An integer with Go's prefixes: `0x`, `0o`, `0b`, and a leading zero for octal.
fn integer(text: &str) -> Option<Meaning> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = unsigned.to_ascii_lowercase();
    let (radix, digits) = if let Some(digits) = lower.strip_prefix("0x") {
        (16, digits)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (8, digits)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (2, digits)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    // Rust's parser would accept a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (i64::try_from(magnitude), negative) {
        (Ok(value), false) => Some(Meaning::Integer(value)),
        (Ok(value), true) => Some(Meaning::Integer(-value)),
        (Err(_), false) => Some(Meaning::Unsigned(magnitude)),
        (Err(_), true) => (magnitude == 1 << 63).then_some(Meaning::Integer(i64::MIN)),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    mantissa_fits
        && exponent.is_none_or(|exponent| {
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            !digits.is_empty() && all_digits(digits)
        })
}

/// The value of unquoted `text` in a field of text: Go interprets it first, and writes the result as text. `None` where
/// it has no special meaning.
pub(super) fn as_text(text: &str) -> Option<Cow<'_, str>> {
    Some(match meaning(text) {
        Meaning::Null => return None,
        Meaning::Text => Cow::Borrowed(text),
        Meaning::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        Meaning::Integer(value) => Cow::Owned(value.to_string()),
        Meaning::Unsigned(value) => Cow::Owned(value.to_string()),
        Meaning::Float(value) => Cow::Owned(float_text(value)),
    })
}

/// A number as Go's YAML library writes it into a field of text: with 32-bit precision, and with an exponent if it is
/// large or very small.
fn float_text(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Go loses the same precision")]
    let narrow = value as f32;
    if narrow.is_nan() {
        return "NaN".to_owned();
    }
    if narrow.is_infinite() {
        return if narrow > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{narrow:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => narrow.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_interpreted_like_in_go() {
        for (text, expected) in [
            ("", Meaning::Null),
            ("~", Meaning::Null),
            ("y", Meaning::Bool(true)),
            ("On", Meaning::Bool(true)),
            ("off", Meaning::Bool(false)),
            ("oN", Meaning::Text),
            ("0", Meaning::Integer(0)),
            ("-12", Meaning::Integer(-12)),
            ("+12", Meaning::Integer(12)),
            ("1_000", Meaning::Integer(1000)),
            ("010", Meaning::Integer(8)),
            ("08", Meaning::Float(8.0)),
            ("0x1F", Meaning::Integer(31)),
            ("0o17", Meaning::Integer(15)),
            ("0b101", Meaning::Integer(5)),
            ("-0b101", Meaning::Integer(-5)),
            ("18446744073709551615", Meaning::Unsigned(u64::MAX)),
            ("-9223372036854775808", Meaning::Integer(i64::MIN)),
            ("18446744073709551616", Meaning::Float(18_446_744_073_709_551_616.0)),
            ("1.5", Meaning::Float(1.5)),
            ("1.", Meaning::Float(1.0)),
            (".5", Meaning::Float(0.5)),
            ("1e3", Meaning::Float(1000.0)),
            (".", Meaning::Text),
            ("-", Meaning::Text),
            ("--1", Meaning::Text),
            ("0x", Meaning::Text),
            ("0x-1", Meaning::Text),
            ("1.2.3", Meaning::Text),
            ("10.0.0.0/8", Meaning::Text),
            ("9000:9010", Meaning::Text),
            ("2026-11-15", Meaning::Text),
            ("1m30s", Meaning::Text),
            ("1e", Meaning::Text),
            ("1e400", Meaning::Text),
            ("0b12", Meaning::Text),
            ("_1", Meaning::Text),
            ("0_7", Meaning::Integer(7)),
        ] {
            assert_eq!(meaning(text), expected, "{text}");
        }
        assert!(matches!(meaning(".nan"), Meaning::Float(value) if value.is_nan()));
    }

    #[test]
    fn text_fields_hold_gos_interpretation() {
        for (text, expected) in [
            ("web", "web"),
            ("true", "true"),
            ("yes", "true"),
            ("Off", "false"),
            ("12", "12"),
            ("-3", "-3"),
            ("+1", "1"),
            ("010", "8"),
            ("1_0", "10"),
            ("0x1f", "31"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.5", "1.5"),
            ("1.10", "1.1"),
            ("1.0", "1"),
            (".5", "0.5"),
            ("-0.25", "-0.25"),
            ("3.28", "3.28"),
            ("1e3", "1000"),
            ("123456.5", "123456.5"),
            ("1234567.5", "1.2345675e+06"),
            ("16777217.5", "1.6777218e+07"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1e300", "+Inf"),
            (".inf", "+Inf"),
            ("-.inf", "-Inf"),
            (".nan", "NaN"),
        ] {
            assert_eq!(as_text(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(as_text("~"), None);
    }
}
