//! Formats text for terminals and comments.

/// The text without terminal control characters: names come from other systems.
#[must_use]
pub fn clean(text: &str) -> String {
    if text.chars().all(is_harmless) {
        return text.to_owned();
    }
    text.chars().map(|letter| if is_harmless(letter) { letter } else { '\u{fffd}' }).collect()
}

/// Control characters move the cursor; those for text direction reorder what is displayed.
fn is_harmless(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// `1.2 kB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let (mut rest, mut unit) = (count, 0);
    while rest >= 999_950 && unit + 1 < UNITS.len() {
        rest /= 1000;
        unit += 1;
    }
    format!("{}.{} {}", rest / 1000, rest % 1000 / 100, UNITS[unit])
}

/// `1 packet`, `2 packets`.
#[must_use]
pub fn count(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// A table with columns as wide as necessary; the last one is not padded.
#[must_use]
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let all = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in all() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}   "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1_250_000, "1.2 MB"),
            (999_949, "999.9 kB"),
            (999_950, "0.9 MB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        assert_eq!(clean("web-\u{1b}[2Jx\n"), "web-\u{fffd}[2Jx\u{fffd}");
        assert_eq!(clean("a\u{202e}b"), "a\u{fffd}b");
        assert_eq!(clean("größe"), "größe");
    }
}
