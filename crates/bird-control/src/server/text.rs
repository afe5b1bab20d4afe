//! Lines with codes for BIRD's clients: `1002-first`, then ` more` while the code stays the same, then `0000 ` at the
//! end.

use std::fmt::{Arguments, Write as _};

/// An answer being built.
#[derive(Default)]
pub(super) struct Text {
    out: String,
    code: Option<u16>,
}

impl Text {
    /// Adds a line that is followed by others.
    pub(super) fn line(&mut self, code: u16, line: Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = if self.code == Some(code) {
            writeln!(self.out, " {line}")
        } else {
            writeln!(self.out, "{code:04}-{line}")
        };
        self.code = Some(code);
    }

    /// Adds the last line.
    pub(super) fn end(&mut self, code: u16, line: Arguments<'_>) {
        let _ = writeln!(self.out, "{code:04} {line}");
        self.code = None;
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}
