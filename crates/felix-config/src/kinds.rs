//! How each kind of parameter is parsed, with Calico's rules and messages.
//!
//! A kind is a small value with limits; it parses texts and describes itself in the reference. The word `none` and
//! empty texts are handled by the resolver and never arrive here.

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
    /// The hostname.
    fn hostname(&self) -> String;
    /// Whether a file exists at this path.
    fn file_exists(&self, path: &str) -> bool;
    /// The path of the program of this name: beside our own program, or on the search path.
    fn find_program(&self, name: &str) -> Option<String>;
}

/// A machine without a name and files, for values that need neither.
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
    /// The type of its parameters' values. `none` stands for the default of this type.
    type Value;

    /// Parses a text.
    fn parse(&self, text: &str, around: &dyn Surroundings) -> Result<Self::Value, Refusal>;

    /// Parses the default from the table, without looking at the machine.
    fn parse_default(&self, text: &str) -> Result<Self::Value, Refusal> {
        self.parse(text, &NoSurroundings)
    }

    /// The accepted texts, for the reference.
    fn accepts(&self) -> String;
}

/// Why a text was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A reason; the message names the parameter and its text.
    Value(String),
    /// A reason; the message names the parameter and only this part of the text.
    Part(String, String),
    /// The complete message.
    Whole(String),
}

impl Refusal {
    /// Rejects the whole text for this reason.
    pub(crate) fn value(reason: impl Into<String>) -> Self {
        Self::Value(reason.into())
    }

    /// Returns Calico's message.
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

/// A text, displayed in quotes as Go writes them.
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
