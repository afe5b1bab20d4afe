//! Builds the tree from the events of the YAML library.
//!
//! Growth beyond the size of the text is bounded: nesting is limited, and so is what aliases add (they share nodes
//! here, but become copies later). Merge keys (`<<`) are resolved; tags beyond the core ones are refused.

use crate::document::report::Diagnostic;
use crate::document::source::{Chunk, Span};
use crate::document::tree::{Content, Entry, Node, Scalar};
use crate::errors::FieldPath;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum nesting of lists and maps. The deepest field of any resource is at about a quarter of it.
const MAX_DEPTH: usize = 64;

/// How many nodes aliases and merge keys may add to a document.
const MAX_ALIAS_NODES: usize = 100_000;

/// Parses all documents of a chunk; usually there is one. Empty documents are omitted.
pub(super) fn parse(chunk: &Chunk<'_>) -> Result<Vec<Arc<Node>>, Diagnostic> {
    let mut builder = Builder::new(chunk.lines_before);
    if chunk.is_too_long() {
        let message = format!(
            "this document has {} bytes; the limit is {}",
            chunk.text.len(),
            crate::document::MAX_DOCUMENT_LENGTH
        );
        let place = Span::point(chunk.lines_before + 1, 1);
        return Err(Diagnostic::new(place, FieldPath::root(), message)
            .with_help("separate the objects by lines of `---`".to_owned()));
    }
    let mut parser = Parser::new_from_str(&chunk.text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.event(event, span)?,
            Err(error) => {
                return Err(
                    builder.error(*error.marker(), format!("this is not valid YAML: {}", error.info()))
                );
            }
        }
    }
    Ok(builder.documents)
}

struct Builder {
    lines_before: usize,
    documents: Vec<Arc<Node>>,
    open: Vec<Open>,
    anchors: HashMap<usize, Arc<Node>>,
    alias_nodes: usize,
}

/// A list or map whose end has not been reached yet.
struct Open {
    span: Span,
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Arc<Node>>),
    Map { entries: Vec<Entry>, key: Option<(Scalar, Span)>, merges: Vec<Arc<Node>> },
}

impl Builder {
    fn new(lines_before: usize) -> Self {
        Self {
            lines_before,
            documents: Vec::new(),
            open: Vec::new(),
            anchors: HashMap::new(),
            alias_nodes: 0,
        }
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        Span {
            line: span.start.line() + self.lines_before,
            column: span.start.col() + 1,
            end_line: span.end.line() + self.lines_before,
            end_column: span.end.col() + 1,
        }
    }

    fn error(&self, at: Marker, message: String) -> Diagnostic {
        let place = Span::point(at.line() + self.lines_before, at.col() + 1);
        let diagnostic = Diagnostic::new(place, FieldPath::root(), message);
        let hint = if diagnostic.message.contains("tab") {
            "indent with spaces"
        } else if diagnostic.message.contains("mapping values are not allowed") {
            "put text that contains `: ` in quotes"
        } else if diagnostic.message.contains("did not find expected key") {
            "check the indentation of this line and the one before it"
        } else if diagnostic.message.contains("unexpected character") {
            "put text that begins with this character in quotes"
        } else {
            return diagnostic;
        };
        diagnostic.with_help(hint.to_owned())
    }

    fn refuse(&self, span: Span, message: &str) -> Diagnostic {
        Diagnostic::new(span, FieldPath::root(), message.to_owned())
    }

    fn event(&mut self, event: Event<'_>, span: saphyr_parser::Span) -> Result<(), Diagnostic> {
        let span = self.span(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = self.is_plain(style, tag.as_deref(), span)?;
                let span = scalar_span(span, &text, style);
                let content = Content::Scalar(Scalar { text: text.into_owned(), plain });
                self.complete(Arc::new(Node { span, content, size: 1 }), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_collection_tag(tag.as_deref(), "seq", span)?;
                self.push(Open { span, anchor, kind: OpenKind::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                self.check_collection_tag(tag.as_deref(), "map", span)?;
                let kind = OpenKind::Map { entries: Vec::new(), key: None, merges: Vec::new() };
                self.push(Open { span, anchor, kind })
            }
            Event::SequenceEnd | Event::MappingEnd => self.pop(span),
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.refuse(span, "this alias refers to a node that it is part of"));
                };
                self.count_alias(node.size, span)?;
                self.complete(node, 0)
            }
            Event::DocumentEnd | Event::DocumentStart(_) => {
                self.anchors.clear();
                self.alias_nodes = 0;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn push(&mut self, open: Open) -> Result<(), Diagnostic> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("lists and maps are nested more than {MAX_DEPTH} deep");
            return Err(self.refuse(open.span, &message));
        }
        self.open.push(open);
        Ok(())
    }

    fn pop(&mut self, end: Span) -> Result<(), Diagnostic> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let span = Span { end_line: end.end_line, end_column: end.end_column, ..open.span };
        let content = match open.kind {
            OpenKind::List(items) => Content::List(items),
            OpenKind::Map { entries, merges, .. } => Content::Map(self.merge(entries, merges, span)?),
        };
        let size = match &content {
            Content::List(items) => items.iter().map(|item| item.size).fold(1, usize::saturating_add),
            Content::Map(entries) => {
                entries.iter().map(|entry| entry.value.size).fold(1, usize::saturating_add)
            }
            Content::Scalar(_) => 1,
        };
        self.complete(Arc::new(Node { span, content, size }), open.anchor)
    }

    fn complete(&mut self, node: Arc<Node>, anchor: usize) -> Result<(), Diagnostic> {
        if anchor > 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        match self.open.last_mut() {
            None => {
                // An empty document, as between two `---`, is not a mistake.
                let empty = matches!(&node.content, Content::Scalar(scalar) if scalar.plain && scalar.text.is_empty());
                if !empty {
                    self.documents.push(node);
                }
                Ok(())
            }
            Some(Open { kind: OpenKind::List(items), .. }) => {
                items.push(node);
                Ok(())
            }
            Some(Open { kind: OpenKind::Map { entries, key, merges }, .. }) => {
                match key.take() {
                    Some((name, _)) if name.plain && name.text == "<<" => merges.push(node),
                    Some((name, key_span)) => {
                        entries.push(Entry { key: name, key_span, value: node, merged: false });
                    }
                    None => match &node.content {
                        Content::Scalar(scalar) => *key = Some((scalar.clone(), node.span)),
                        _ => {
                            return Err(self.refuse(node.span, "a list or a map cannot be a field name"));
                        }
                    },
                }
                Ok(())
            }
        }
    }

    /// Adds the fields of merge keys that the map does not have itself, earlier merges first.
    fn merge(
        &mut self,
        mut entries: Vec<Entry>,
        merges: Vec<Arc<Node>>,
        span: Span,
    ) -> Result<Vec<Entry>, Diagnostic> {
        if merges.is_empty() {
            return Ok(entries);
        }
        let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.text.clone()).collect();
        for merge in merges {
            let sources: &[Arc<Node>] = match &merge.content {
                Content::List(items) => items,
                _ => std::slice::from_ref(&merge),
            };
            for source in sources {
                let Content::Map(fields) = &source.content else {
                    return Err(self.refuse(source.span, "`<<` merges maps, and this is not a map"));
                };
                self.count_alias(source.size, span)?;
                for field in fields {
                    if known.insert(field.key.text.clone()) {
                        entries.push(Entry { merged: true, ..field.clone() });
                    }
                }
            }
        }
        Ok(entries)
    }

    fn count_alias(&mut self, nodes: usize, span: Span) -> Result<(), Diagnostic> {
        self.alias_nodes = self.alias_nodes.saturating_add(nodes);
        if self.alias_nodes > MAX_ALIAS_NODES {
            let message = format!("aliases add more than {MAX_ALIAS_NODES} values to this document");
            return Err(self.refuse(span, &message));
        }
        Ok(())
    }

    fn is_plain(&self, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<bool, Diagnostic> {
        match tag {
            None => Ok(style == ScalarStyle::Plain),
            Some(tag) if tag.is_yaml_core_schema() => match tag.suffix.as_str() {
                "str" => Ok(false),
                "int" | "float" | "bool" | "null" => Ok(true),
                _ => Err(self.refuse(span, "this tag is not supported")),
            },
            Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Ok(false),
            Some(_) => Err(self.refuse(span, "this tag is not supported")),
        }
    }

    fn check_collection_tag(&self, tag: Option<&Tag>, name: &str, span: Span) -> Result<(), Diagnostic> {
        match tag {
            None => Ok(()),
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == name => Ok(()),
            Some(_) => Err(self.refuse(span, "this tag is not supported")),
        }
    }
}

/// The parser library extends a scalar's span over the blanks and the comment after it.
fn scalar_span(span: Span, text: &str, style: ScalarStyle) -> Span {
    if style == ScalarStyle::Plain && !text.contains('\n') && span.line == span.end_line {
        let width = text.chars().count();
        return Span { end_column: span.end_column.min(span.column + width.max(1)), ..span };
    }
    span
}
