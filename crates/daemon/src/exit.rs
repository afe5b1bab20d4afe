//! How a command ends: it prints its output, or why it failed.

use crate::causes;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The exit code that requests an immediate restart from a supervisor, as when Calico's Felix ends on a changed
/// configuration.
pub const RESTART: u8 = 129;

/// Prints to standard output. A reader that closed its end (`tortie crds | head`) does not fail the command.
///
/// # Errors
/// When the text cannot be written for any other reason.
pub fn print(text: &str) -> io::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints to standard error why a program failed.
pub fn fail(program: &str, error: &dyn Error) -> ExitCode {
    // If standard error is gone, only the exit code shows the failure.
    let _ = writeln!(io::stderr(), "{program}: {}", causes(error));
    ExitCode::FAILURE
}
