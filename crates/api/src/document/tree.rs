//! YAML as a tree with places, and the lookup of a field's place by its path.
//!
//! The meaning of a scalar is not decided here: it depends on the field.

use crate::document::report::Diagnostic;
use crate::document::scalar::{Meaning, meaning};
use crate::document::source::Span;
use crate::document::trail::{Segment, segments};
use crate::errors::FieldError;
use selector::Selector;
use std::collections::HashSet;
use std::sync::Arc;

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) content: Content,
    /// The number of nodes in this tree, including its root.
    pub(super) size: usize,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar(Scalar),
    List(Vec<Arc<Node>>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Not in quotes and not tagged as a string: its meaning depends on its text.
    pub(super) plain: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Scalar,
    pub(super) key_span: Span,
    pub(super) value: Arc<Node>,
    /// Added by a merge key, so it cannot be a duplicate.
    pub(super) merged: bool,
}

impl Scalar {
    /// The column of the first character of the text itself, if it is written on one line without escapes, so that
    /// character `n` of the text is `n` columns further.
    fn first_column(&self, span: Span) -> Option<usize> {
        let length = self.text.chars().count();
        let quotes = usize::from(!self.plain);
        let fits = span.line == span.end_line && span.end_column - span.column == length + 2 * quotes;
        fits.then_some(span.column + quotes)
    }
}

/// The result of [`Node::find`].
pub(super) struct Found {
    pub(super) span: Span,
    /// Whether the path itself was found, or only an enclosing field.
    pub(super) exact: bool,
}

impl Entry {
    /// Whether this entry repeats a name of the same map, given the names seen so far.
    pub(super) fn repeats<'a>(&'a self, seen: &mut HashSet<&'a str>) -> bool {
        !seen.insert(&self.key.text) && !self.merged
    }
}

impl Node {
    /// The entry of this name, if this is a map that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|entry| entry.key.text == name),
            _ => None,
        }
    }

    /// The field of this name, in this spelling or, failing that, in another case.
    pub(super) fn field(&self, name: &str) -> Option<&Entry> {
        let Content::Map(entries) = &self.content else { return None };
        let folded = || entries.iter().find(|entry| entry.key.text.eq_ignore_ascii_case(name));
        self.get(name).or_else(folded)
    }

    /// The node that one segment of a path leads to, and the place of its name.
    fn step(&self, segment: Segment<'_>) -> Option<(&Node, Span)> {
        let entry = match (segment, &self.content) {
            (Segment::Name(name), Content::Map(_)) => self.field(name)?,
            (Segment::Bracket(key), Content::Map(_)) => self.get(key)?,
            (Segment::Bracket(index), Content::List(items)) => {
                let item = items.get(index.parse::<usize>().ok()?)?;
                return Some((item, item.first_span()));
            }
            _ => return None,
        };
        Some((&entry.value, entry.key_span))
    }

    /// The place of the field at `path`, or of the nearest enclosing one. Scalars are shown themselves, lists and maps
    /// by their name.
    pub(super) fn find(&self, path: &str) -> Option<Found> {
        let mut node = self;
        let mut span = match &self.content {
            // A whole map is shown by its first name.
            Content::Map(entries) => entries.first().map_or(self.span, |entry| entry.key_span),
            _ => self.span,
        };
        for segment in segments(path) {
            let Some((below, place)) = node.step(segment) else {
                return Some(Found { span, exact: false });
            };
            span = match &below.content {
                Content::Scalar(scalar) if !scalar.text.is_empty() => below.span,
                _ => place,
            };
            node = below;
        }
        Some(Found { span, exact: true })
    }

    /// A span to point at: a map's first name rather than the whole of it.
    pub(super) fn first_span(&self) -> Span {
        match &self.content {
            Content::Map(entries) => entries.first().map_or(self.span, |entry| entry.key_span),
            _ => self.span,
        }
    }

    /// Whether there is no value here, or `null`.
    pub(super) fn is_null(&self) -> bool {
        match &self.content {
            Content::Scalar(scalar) => scalar.plain && meaning(&scalar.text) == Meaning::Null,
            _ => false,
        }
    }

    /// The diagnostic for a validation error: at the field's place, and for a selector at the mistake inside it.
    pub(super) fn diagnostic(&self, error: &FieldError) -> Diagnostic {
        let path = error.path.as_str();
        let span = self.find(path).map_or(self.span, |found| found.span);
        let whole = Diagnostic::new(span, error.path.clone(), error.reason.clone());
        if !path.ends_with("elector") {
            return whole;
        }
        let Some(Err(mistake)) = self.scalar(path).map(|scalar| Selector::parse(&scalar.text)) else {
            return whole;
        };
        let Some(start) = self.scalar(path).and_then(|scalar| scalar.first_column(span)) else {
            return whole;
        };
        let place = Span::point(span.line, start + mistake.column() - 1);
        Diagnostic::new(place, error.path.clone(), format!("invalid selector: {}", mistake.kind()))
            .with_help(mistake.expected())
    }

    fn scalar(&self, path: &str) -> Option<&Scalar> {
        let mut node = self;
        for segment in segments(path) {
            node = node.step(segment)?.0;
        }
        match &node.content {
            Content::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// A description of the node's type, for messages.
    pub(super) fn describe(&self) -> &'static str {
        match &self.content {
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
            Content::Scalar(scalar) if !scalar.plain => "text",
            Content::Scalar(scalar) => match meaning(&scalar.text) {
                Meaning::Null => "nothing",
                Meaning::Bool(_) => "a boolean",
                Meaning::Integer(_) | Meaning::Unsigned(_) | Meaning::Float(_) => "a number",
                Meaning::Text => "text",
            },
        }
    }
}
