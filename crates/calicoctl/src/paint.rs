//! Colours for output on a terminal; text in, text out.

/// Red, for refusals.
pub(crate) const RED: &str = "\u{1b}[31m";
/// Green, for what passes.
pub(crate) const GREEN: &str = "\u{1b}[32m";
/// Yellow, for anything in between.
pub(crate) const YELLOW: &str = "\u{1b}[33m";
const RESET: &str = "\u{1b}[0m";

/// The verdicts on packets and files, with their colours.
const VERDICTS: &[(&str, &str)] = &[
    ("PARTLY ALLOWED", YELLOW),
    ("DENIED", RED),
    ("ALLOWED", GREEN),
    ("FAILED", RED),
    ("FAIL", RED),
    ("Deny", RED),
    ("error", RED),
    ("Error", RED),
    ("Warning", YELLOW),
];

/// The text in a colour.
#[must_use]
pub(crate) fn colour(text: &str, colour: &str) -> String {
    format!("{colour}{text}{RESET}")
}

/// Colours a verdict at the start of a line or after its first colon, never a word inside a name or sentence.
#[must_use]
pub(crate) fn verdicts(text: &str, colours: bool) -> String {
    if !colours {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 64);
    for line in text.split_inclusive('\n') {
        let begin = line.len() - line.trim_start().len();
        let after_colon = line.find(": ").map(|place| place + 2);
        let found = [Some(begin), after_colon].into_iter().flatten().find_map(|place| {
            VERDICTS.iter().find_map(|(word, colour)| {
                let rest = line[place..].strip_prefix(word)?;
                let ends =
                    !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_' || next == '-');
                ends.then_some((place, *word, *colour))
            })
        });
        match found {
            Some((place, word, paint)) => {
                out.push_str(&line[..place]);
                out.push_str(&colour(word, paint));
                out.push_str(&line[place + word.len()..]);
            }
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_verdicts_are_coloured() {
        let text = "DENIED: shop/a to shop/b\n  egress: ALLOWED by x\nDENIED-by-name is a name\nnothing\n";
        assert_eq!(
            verdicts(text, true),
            "\u{1b}[31mDENIED\u{1b}[0m: shop/a to shop/b\n  egress: \u{1b}[32mALLOWED\u{1b}[0m by x\n\
             DENIED-by-name is a name\nnothing\n"
        );
        assert_eq!(verdicts(text, false), text);
    }
}
