//! Durations as Go writes them, such as `1m30s`.

use crate::text::text_newtype;
use std::fmt::Write as _;

text_newtype! {
    /// A length of time such as `90s` or `1h30m`; kept as written.
    Duration => std::time::Duration, parse, {"type": "string", (crate::schema::READS): "text"}
}

impl Duration {
    /// A duration in Go's spelling.
    #[must_use]
    pub fn from_std(duration: std::time::Duration) -> Self {
        Self::new(go_duration(duration))
    }
}

/// A duration in the spelling that Go's `time.Duration` prints.
#[must_use]
pub fn go_duration(duration: std::time::Duration) -> String {
    let nanos = duration.as_nanos();
    let with_unit = |per_unit: u128, unit: &str| {
        let (whole, fraction) = (nanos / per_unit, nanos % per_unit);
        let mut text = whole.to_string();
        if fraction != 0 {
            let width = per_unit.ilog10() as usize;
            let _ = write!(text, ".{fraction:0width$}");
            text.truncate(text.trim_end_matches('0').len());
        }
        text + unit
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => with_unit(1, "ns"),
        1_000..1_000_000 => with_unit(1_000, "µs"),
        1_000_000..1_000_000_000 => with_unit(1_000_000, "ms"),
        _ => {
            let seconds = duration.as_secs();
            let mut text = String::new();
            if seconds >= 3600 {
                let _ = write!(text, "{}h", seconds / 3600);
            }
            if seconds >= 60 {
                let _ = write!(text, "{}m", seconds / 60 % 60);
            }
            let _ = write!(text, "{}", seconds % 60);
            if duration.subsec_nanos() != 0 {
                let _ = write!(text, ".{:09}", duration.subsec_nanos());
                text.truncate(text.trim_end_matches('0').len());
            }
            text + "s"
        }
    }
}

/// Reads Go's spelling: one or more numbers with a unit, or `0`. Negative durations are refused: no field has a use for
/// one.
fn parse(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("'{text}' is not a duration: write a number with a unit, such as 90s or 1h30m");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.starts_with('-') {
        return Err(format!("'{text}' is negative"));
    }
    if rest == "0" {
        return Ok(std::time::Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, after) = rest.split_at(digits_end);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong());
        }
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let per_unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(wrong()),
        };
        let too_long = || format!("'{text}' is longer than Calico can count");
        if !whole.is_empty() {
            let whole: u64 = whole.parse().map_err(|_| too_long())?;
            nanos += u128::from(whole) * per_unit;
        }
        // For every unit, more than 18 digits of a fraction are below a nanosecond.
        let mut scale = per_unit;
        for digit in fraction.bytes().take(18) {
            nanos += u128::from(digit - b'0') * scale / 10;
            scale /= 10;
        }
        // Go counts nanoseconds in 63 bits.
        if nanos > u128::from(i64::MAX.unsigned_abs()) {
            return Err(too_long());
        }
        rest = after;
    }
    u64::try_from(nanos).map(std::time::Duration::from_nanos).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling() {
        for (text, printed) in [
            ("0", Some("0s")),
            ("0s", Some("0s")),
            ("90s", Some("1m30s")),
            ("1h", Some("1h0m0s")),
            ("1m0s", Some("1m0s")),
            ("1.5s", Some("1.5s")),
            (".5s", Some("500ms")),
            ("100us", Some("100µs")),
            ("1500ns", Some("1.5µs")),
            ("1h0.25s", Some("1h0m0.25s")),
            ("+2s", Some("2s")),
            ("-2s", None),
            ("", None),
            ("s", None),
            (".s", None),
            ("10", None),
            ("10 s", None),
            ("1d", None),
            ("99999999999999999999h", None),
            ("3000000h", None),
        ] {
            assert_eq!(Duration::from(text).parse().ok().map(go_duration).as_deref(), printed, "{text}");
        }
    }
}
