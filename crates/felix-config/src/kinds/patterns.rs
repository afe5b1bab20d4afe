//! Regular expressions, alone and in lists of interface names.

use super::texts::is_plain_interface;
use super::{Kind, Refusal, Surroundings};
use crate::values::Pattern;

/// A regular expression.
pub(crate) struct RegularExpression;

impl Kind for RegularExpression {
    type Value = Option<Pattern>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<Pattern>, Refusal> {
        Pattern::new(text).map(Some).ok_or_else(|| Refusal::value("invalid regexp"))
    }

    fn accepts(&self) -> String {
        "a regular expression".to_owned()
    }
}

/// Interfaces by name, or by a regular expression between slashes.
pub(crate) struct InterfacePatterns;

impl Kind for InterfacePatterns {
    type Value = Vec<Pattern>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<Pattern>, Refusal> {
        let patterns: Option<Vec<Pattern>> = text.split(',').map(interface_pattern).collect();
        patterns.ok_or_else(|| Refusal::value("list contains invalid Linux interface name or regex pattern"))
    }

    fn accepts(&self) -> String {
        "names of interfaces, or regular expressions between slashes, separated by commas".to_owned()
    }
}

fn interface_pattern(item: &str) -> Option<Pattern> {
    let between_slashes = item.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    match between_slashes.filter(|inner| !inner.is_empty() && !inner.contains(is_go_space)) {
        Some(inner) => Pattern::new(inner),
        None if is_plain_interface(item) => Pattern::exactly(item),
        None => None,
    }
}

/// The characters that `\s` matches in Go.
pub(super) fn is_go_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{c}')
}
