//! What is wrong with a selector, where, and what to write instead.
//!
//! The first part of each message is Calico's own wording, because people search for it; Go's debug print of a
//! token is replaced by the text that the user wrote. Errors hold short excerpts, never the whole input.

use std::fmt;

use crate::{MAX_LABEL_LENGTH, MAX_LENGTH, MAX_NESTING};

/// A selector that could not be parsed: the leftmost mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    kind: ParseErrorKind,
    position: usize,
    column: usize,
}

/// The mistakes that the parser tells apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "each message says what the variant is, and its fields are what the message shows"
)]
pub enum ParseErrorKind {
    #[error("unterminated string")]
    UnterminatedString,
    #[error("expected {expected}")]
    SingleCharacter { expected: &'static str },
    #[error("expected operator after label \"{label}\"")]
    ExpectedOperator { label: Box<str>, found: Box<str> },
    #[error("no closing ')' after {function}(")]
    UnclosedFunction { function: &'static str },
    #[error("label too long: {label}")]
    LabelTooLong { label: Box<str>, length: usize },
    #[error("expected identifier")]
    ExpectedIdentifier { found: Box<str> },
    #[error("unexpected end of string looking for op")]
    UnexpectedEnd { label: Box<str> },
    #[error("expected )")]
    ExpectedRightParen { found: Box<str> },
    #[error("expected }}")]
    ExpectedRightBrace { found: Box<str> },
    #[error("expected string")]
    ExpectedString { operator: &'static str, found: Box<str> },
    #[error("expected set literal")]
    ExpectedSet { operator: &'static str, found: Box<str> },
    #[error("expected == or != not: {found}")]
    ExpectedComparison { found: Box<str> },
    #[error("unexpected token: {found}")]
    UnexpectedToken { found: Box<str> },
    #[error("unexpected content at end of selector: {remainder}")]
    TrailingContent { remainder: Box<str> },
    #[error("selector too long: {length} bytes, at most {MAX_LENGTH} are accepted")]
    TooLong { length: usize },
    #[error("selector nested too deeply: at most {MAX_NESTING} levels are accepted")]
    TooDeep,
}

impl ParseError {
    pub(crate) fn new(kind: ParseErrorKind, text: &str, position: usize) -> Self {
        let column = text.get(..position).map_or(0, |before| before.chars().count()) + 1;
        Self { kind, position, column }
    }

    /// The kind of mistake.
    pub fn kind(&self) -> &ParseErrorKind {
        &self.kind
    }

    /// Offset of the mistake in the selector text, in bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Place of the mistake in characters, the first being 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is expected at the position, or how to fix the mistake.
    pub fn expected(&self) -> String {
        match &self.kind {
            ParseErrorKind::UnterminatedString => "this string has no closing quote of the same kind".into(),
            ParseErrorKind::SingleCharacter { expected } => {
                format!("{expected}: a single '{}' is not an operator", &expected[..1])
            }
            ParseErrorKind::ExpectedOperator { label, found } => {
                if &**label == "not" {
                    return "write ! for \"not\"".into();
                }
                if is_word(found, "and") || is_word(found, "or") {
                    return connective_hint(found, label);
                }
                "one of ==, !=, in, not in, contains, starts with, ends with, and then a value in quotes"
                    .into()
            }
            ParseErrorKind::UnclosedFunction { function: "has" } => {
                "has() takes one label name, without quotes".into()
            }
            ParseErrorKind::UnclosedFunction { function } => {
                format!("{function}() takes no argument")
            }
            ParseErrorKind::LabelTooLong { length, .. } => {
                format!("this name has {length} bytes, at most {MAX_LABEL_LENGTH} are accepted")
            }
            ParseErrorKind::ExpectedIdentifier { found } => match &**found {
                "\n" | "\r" => "a selector is written on one line".into(),
                "\"" | "'" => "a label name is written without quotes".into(),
                _ => "a label name is made of letters, digits, '_', '.', '/' and '-'".into(),
            },
            ParseErrorKind::UnexpectedEnd { label } => {
                format!("a label needs a comparison: has({label}), or {label} == 'value'")
            }
            ParseErrorKind::ExpectedRightParen { .. } => "&&, || or a closing parenthesis".into(),
            ParseErrorKind::ExpectedRightBrace { found } => match &**found {
                "end of selector" | "," => "values in quotes, separated by commas, and then }".into(),
                found if found.starts_with(['"', '\'']) => "a comma between values".into(),
                found => format!("a value in quotes, or }}; not: {found}"),
            },
            ParseErrorKind::ExpectedString { operator, found } => {
                if crate::is_valid_label(found) {
                    format!("a value in quotes after {operator}: '{found}'")
                } else {
                    format!("a value in quotes after {operator}")
                }
            }
            ParseErrorKind::ExpectedSet { operator, .. } => {
                format!("a set after {operator}: {{'a', 'b'}}")
            }
            ParseErrorKind::ExpectedComparison { found } => match &**found {
                "(" => {
                    "only has(), all() and global() are functions, written without a space before (".into()
                }
                _ => "a label needs a comparison: has(label), or label == 'value'".into(),
            },
            ParseErrorKind::UnexpectedToken { .. } => {
                "a label comparison, has(label), all(), global() or an expression in parentheses".into()
            }
            ParseErrorKind::TrailingContent { remainder } => {
                if remainder.starts_with(')') {
                    "this parenthesis was never opened".into()
                } else if is_word(remainder, "and") || is_word(remainder, "or") {
                    connective_hint(remainder, "")
                } else {
                    "&& or || between expressions".into()
                }
            }
            ParseErrorKind::TooLong { .. } | ParseErrorKind::TooDeep => "a simpler selector".into(),
        }
    }

    /// The selector with a caret below the mistake; `text` is what was parsed. Long selectors are truncated around it.
    pub fn render(&self, text: &str) -> String {
        const BEFORE: usize = 60;
        const SHOWN: usize = 100;
        let caret = self.column - 1;
        let skipped = caret.saturating_sub(BEFORE);
        let mut characters = text.chars().skip(skipped);
        let mut line: String = if skipped > 0 { "...".into() } else { String::new() };
        let indent = line.len() + caret - skipped;
        // One character must stay one column, or the caret would point elsewhere.
        line.extend(characters.by_ref().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }));
        if characters.next().is_some() {
            line.push_str("...");
        }
        format!("{}\n  | {}\n  | {:indent$}^ {}", self.kind, line.trim_end(), "", self.expected())
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at character {} ({})", self.kind, self.column, self.expected())
    }
}

impl std::error::Error for ParseError {}

fn is_word(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        && text[word.len()..].chars().next().is_none_or(|c| !c.is_ascii_alphanumeric())
}

fn connective_hint(found: &str, label: &str) -> String {
    let symbol = if is_word(found, "and") { "&&" } else { "||" };
    if label.is_empty() {
        format!("write {symbol} between expressions")
    } else {
        format!("write has({label}) or {label} == 'value', and {symbol} between expressions")
    }
}
