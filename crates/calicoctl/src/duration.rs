//! Durations as Go writes them: `30m`, `1h30m`, `1.5s`, `0`.
//!
//! Refuses what Go refuses, and negative durations, which have no meaning for our flags.

use std::time::Duration;

const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Parses a duration; `None` if the text is not one.
#[must_use]
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, after) = rest.split_at(end);
        // A dot alone is not a number; "1." and ".5" are.
        if !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number: f64 = number.parse().ok()?;
        let end = after
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn durations_are_parsed_like_go() {
        for (text, millis) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("30m", Some(1_800_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1500)),
            (".5s", Some(500)),
            ("100ms", Some(100)),
            ("+2s", Some(2000)),
            ("", None),
            ("5", None),
            ("-5s", None),
            ("s", None),
            (".s", None),
            ("5x", None),
            ("1h 5m", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
