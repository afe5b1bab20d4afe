//! A plugin as a process: takes its environment and standard input, writes its output and returns an exit code.

use crate::{Environment, Outcome};
use std::io::{Read as _, Write as _};

/// Runs a plugin with the environment and standard input of this process and prints its output; returns the exit code.
/// The plugin reads standard input only if input is expected.
#[must_use]
pub fn run(plugin: impl FnOnce(&Environment, fn() -> Vec<u8>) -> Outcome) -> u8 {
    let environment: Environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let outcome = plugin(&environment, standard_input);
    let written = std::io::stdout().write_all(&outcome.stdout).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(outcome.stderr.as_bytes());
    if written.is_err() { 1 } else { outcome.exit }
}

fn standard_input() -> Vec<u8> {
    // Enough for the input of runtimes, so that no growing is necessary.
    let mut input = Vec::with_capacity(16 * 1024);
    // A broken standard input counts as an empty configuration, which is reported as such.
    let _ = std::io::stdin().read_to_end(&mut input);
    input
}
