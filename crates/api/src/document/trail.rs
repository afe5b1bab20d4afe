//! Paths while walking: a chain of borrowed segments on the stack, only converted to text when a mistake is found.
//!
//! Most fields of most files are correct; building a path string for each of them would be the main cost of reading.

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
    /// The text in brackets: the index of a list, or the key of a map.
    Bracket(&'a str),
}

/// Splits a path such as `spec.ingress[0].source` or `metadata.labels[a.b/c]`.
pub(super) fn segments(path: &str) -> Vec<Segment<'_>> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            // A key may itself contain brackets: the last one before the next segment closes it.
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

/// Whether one path is the other or below it.
pub(super) fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor)
        .is_some_and(|rest| ancestor.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The path itself and every path around it, the object itself included.
pub(super) fn around(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices(['.', '[']).map(|(at, _)| at);
    std::iter::once(0).chain(ends).chain(std::iter::once(path.len())).map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_into_segments() {
        use Segment::{Bracket, Name};
        let expected = [Name("spec"), Name("ingress"), Bracket("0"), Name("source")];
        assert_eq!(segments("spec.ingress[0].source"), expected);
        assert_eq!(segments("metadata.labels[a.b/c]"), [Name("metadata"), Name("labels"), Bracket("a.b/c")]);
        assert_eq!(segments("[1][2]"), [Bracket("1"), Bracket("2")]);
        assert_eq!(segments(""), []);
        for odd in ["[", "]", "..", "a.", "a[", "a[]]", ".[.", "[[]]"] {
            // Paths are ours, but keys in them are the user's: nothing may panic.
            segments(odd);
        }
    }

    #[test]
    fn paths_around_a_path() {
        assert_eq!(around("a.b[0].c").collect::<Vec<_>>(), ["", "a", "a.b", "a.b[0]", "a.b[0].c"]);
        assert!(is_within("a.b", "a") && is_within("a[0]", "a") && is_within("a", "a") && is_within("a", ""));
        assert!(!is_within("ab", "a") && !is_within("a", "a.b"));
    }
}
