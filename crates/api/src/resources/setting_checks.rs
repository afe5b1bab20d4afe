//! Checks shared by the kinds with many settings. They take a value and its path, and add errors.
//!
//! Limits that a schema can express are not here: the schema is checked before any of these run.

use crate::errors::{FieldErrors, FieldPath};
use crate::scalars::Duration;
use std::ops::RangeInclusive;

/// The permitted metrics of a route: 0 and the largest value have special meanings to the kernel and to BIRD.
pub(crate) const ROUTE_PRIORITIES: RangeInclusive<i64> = 1..=2_147_483_646;

/// The ports on which a server may listen, where 0 turns it off.
pub(crate) const PORTS_OR_OFF: RangeInclusive<i64> = 0..=65_535;

/// Checks that a number, if set, is in a range.
pub(crate) fn check_range(
    value: Option<i64>,
    allowed: &RangeInclusive<i64>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(value) = value
        && !allowed.contains(&value)
    {
        let (low, high) = (allowed.start(), allowed.end());
        let reason = if *high == i64::MAX {
            format!("must be at least {low}")
        } else {
            format!("must be between {low} and {high}")
        };
        errors.add(path.clone(), value, reason);
    }
}

/// Checks that a text, if set, is a regular expression. The syntax is that of Rust's `regex`, which agrees with Go's on
/// everything that interface and file names need.
pub(crate) fn check_regex(text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if let Err(error) = regex::Regex::new(text) {
        // The library's message has several lines; the last one contains the error.
        let error = error.to_string();
        let cause = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        errors.add(path.clone(), text, format!("is not a regular expression: {cause}"));
    }
}

/// Checks a text, if set, with a predicate.
pub(crate) fn check_text(
    text: &str,
    is_good: fn(&str) -> bool,
    reason: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !text.is_empty() && !is_good(text) {
        errors.add(path.clone(), text, reason);
    }
}

/// Checks that a duration, if set, can be parsed.
pub(crate) fn check_duration(duration: Option<&Duration>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(duration) = duration
        && let Err(reason) = duration.parse()
    {
        errors.add(path.clone(), duration, reason);
    }
}

/// Spells a duration like Go, as Calico stores it: `90s` becomes `1m30s`. Text that cannot be parsed is kept.
pub(crate) fn respell(duration: &mut Option<Duration>) {
    if let Some(text) = duration
        && let Ok(length) = text.parse()
    {
        *text = Duration::from_std(length);
    }
}

/// Spells a duration for a field whose definition does not allow fractions: `1.5s` becomes `1500ms`, which Go reads,
/// too.
pub(crate) fn respell_without_fraction(duration: &mut Option<Duration>) {
    respell(duration);
    if let Some(text) = duration
        && text.as_str().contains('.')
        && let Ok(length) = text.parse()
        && length.subsec_nanos() % 1_000_000 == 0
    {
        *text = Duration::new(format!("{}ms", length.as_millis()));
    }
}

/// The form of a community: two numbers of 16 bits, or three of 32 bits, with colons between.
pub(crate) fn check_community(text: &str) -> Result<(), &'static str> {
    let numbers: Vec<&str> = text.split(':').collect();
    if !matches!(numbers.len(), 2 | 3)
        || numbers.iter().any(|part| part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Err("invalid community value or format used.");
    }
    if numbers.len() == 2 {
        if numbers.iter().any(|part| part.parse::<u16>().is_err()) {
            return Err("invalid community value, expected 16 bit value");
        }
    } else if numbers.iter().any(|part| part.parse::<u32>().is_err()) {
        return Err("invalid community value, expected 32 bit value");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities() {
        for (text, good) in [
            ("65535:0", true),
            ("65536:0", false),
            ("4294967295:0:1", true),
            ("4294967296:0:1", false),
            ("1", false),
            ("1:2:3:4", false),
            ("1:", false),
            ("+1:2", false),
            ("a:b", false),
        ] {
            assert_eq!(check_community(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn durations_are_spelled_like_in_go() {
        for (text, stored) in [("90s", "1m30s"), ("1.5h", "1h30m0s"), ("0", "0s"), ("nonsense", "nonsense")] {
            let mut duration = Some(Duration::new(text));
            respell(&mut duration);
            assert_eq!(duration, Some(Duration::new(stored)));
        }
        for (text, stored) in
            [("90s", "1m30s"), ("1m1.5s", "61500ms"), ("1500ms", "1500ms"), ("1.5ms", "1.5ms")]
        {
            let mut duration = Some(Duration::new(text));
            respell_without_fraction(&mut duration);
            assert_eq!(duration, Some(Duration::new(stored)));
        }
    }
}
