//! Kubernetes quantities (`10M`, `1.5Gi`, `2e3`) as whole numbers.
//!
//! Supports only what limits need: the value, rounded away from zero as by Kubernetes' own `Value()`, and capped at the
//! largest `i64`. Unit and precision are lost: nothing here prints a quantity.

/// The number of digits that are read on each side of the point; further ones could only say "huge" or "a little more".
const KEPT_DIGITS: usize = 18;

/// Converts a quantity into a whole number, rounded away from zero.
///
/// # Errors
/// A sentence saying that the text is not a quantity.
pub fn parse_quantity(text: &str) -> Result<i64, String> {
    let wrong = || format!("'{text}' is not a quantity");
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(wrong());
    }
    let scale = scale(suffix).ok_or_else(wrong)?;
    let magnitude = magnitude(whole, fraction, scale);
    Ok(if negative { -magnitude } else { magnitude })
}

/// The factor of a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Two to this power.
    Binary(u32),
    /// Ten to this power.
    Decimal(i32),
}

fn scale(suffix: &str) -> Option<Scale> {
    let scale = match suffix {
        "" => Scale::Decimal(0),
        "n" => Scale::Decimal(-9),
        "u" => Scale::Decimal(-6),
        "m" => Scale::Decimal(-3),
        "k" => Scale::Decimal(3),
        "M" => Scale::Decimal(6),
        "G" => Scale::Decimal(9),
        "T" => Scale::Decimal(12),
        "P" => Scale::Decimal(15),
        "E" => Scale::Decimal(18),
        "Ki" => Scale::Binary(10),
        "Mi" => Scale::Binary(20),
        "Gi" => Scale::Binary(30),
        "Ti" => Scale::Binary(40),
        "Pi" => Scale::Binary(50),
        "Ei" => Scale::Binary(60),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            Scale::Decimal(digits.parse().ok()?)
        }
    };
    Some(scale)
}

/// Returns `whole.fraction` times the scale, rounded up and capped.
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> i64 {
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() && fraction.is_empty() {
        return 0;
    }
    if whole.len() > KEPT_DIGITS && !matches!(scale, Scale::Decimal(power) if power < 0) {
        return i64::MAX;
    }
    if whole.len() > KEPT_DIGITS * 2 {
        return i64::MAX;
    }
    let kept = &fraction[..fraction.len().min(KEPT_DIGITS)];
    // Digits that are cut off only matter for rounding up, which happens anyway if anything is left over.
    let cut = u128::from(kept.len() < fraction.len());
    let fraction_power = u32::try_from(kept.len()).unwrap_or(0);
    let digits = |text: &str| text.parse::<u128>().unwrap_or(0);
    let Some(units) =
        digits(whole).checked_mul(10_u128.pow(fraction_power)).map(|units| units + digits(kept))
    else {
        return i64::MAX;
    };
    // The value is units * scale / 10^fraction_power.
    let (factor, divisor) = match scale {
        Scale::Binary(power) => (Some(1_u128 << power), Some(1)),
        Scale::Decimal(power) if power >= 0 => (10_u128.checked_pow(power.unsigned_abs()), Some(1)),
        Scale::Decimal(power) => (Some(1), 10_u128.checked_pow(power.unsigned_abs())),
    };
    let Some(divisor) = divisor.and_then(|divisor| divisor.checked_mul(10_u128.pow(fraction_power))) else {
        return 1;
    };
    let Some(product) = factor.and_then(|factor| units.checked_mul(factor)) else {
        return i64::MAX;
    };
    let rounded = product.saturating_add(cut).div_ceil(divisor);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::parse_quantity;

    #[test]
    fn quantities_become_whole_numbers() {
        let table: &[(&str, i64)] = &[
            ("0", 0),
            ("1", 1),
            ("1k", 1_000),
            ("10M", 10_000_000),
            ("1.01k", 1_010),
            ("1.01P", 1_010_000_000_000_000),
            ("4Gi", 4_294_967_296),
            ("1.5Ki", 1_536),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("25e-1", 3),
            ("1500m", 2),
            ("1u", 1),
            ("0.0000000000000000000000001", 1),
            ("-1.2k", -1_200),
            ("+7", 7),
            ("000012", 12),
            (".5", 1),
            ("5.", 5),
            ("1E", 1_000_000_000_000_000_000),
            ("100E", i64::MAX),
            ("99999999999999999999999999", i64::MAX),
            ("99999999999999999999999999999999999999999999999999999999999999", i64::MAX),
            ("9e99", i64::MAX),
            ("1e-99", 1),
            ("9223372036854775807", i64::MAX),
        ];
        for (text, expected) in table {
            assert_eq!(parse_quantity(text), Ok(*expected), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_quantity_is_refused() {
        for text in [
            "",
            "-",
            ".",
            "1.2.3",
            "k",
            "1kk",
            "1 k",
            "ten",
            "1e",
            "1e+",
            "1ee3",
            "0x10",
            "1K",
            "−1",
            "1e99999999999",
        ] {
            assert!(parse_quantity(text).is_err(), "{text}");
        }
    }
}
