//! The text of a file: decoding, lines, and the split into documents.
//!
//! Documents are split at the `---` lines before any parsing, so that a syntax error in one of them does not hide the
//! mistakes in the others. A line that begins with `---` is a document marker everywhere in YAML, even inside quotes.

use crate::document::MAX_DOCUMENT_LENGTH;
use crate::document::report::Diagnostic;
use crate::errors::FieldPath;
use std::borrow::Cow;

/// A range of a file. Lines and columns count from 1, columns in characters; the end is exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First line.
    pub line: usize,
    /// First column.
    pub column: usize,
    /// Line of the end.
    pub end_line: usize,
    /// Column of the end.
    pub end_column: usize,
}

impl Span {
    pub(super) fn point(line: usize, column: usize) -> Self {
        Self { line, column, end_line: line, end_column: column + 1 }
    }
}

/// A file's name and text.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) name: String,
    text: String,
    /// The byte offset at which each line begins.
    line_starts: Vec<usize>,
}

/// One document of a file (rarely more: YAML may also separate them by `...`).
pub(super) struct Chunk<'a> {
    pub(super) text: Cow<'a, str>,
    /// Lines of the file before this chunk.
    pub(super) lines_before: usize,
}

impl Source {
    /// Decodes the bytes. If that fails, the source contains what can be displayed of them.
    pub(super) fn new(name: &str, bytes: &[u8]) -> (Self, Option<Diagnostic>) {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        match std::str::from_utf8(bytes) {
            Ok(text) => (Self::from_text(name, text.to_owned()), None),
            Err(error) => {
                let (valid, _) = bytes.split_at(error.valid_up_to());
                let before = String::from_utf8_lossy(valid);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
                let diagnostic = Diagnostic::new(
                    Span::point(line, column),
                    FieldPath::root(),
                    "this is not UTF-8 text".to_owned(),
                )
                .with_help("save the file as UTF-8".to_owned());
                (Self::from_text(name, String::from_utf8_lossy(bytes).into_owned()), Some(diagnostic))
            }
        }
    }

    fn from_text(name: &str, text: String) -> Self {
        let mut line_starts = vec![0];
        line_starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { name: name.to_owned(), text, line_starts }
    }

    /// The text of a line, counted from 1, without its end.
    pub(super) fn line(&self, number: usize) -> &str {
        let Some(&start) = number.checked_sub(1).and_then(|index| self.line_starts.get(index)) else {
            return "";
        };
        let end = self.line_starts.get(number).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }

    /// The documents, in order.
    pub(super) fn chunks(&self) -> Vec<Chunk<'_>> {
        let mut chunks = Vec::new();
        let mut first_line = 0;
        let mut only_directives = true;
        let mut has_directive = false;
        for (index, &start) in self.line_starts.iter().enumerate() {
            let line = self.line(index + 1);
            // Directives (`%YAML 1.2`) precede the marker of their document.
            if is_marker(line) && index > first_line && !(only_directives && has_directive) {
                chunks.push(self.chunk(first_line, start));
                first_line = index;
                only_directives = true;
                has_directive = false;
            }
            if line.starts_with('%') {
                has_directive = true;
            } else if !line.trim_start().is_empty() && !line.starts_with('#') {
                only_directives = false;
            }
        }
        chunks.push(self.chunk(first_line, self.text.len()));
        chunks
    }

    fn chunk(&self, first_line: usize, end: usize) -> Chunk<'_> {
        let text = &self.text[self.line_starts[first_line]..end];
        Chunk { text: join_surrogates(text), lines_before: first_line }
    }
}

impl Chunk<'_> {
    pub(super) fn is_too_long(&self) -> bool {
        self.text.len() > MAX_DOCUMENT_LENGTH
    }
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// JSON writes a character beyond U+FFFF as two escapes, which YAML does not support: `\ud83d\ude00` becomes
/// `\U0001f600`. Only text that begins like JSON is changed.
fn join_surrogates(text: &str) -> Cow<'_, str> {
    let json = text.trim_start().starts_with(['{', '[']) || text.trim_start().starts_with("---");
    if !json || !text.contains("\\u") && !text.contains("\\U") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(character) = surrogate_pair(rest) {
            out.push_str(&format!("\\U{:08x}", u32::from(character)));
            rest = &rest[12..];
        } else {
            // The backslash together with the escaped character, so that `\\u` is not mistaken for an escape of its
            // own.
            let length = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn surrogate_pair(text: &str) -> Option<char> {
    let unit = |at: usize| -> Option<u16> {
        if text.get(at..at + 2)? != "\\u" {
            return None;
        }
        u16::from_str_radix(text.get(at + 2..at + 6)?, 16).ok()
    };
    let pair = [unit(0)?, unit(6)?];
    char::decode_utf16(pair).next()?.ok().filter(|character| u32::from(*character) > 0xffff)
}
