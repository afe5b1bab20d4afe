//! Felix as a separate program, for tests to start, query and end.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    felix::cli::main(&arguments)
}
