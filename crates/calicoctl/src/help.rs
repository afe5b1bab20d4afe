//! Help, wrapped to the terminal between words.
//!
//! Examples stay as they are: a command broken over two lines cannot be pasted.

/// Widths beyond which long lines are hard to read, and below which nothing is wrapped.
const WIDEST: usize = 120;
const NARROWEST: usize = 40;

/// Where the description of a flag begins when it does not fit beside the flag.
const BELOW: usize = 10;

/// The text wrapped to `width`; only a word longer than that exceeds it.
#[must_use]
pub fn wrap(text: &str, width: usize) -> String {
    if width < NARROWEST {
        return text.to_owned();
    }
    let width = width.min(WIDEST);
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut is_example = false;
    for line in text.lines() {
        is_example |= line.starts_with("Examples:");
        if is_example || line.chars().count() <= width {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let (head, description, indent) = parts(line);
        if indent > width / 2 {
            out.push_str(head.trim_end());
            out.push('\n');
            fill(&mut out, "", &" ".repeat(BELOW), description, width);
        } else {
            fill(&mut out, head, &" ".repeat(indent), description, width);
        }
    }
    out
}

/// Splits a line into the part before the description of a flag or command, the description, and its column.
fn parts(line: &str) -> (&str, &str, usize) {
    let begin = line.len() - line.trim_start().len();
    if begin > 0 {
        // The description follows after a gap.
        if let Some(gap) = line[begin..].find("  ") {
            let after = &line[begin + gap..];
            let place = begin + gap + (after.len() - after.trim_start().len());
            return (&line[..place], &line[place..], line[..place].chars().count());
        }
        return (&line[..begin], &line[begin..], begin);
    }
    match line.strip_prefix("Usage: ") {
        Some(usage) => ("Usage: ", usage, "Usage: ".len()),
        None => ("", line, 0),
    }
}

/// Appends words; the first line begins with `head`, or with the indentation where that is empty.
fn fill(out: &mut String, head: &str, indent: &str, text: &str, width: usize) {
    let start = if head.is_empty() { indent } else { head };
    out.push_str(start);
    let mut column = start.chars().count();
    let mut is_first = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if !is_first && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
            is_first = true;
        }
        if !is_first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        is_first = false;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_hang_below_their_beginning() {
        let text = "Options:\n  -f, --file <FILE>  A file of resources in YAML or JSON; - for standard input\n  -h  Print\n";
        assert_eq!(
            wrap(text, 40),
            "Options:\n  -f, --file <FILE>\n          A file of resources in YAML or\n          JSON; - for standard input\n  -h  Print\n"
        );
        assert_eq!(
            wrap(text, 60),
            "Options:\n  -f, --file <FILE>  A file of resources in YAML or JSON; -\n                     for standard input\n  -h  Print\n"
        );
        assert_eq!(wrap(text, 10), text, "a terminal that narrow is left to wrap by itself");
    }

    #[test]
    fn usage_and_paragraphs_are_wrapped_and_examples_are_not() {
        let text = "Show resources: all of a type, some by name, or those named in files.\n\n\
                    Usage: calicoctl get [OPTIONS] [KIND [NAME...]] --something <ELSE>\n\n\
                    Examples:\n  calicoctl get -o yaml policy my-policy-1 my-policy-2 my-policy-3\n";
        assert_eq!(
            wrap(text, 42),
            "Show resources: all of a type, some by\nname, or those named in files.\n\n\
             Usage: calicoctl get [OPTIONS] [KIND\n       [NAME...]] --something <ELSE>\n\n\
             Examples:\n  calicoctl get -o yaml policy my-policy-1 my-policy-2 my-policy-3\n"
        );
    }

    #[test]
    fn a_word_longer_than_the_line_stays_whole() {
        let word = "x".repeat(50);
        assert_eq!(wrap(&format!("a {word} b"), 40), format!("a\n{word}\nb\n"));
    }
}
