//! Paths while walking: a chain of borrowed segments on the stack, turned into text only when a mistake is found.
//!
//! Most fields of most files are right; building a path string for each of them would be the main cost of reading.

use crate::errors::FieldPath;

/// One step on the way from the object to a field.
#[derive(Clone, Copy)]
pub(super) enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, usize),
    Entry(&'a Trail<'a>, &'a str),
}

impl Trail<'_> {
    pub(super) fn path(&self) -> FieldPath {
        match self {
            Self::Root => FieldPath::root(),
            Self::Field(parent, name) => parent.path().child(name),
            Self::Item(parent, index) => parent.path().index(*index),
            Self::Entry(parent, key) => parent.path().key(key),
        }
    }
}

/// A segment of a path's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    Name(&'a str),
    /// What stood in brackets: the index of a list, or the key of a map.
    Bracket(&'a str),
}

/// Takes a path such as `spec.ingress[0].source` or `metadata.labels[a.b/c]` apart.
pub(super) fn segments(path: &str) -> Vec<Segment<'_>> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            // A key may itself hold brackets: the last one before the next segment closes it.
            let end = after
                .match_indices(']')
                .map(|(at, _)| at)
                .find(|at| matches!(after.as_bytes().get(at + 1), None | Some(b'.' | b'[')))
                .unwrap_or(after.len());
            segments.push(Segment::Bracket(&after[..end]));
            rest = after.get(end + 1..).unwrap_or("");
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end > 0 {
                segments.push(Segment::Name(&name[..end]));
            }
            rest = &name[end..];
            if end == 0 && rest.starts_with('.') {
                rest = &rest[1..];
            }
        }
    }
    segments
}

/// Whether one path is the other or lies below it.
pub(super) fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor)
        .is_some_and(|rest| ancestor.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}
