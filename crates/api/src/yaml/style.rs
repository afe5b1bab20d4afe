//! The style in which a text is written, and the characters that need an escape.

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Unquoted.
    Plain,
    /// In single quotes.
    Single,
    /// In double quotes, with escapes.
    Double,
    /// As a block of lines.
    Literal,
}

impl Style {
    /// The style of a text; names of fields cannot be blocks.
    pub(super) fn of(text: &str, is_name: bool) -> Self {
        let special = text.chars().any(|character| character != '\n' && !is_printable(character));
        // Any style but this would change a line break other than a line feed.
        let odd_breaks = text.contains(['\u{2028}', '\u{2029}']);
        if special || odd_breaks {
            return Self::Double;
        }
        if text.contains('\n') {
            let block = !is_name && !text.ends_with(' ') && !text.contains(" \n");
            return if block { Self::Literal } else { Self::Double };
        }
        if means_something_else(text) {
            return Self::Double;
        }
        if text.starts_with(' ') || text.ends_with(' ') || has_indicators(text) {
            Self::Single
        } else {
            Self::Plain
        }
    }
}

/// Whether a character is written as an escape in double quotes.
pub(super) fn is_escaped(character: char) -> bool {
    !is_printable(character) || matches!(character, '\n' | '\u{2028}' | '\u{2029}' | '"' | '\\')
}

/// Whether the library counts a character as printable: nothing beyond the basic plane, no tab, no byte order mark.
fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && character != '\u{feff}'
}

/// Whether a reader would take part of the text for structure.
fn has_indicators(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let mut before_is_blank = true;
    let mut characters = text.chars().enumerate().peekable();
    while let Some((index, character)) = characters.next() {
        let ends_word = characters.peek().is_none_or(|(_, next)| matches!(next, ' ' | '\t'));
        let found = match character {
            '#' => before_is_blank,
            ':' => ends_word,
            _ if index > 0 => false,
            ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
            '?' | '-' => ends_word,
            _ => false,
        };
        if found {
            return true;
        }
        before_is_blank = matches!(character, ' ' | '\t');
    }
    false
}

/// Whether a YAML 1.1 reader would take the plain text for a boolean, a number, a timestamp or null.
fn means_something_else(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "", "~", "y", "Y", "n", "N", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf",
        "+.INF", "-.inf", "-.Inf", "-.INF",
    ];
    const CASED: &[&str] = &["yes", "true", "on", "no", "false", "off", "null"];
    let in_known_case = |word: &str| {
        text == word
            || text == word.to_ascii_uppercase()
            || text.eq_ignore_ascii_case(word)
                && text[1..] == word[1..]
                && text.starts_with(|c: char| c.is_uppercase())
    };
    WORDS.contains(&text)
        || CASED.iter().any(|word| in_known_case(word))
        || is_number(text)
        || is_moment(text)
}

fn is_number(text: &str) -> bool {
    let first = text.bytes().next().unwrap_or_default();
    if !matches!(first, b'+' | b'-' | b'.' | b'0'..=b'9') {
        return false;
    }
    if first == b'.' {
        return is_go_float(text);
    }
    is_integer(text) || is_decimal(&text.replace('_', "")) || is_base_60(text)
}

/// An integer with Go's prefixes; underscores are dropped first.
fn is_integer(text: &str) -> bool {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.as_bytes().first() {
        Some(b'-') => (true, &plain[1..]),
        Some(b'+') => (false, &plain[1..]),
        _ => (false, plain.as_str()),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return false;
    }
    match u64::from_str_radix(digits, radix) {
        Ok(value) => !negative || value <= 1 << 63,
        Err(_) => false,
    }
}

/// Digits with an optional fraction and exponent.
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    let exponent_fits =
        exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    mantissa_fits && exponent_fits && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// A float that starts with a point.
fn is_go_float(text: &str) -> bool {
    is_decimal(text)
}

/// Hours, minutes and seconds as one number, as in YAML 1.1: `12:30:45`.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (unsigned, ""),
    };
    if !fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        return false;
    }
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let first_fits = first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut count = 0;
    let rest_fits = parts.all(|part| {
        count += 1;
        match part.as_bytes() {
            [digit] => digit.is_ascii_digit(),
            [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
            _ => false,
        }
    });
    first_fits && rest_fits && count > 0
}

/// A date, or a date with a time, in the forms that the library reads.
fn is_moment(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
        return false;
    }
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(place) => (&text[..place], Some((bytes[place], &text[place + 1..]))),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = parts.next().and_then(|part| part.parse::<i16>().ok());
    let mut short = || parts.next().filter(|part| part.len() <= 2).and_then(|part| part.parse::<i8>().ok());
    let (Some(year), Some(month), Some(day)) = (year, short(), short()) else { return false };
    if parts.next().is_some() || jiff::civil::Date::new(year, month, day).is_err() {
        return false;
    }
    let Some((mark, time)) = time else { return true };
    let (clock, zone) = match time.find(['Z', '+', '-']) {
        Some(place) => (&time[..place], &time[place..]),
        None => (time, ""),
    };
    let zone_fits = match (mark, zone.as_bytes()) {
        (b' ', b"") | (b'T' | b't', b"Z") => true,
        (b'T' | b't', [b'+' | b'-', h1, h2, b':', m1, m2]) => {
            [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    zone_fits && is_clock(clock)
}

fn is_clock(text: &str) -> bool {
    let (clock, fraction) = match text.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (text, None),
    };
    let fraction_fits =
        fraction.is_none_or(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let limits = [23, 59, 59];
    let parts: Vec<&str> = clock.split(':').collect();
    fraction_fits
        && parts.len() == 3
        && parts.iter().zip(limits).all(|(part, limit)| {
            (1..=2).contains(&part.len())
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && part.parse::<u8>().is_ok_and(|value| value <= limit)
        })
}
