//! What people see of a lab coming up: one line per step, with how long it took. Colours only on a terminal.

use std::io::{IsTerminal as _, Write};
use std::time::Instant;

/// Where lines go.
pub struct Screen {
    out: Box<dyn Write + Send>,
    colours: bool,
    quiet: bool,
    last: Instant,
    begun: Instant,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("colours", &self.colours).finish_non_exhaustive()
    }
}

impl Screen {
    /// Standard output.
    #[must_use]
    pub fn stdout() -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = std::io::stdout().is_terminal() && !no_colour;
        Self::new(Box::new(std::io::stdout()), colours)
    }

    /// Anywhere.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, colours: bool) -> Self {
        Self { out, colours, quiet: false, last: Instant::now(), begun: Instant::now() }
    }

    /// Steps are not shown.
    #[must_use]
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Whether colours are shown.
    #[must_use]
    pub fn colours(&self) -> bool {
        self.colours
    }

    /// Seconds since the beginning.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        if !self.quiet {
            let line =
                if self.colours { format!("\n\x1b[1m{text}\x1b[0m\n") } else { format!("\n== {text}\n") };
            self.print(&line);
        }
    }

    /// A step that is done.
    pub fn done(&mut self, text: &str) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        if !self.quiet {
            let sign = if self.colours { "\x1b[32m✓\x1b[0m" } else { "✓" };
            self.print(&format!("  {sign} {text} ({seconds:.1} s)\n"));
        }
    }

    /// A step that failed.
    pub fn failed(&mut self, text: &str) {
        let sign = if self.colours { "\x1b[31m✕\x1b[0m" } else { "✕" };
        self.print(&format!("  {sign} {text}\n"));
    }

    /// A remark.
    pub fn say(&mut self, text: &str) {
        if !self.quiet {
            self.print(&format!("  {text}\n"));
        }
    }

    /// Text as it is, moved to the right.
    pub fn indented(&mut self, text: &str) {
        for line in text.lines() {
            self.print(&if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") });
        }
    }

    /// Text as it is.
    pub fn print(&mut self, text: &str) {
        // A reader that went away must not stop the lab from being taken down.
        let _ = self.out.write_all(text.as_bytes());
        let _ = self.out.flush();
    }
}
