//! The frame of programs that compare ours with Calico's: they run only on request, and their numbers come from the environment.

use anyhow::{Context as _, Result};
use std::io::Write as _;
use std::process::ExitCode;

/// Runs a comparison if the word `compare` is on the command line; otherwise prints that it was not requested.
pub fn compare_on_request(peer: &str, compare: impl FnOnce() -> Result<()>) -> ExitCode {
    if !std::env::args().any(|word| word == "compare") {
        let _ =
            writeln!(std::io::stdout(), "nothing is measured here; the word `compare` compares with {peer}");
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reads a number from an environment variable.
///
/// # Errors
/// When the variable is set to something else.
pub fn number_from_environment(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}
