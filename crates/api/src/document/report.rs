//! Mistakes and warnings about a file, and how they are displayed: place, line, caret, path, help, in the manner of
//! rustc.
//!
//! A file with a mistake is refused. A warning is about text that is accepted, but perhaps not as its author meant it.
//! Colours and terminal widths are left to the caller.

use crate::document::source::{Source, Span};
use crate::document::trail::{around, is_within};
use crate::errors::FieldPath;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// One mistake in a file, or one warning about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The place of the mistake.
    pub span: Span,
    /// The field, from the top of its object; empty if the mistake does not concern a field.
    pub path: FieldPath,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub help: Option<String>,
}

impl Diagnostic {
    pub(super) fn new(span: Span, path: FieldPath, message: String) -> Self {
        Self { span, path, message, help: None }
    }

    pub(super) fn with_help(mut self, help: String) -> Self {
        self.help = Some(help);
        self
    }
}

/// Maximum number of mistakes shown with their lines. More are of no use, and a file of one huge line would make it
/// slow.
const MAX_SHOWN: usize = 200;

/// All mistakes in a file and the warnings about it. Displaying it shows each with its line, in order of their places.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    source: Arc<Source>,
    found: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl Diagnostics {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self { source, found: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn add(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// Adds a warning, which does not cause a refusal.
    pub(super) fn warn(&mut self, warning: Diagnostic) {
        self.warnings.push(warning);
    }

    /// Adds the validation errors of an object whose structural mistakes start at `first`, except possible consequences
    /// of those: errors about the same field, a field below it, or the struct around it.
    pub(super) fn add_unrelated(&mut self, first: usize, other: Self) {
        let structural: BTreeSet<&str> =
            self.found.iter().skip(first).map(|found| found.path.as_str()).collect();
        let unrelated: Vec<Diagnostic> =
            other.found.into_iter().filter(|error| !is_related(error.path.as_str(), &structural)).collect();
        self.found.extend(unrelated);
    }

    pub(super) fn is_about(&self, source: &Arc<Source>) -> bool {
        Arc::ptr_eq(&self.source, source)
    }

    /// Whether there are no mistakes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The number of mistakes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// The mistakes.
    #[must_use]
    pub fn as_slice(&self) -> &[Diagnostic] {
        &self.found
    }

    /// The warnings.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.source.name
    }

    fn write_one(&self, f: &mut fmt::Formatter<'_>, level: &str, diagnostic: &Diagnostic) -> fmt::Result {
        let Span { line, column, .. } = diagnostic.span;
        let number = line.to_string();
        let gutter = number.len();
        let shown = Shown::new(self.source.line(line), diagnostic.span);
        writeln!(f, "{level}: {}", diagnostic.message)?;
        writeln!(f, "{:gutter$}--> {}:{line}:{column}", "", self.source.name)?;
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{number} | {}", shown.text)?;
        write!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(shown.width), indent = shown.indent)?;
        if diagnostic.path.as_str().is_empty() {
            writeln!(f)?;
        } else {
            writeln!(f, " {}", diagnostic.path)?;
        }
        if let Some(help) = &diagnostic.help {
            writeln!(f, "{:gutter$} = help: {help}", "")?;
        }
        Ok(())
    }
}

/// Whether `path` is one of the known ones, below one, or around one. Ordered lookups keep this fast when a file has
/// very many mistakes.
fn is_related(path: &str, known: &BTreeSet<&str>) -> bool {
    let below = |separator: char| {
        let start = format!("{path}{separator}");
        known.range(start.as_str()..).next().is_some_and(|first| first.starts_with(&start))
    };
    around(path).any(|ancestor| known.contains(ancestor))
        || below('.')
        || below('[')
        || path.is_empty() && known.iter().next().is_some_and(|first| is_within(first, path))
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mistakes = self.found.iter().map(|found| ("error", found));
        let warnings = self.warnings.iter().map(|found| ("warning", found));
        let mut sorted: Vec<(&str, &Diagnostic)> = mistakes.chain(warnings).collect();
        sorted.sort_by_key(|(_, diagnostic)| (diagnostic.span.line, diagnostic.span.column));
        for (level, diagnostic) in sorted.iter().take(MAX_SHOWN) {
            self.write_one(f, level, diagnostic)?;
            writeln!(f)?;
        }
        if sorted.len() > MAX_SHOWN {
            writeln!(f, "... and {} more\n", sorted.len() - MAX_SHOWN)?;
        }
        let counts = [count(self.found.len(), "mistake"), count(self.warnings.len(), "warning")];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        write!(f, "{} in {}", counts.join(" and "), self.source.name)
    }
}

/// `1 mistake`, `2 mistakes`, or `None` for zero.
fn count(number: usize, what: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    }
}

impl std::error::Error for Diagnostics {}

/// The displayed part of a line, and the position of the carets.
struct Shown {
    text: String,
    indent: usize,
    width: usize,
}

impl Shown {
    fn new(line: &str, span: Span) -> Self {
        const BEFORE: usize = 60;
        const LONGEST: usize = 120;
        const CARETS: usize = 60;
        let column = span.column.saturating_sub(1);
        let skipped = if line.chars().nth(LONGEST).is_some() { column.saturating_sub(BEFORE) } else { 0 };
        let mut text = if skipped > 0 { "...".to_owned() } else { String::new() };
        let indent = text.len() + column - skipped;
        let mut characters = line.chars().skip(skipped);
        // One character must stay one column, or the carets would point elsewhere.
        text.extend(characters.by_ref().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }));
        if characters.next().is_some() {
            text.push_str("...");
        }
        let available = text.trim_end().chars().count().saturating_sub(indent).max(1);
        let wanted =
            if span.end_line == span.line { span.end_column.saturating_sub(span.column) } else { available };
        Self { text: text.trim_end().to_owned(), indent, width: wanted.clamp(1, available).min(CARETS) }
    }
}
