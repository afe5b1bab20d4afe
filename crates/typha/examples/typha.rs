//! Typha as a process, for tests that kill it.

use clap::Parser as _;
use std::process::ExitCode;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    arguments: typha::cli::Arguments,
}

fn main() -> anyhow::Result<ExitCode> {
    typha::cli::main(&Line::parse().arguments, "test")
}
