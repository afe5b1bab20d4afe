//! How each kind of parameter is read, by the rules and with the messages of Calico.
//!
//! A kind is a small value with limits; it knows how to read a text and what to say about itself in the reference. The
//! word `none` and empty texts are the resolver's business and never arrive here.

pub(crate) mod lists;
pub(crate) mod patterns;
pub(crate) mod ranges;
pub(crate) mod scalars;
#[cfg(test)]
mod tests;
pub(crate) mod texts;

use std::fmt;

/// What parsing needs to know about the machine.
pub trait Surroundings {
    /// The machine's name.
    fn hostname(&self) -> String;
    /// Whether a file can be found at this path.
    fn file_exists(&self, path: &str) -> bool;
    /// The path of the program of this name: beside our own program, or on the search path.
    fn find_program(&self, name: &str) -> Option<String>;
}

/// A machine without a name and without files, for values that need neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSurroundings;

impl Surroundings for NoSurroundings {
    fn hostname(&self) -> String {
        String::new()
    }

    fn file_exists(&self, _path: &str) -> bool {
        false
    }

    fn find_program(&self, _name: &str) -> Option<String> {
        None
    }
}

/// A kind of parameter.
pub(crate) trait Kind {
    /// What a parameter of this kind holds. Its default is what `none` stands for.
    type Value;

    /// Reads a text.
    fn parse(&self, text: &str, around: &dyn Surroundings) -> Result<Self::Value, Refusal>;

    /// Reads the default that is in the table, without looking at the machine.
    fn parse_default(&self, text: &str) -> Result<Self::Value, Refusal> {
        self.parse(text, &NoSurroundings)
    }

    /// What texts are read, for the reference.
    fn accepts(&self) -> String;
}

/// Why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// For this reason; the message names the parameter and its text.
    Value(String),
    /// As above, but the message names only this part of the text.
    Part(String, String),
    /// With this message, which stands alone.
    Whole(String),
}

impl Refusal {
    /// Refused for this reason.
    pub(crate) fn value(reason: impl Into<String>) -> Self {
        Self::Value(reason.into())
    }

    /// The message of Calico.
    pub(crate) fn message(&self, parameter: &str, text: &str) -> String {
        let about = |text: &str, reason: &str| {
            format!("failed to parse config parameter {parameter}; value {}: {reason}", GoQuoted(text))
        };
        match self {
            Self::Value(reason) => about(text, reason),
            Self::Part(part, reason) => about(part, reason),
            Self::Whole(message) => message.clone(),
        }
    }
}

/// A text in quotes as Go writes them.
struct GoQuoted<'a>(&'a str);

impl fmt::Display for GoQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{b}' => f.write_str("\\v")?,
                control if u32::from(control) < 0x20 || control == '\u{7f}' => {
                    write!(f, "\\x{:02x}", u32::from(control))?;
                }
                other => write!(f, "{other}")?,
            }
        }
        f.write_str("\"")
    }
}
