//! How a command fails: one message for the user, and an exit code, which is 1 unless the command documents another.

use std::fmt;
use std::process::ExitCode;

/// A message that ends the program with an exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    code: u8,
}

/// A result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this message, and exit code 1.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// An exit code without a message: everything has already been printed.
    #[must_use]
    pub fn silent(code: u8) -> Self {
        Self { message: String::new(), code }
    }

    /// This failure with another exit code.
    #[must_use]
    pub fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The message; empty if everything has already been printed.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(daemon::causes(&error).to_string())
    }
}
