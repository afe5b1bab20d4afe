//! Lines of a file.

use std::fmt;

/// A text that grows by lines.
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

    /// Several lines at once; each ends with a line break.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// In the order of Calico's keys, where networks are text with a dash for the slash.
pub(super) fn by_key<T>(mut items: Vec<T>, prefix: impl Fn(&T) -> bgp::Prefix) -> Vec<T> {
    items.sort_by_cached_key(|item| prefix(item).to_string().replace('/', "-"));
    items
}
