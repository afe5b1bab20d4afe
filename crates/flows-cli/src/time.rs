//! Times in flags: relative, or a point in time.

/// Parses a time: `5m` or `1h30m` ago, or one like `2026-11-17T14:00:00Z`.
///
/// # Errors
/// When it is neither.
pub fn moment(text: &str, now: i64) -> Result<i64, String> {
    let text = text.trim();
    if let Some(ago) = seconds(text) {
        return Ok(now.saturating_sub(ago));
    }
    text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second).map_err(|_| {
        format!("{text:?} is neither a duration such as 5m or 1h30m nor a time such as 2026-11-17T14:00:00Z")
    })
}

/// Whole units, largest first.
fn seconds(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total: i64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: i64 = rest[..end].parse().ok()?;
        let unit_end =
            rest[end..].find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |more| end + more);
        let unit = match &rest[end..unit_end] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[unit_end..];
    }
    Some(total)
}

/// A point in time in the form that [`moment`] accepts.
#[must_use]
pub fn show(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        const NOW: i64 = 1_700_000_000;
        for (text, expected) in [
            ("5m", Some(NOW - 300)),
            ("1h30m", Some(NOW - 5400)),
            ("2d", Some(NOW - 172_800)),
            ("90s", Some(NOW - 90)),
            ("2023-11-14T22:13:20Z", Some(NOW)),
            ("2023-11-14T23:13:20+01:00", Some(NOW)),
            ("", None),
            ("5", None),
            ("m", None),
            ("99999999999999999999s", None),
            ("yesterday", None),
        ] {
            assert_eq!(moment(text, NOW).ok(), expected, "{text}");
        }
        assert_eq!(show(NOW), "2023-11-14T22:13:20Z");
    }
}
