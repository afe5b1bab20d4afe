//! Lines of a file.

use std::fmt;

/// A text that is built line by line.
#[derive(Default)]
pub(super) struct Lines(String);

impl Lines {
    pub(super) fn line(&mut self, line: impl fmt::Display) -> &mut Self {
        use fmt::Write as _;
        let _ = writeln!(self.0, "{line}");
        self
    }

    pub(super) fn lines<T: fmt::Display>(&mut self, lines: impl IntoIterator<Item = T>) -> &mut Self {
        for line in lines {
            self.line(line);
        }
        self
    }

    /// Adds several lines at once; each ends with a line break.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Sorts by Calico's keys, in which networks are text with a dash instead of the slash.
pub(super) fn by_key<T>(mut items: Vec<T>, prefix: impl Fn(&T) -> bgp::Prefix) -> Vec<T> {
    items.sort_by_cached_key(|item| prefix(item).to_string().replace('/', "-"));
    items
}
