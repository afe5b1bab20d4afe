//! Formats an error and its causes as one line in which each cause appears once.
//!
//! Many error types include their source in their own text and also return it as source; printing the whole chain would
//! then repeat everything. A cause that the line already contains is left out.

use std::error::Error;
use std::fmt;

/// Shows an error and its causes, from the outermost to the innermost.
pub struct Causes<'a>(&'a (dyn Error + 'a));

/// Returns the error with its causes, for a log line or a terminal.
#[must_use]
pub fn causes<'a>(error: &'a (dyn Error + 'a)) -> Causes<'a> {
    Causes(error)
}

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            let text = text.trim();
            if !line.contains(text) {
                line.push_str(": ");
                line.push_str(text);
            }
            next = cause.source();
        }
        f.write_str(&line)
    }
}

impl fmt::Debug for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with its own text and possibly a cause.
    #[derive(Debug)]
    struct Level(&'static str, Option<Box<Level>>);

    impl fmt::Display for Level {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Level {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn line(texts: &[&'static str]) -> String {
        let chain = texts.iter().rev().fold(None, |cause, text| Some(Box::new(Level(text, cause))));
        causes(&*chain.expect("at least one")).to_string()
    }

    #[test]
    fn each_cause_appears_once() {
        for (chain, expected) in [
            (&["cannot listen"][..], "cannot listen"),
            (&["cannot listen", "in use"], "cannot listen: in use"),
            (&["cannot listen: in use", "in use"], "cannot listen: in use"),
            (
                &["start: cannot listen: in use", "cannot listen: in use", "in use"],
                "start: cannot listen: in use",
            ),
            (&["start", "cannot listen: in use", "in use"], "start: cannot listen: in use"),
            (&["start", "start", "in use"], "start: in use"),
            (&["start", "", "in use"], "start: in use"),
            (
                &["cannot listen: in use; choose another port", "in use"],
                "cannot listen: in use; choose another port",
            ),
        ] {
            assert_eq!(line(chain), expected, "{chain:?}");
        }
    }
}
