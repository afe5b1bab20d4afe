//! Felix as a program of its own, for tests to start, ask and end.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    felix::cli::main(&arguments)
}
