//! The last words of a command: its output, or why it failed.

use crate::causes;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The exit code that asks a supervisor for a new start at once, as Calico's Felix ends when its configuration changed.
pub const RESTART: u8 = 129;

/// Prints on standard output. A reader that went away (`tortie crds | head`) does not fail the command.
///
/// # Errors
/// When the text cannot be written for another reason.
pub fn print(text: &str) -> io::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints why a program failed, on standard error.
pub fn fail(program: &str, error: &dyn Error) -> ExitCode {
    // Without standard error only the exit code can say it.
    let _ = writeln!(io::stderr(), "{program}: {}", causes(error));
    ExitCode::FAILURE
}
