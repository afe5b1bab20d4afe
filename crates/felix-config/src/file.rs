//! The configuration file: `Name = value` lines in sections, with the quirks of the INI library that Calico uses.
//! Sections have no meaning; a later value for a name replaces an earlier one.

use crate::sources::Texts;
use thiserror::Error;

/// Why a file cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// A line is neither a section, a comment nor a value.
    #[error("line {line}: key-value delimiter not found: {text}")]
    NoDelimiter {
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A value or a section without a name.
    #[error("line {line}: empty key name: {text}")]
    NoName {
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The closing bracket of a section's name is missing.
    #[error("line {line}: unclosed section: {text}")]
    OpenSection {
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The closing quote of a name or value is missing.
    #[error("line {line}: missing closing quote: {text}")]
    OpenQuote {
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

/// Parses the text of a file.
///
/// # Errors
/// The first line that cannot be parsed. A file is used whole or not at all.
pub fn from_file(text: &str) -> Result<Texts, FileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut texts = Texts::new();
    let mut lines = Lines { lines: text.lines().collect(), next: 0 };
    while let Some(line) = lines.take() {
        let number = lines.next;
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            let Some(end) = line.rfind(']') else {
                return Err(FileError::OpenSection { line: number, text: line.to_owned() });
            };
            if line[1..end].is_empty() {
                return Err(FileError::NoName { line: number, text: line.to_owned() });
            }
            continue;
        }
        let (name, rest) = split_name(line, number)?;
        let value = read_value(rest, number, &mut lines)?;
        texts.insert(name.to_owned(), value);
    }
    Ok(texts)
}

struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.next)?;
        self.next += 1;
        Some(line)
    }
}

/// Splits a line into its name, which may be quoted, and the text after the delimiter.
fn split_name(line: &str, number: usize) -> Result<(&str, &str), FileError> {
    let text = || line.to_owned();
    let no_delimiter = || FileError::NoDelimiter { line: number, text: text() };
    let quote = ["\"\"\"", "\"", "`"].into_iter().find(|quote| line.starts_with(quote));
    if let Some(quote) = quote {
        let rest = &line[quote.len()..];
        let (name, rest) =
            rest.split_once(quote).ok_or_else(|| FileError::OpenQuote { line: number, text: text() })?;
        let (_, value) = rest.split_once(['=', ':']).ok_or_else(no_delimiter)?;
        return Ok((name.trim(), value));
    }
    let (name, value) = line.split_once(['=', ':']).ok_or_else(no_delimiter)?;
    if name.is_empty() {
        return Err(FileError::NoName { line: number, text: text() });
    }
    Ok((name.trim(), value))
}

fn read_value(rest: &str, number: usize, lines: &mut Lines<'_>) -> Result<String, FileError> {
    let rest = rest.trim_start();
    let quote = if rest.len() > 3 && rest.starts_with("\"\"\"") {
        Some("\"\"\"")
    } else if rest.starts_with('`') {
        Some("`")
    } else {
        None
    };
    if let Some(quote) = quote {
        let inner = &rest[quote.len()..];
        if let Some(end) = inner.rfind(quote) {
            return Ok(inner[..end].to_owned());
        }
        return read_until(inner, quote, lines)
            .ok_or_else(|| FileError::OpenQuote { line: number, text: rest.to_owned() });
    }
    let trimmed = rest.trim_end();
    if let Some(start) = trimmed.strip_suffix('\\') {
        return Ok(read_continuation(start, lines));
    }
    let value = trimmed.find(['#', ';']).map_or(trimmed, |comment| trimmed[..comment].trim());
    let unquoted = ['\'', '"'].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    });
    Ok(unquoted.unwrap_or(value).to_owned())
}

/// Reads a value over several lines, up to its closing quote.
fn read_until(start: &str, quote: &str, lines: &mut Lines<'_>) -> Option<String> {
    let mut value = format!("{start}\n");
    loop {
        let line = lines.take()?;
        if let Some(end) = line.rfind(quote) {
            value.push_str(&line[..end]);
            return Some(value);
        }
        value.push_str(line);
        value.push('\n');
    }
}

/// Reads a value over several lines, each of which except the last ends in a backslash.
fn read_continuation(start: &str, lines: &mut Lines<'_>) -> String {
    let mut value = start.to_owned();
    while let Some(line) = lines.take().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_suffix('\\') {
            Some(line) => value.push_str(line),
            None => {
                value.push_str(line);
                break;
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        from_file(text).unwrap().into_iter().collect()
    }

    #[test]
    fn values() {
        for (line, expected) in [
            ("A = b", "b"),
            ("A=b", "b"),
            ("A: b", "b"),
            ("  A =  b  ", "b"),
            ("A = b # why", "b"),
            ("A = b#c", "b"),
            ("A = b;c", "b"),
            ("A = \"b c\"", "b c"),
            ("A = 'b c'", "b c"),
            ("A = `b # c`", "b # c"),
            ("A = \"\"\"b\nc\"\"\"", "b\nc"),
            ("A = b, \\\n  c", "b, c"),
            ("A =", ""),
            ("\"A\" = b", "b"),
            ("\u{feff}A = tcp:22,udp:53", "tcp:22,udp:53"),
            ("[global]\nA = a\n# x\n; y\n\n[other]\nA = b\n", "b"),
        ] {
            assert_eq!(read(line), [("A".to_owned(), expected.to_owned())], "{line}");
        }
        assert_eq!(read(""), []);
    }

    #[test]
    fn errors_name_their_line() {
        for (text, expected) in [
            ("A = b\nnonsense", "line 2: key-value delimiter not found: nonsense"),
            ("= b", "line 1: empty key name: = b"),
            ("[]", "line 1: empty key name: []"),
            ("\n[global", "line 2: unclosed section: [global"),
            ("\"A = b", "line 1: missing closing quote: \"A = b"),
            ("A = `b", "line 1: missing closing quote: `b"),
        ] {
            assert_eq!(from_file(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    proptest::proptest! {
        /// Any text is parsed or rejected, and a value on a plain line is read back unchanged.
        #[test]
        fn any_text_has_a_result(text in proptest::prelude::any::<String>(), value in "[a-zA-Z0-9:/., -]{0,20}") {
            let _ = from_file(&text);
            let read = from_file(&format!("[global]\nName = {value}\n"));
            proptest::prop_assert_eq!(read.map(|texts| texts["Name"].clone()), Ok(value.trim().to_owned()));
        }
    }
}
