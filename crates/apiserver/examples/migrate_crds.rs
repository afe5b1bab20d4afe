//! `tortie migrate crds` as a separate program that this crate's tests start and kill.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: apiserver::migration::Arguments,
}

fn main() -> anyhow::Result<ExitCode> {
    apiserver::migration::main(&Cli::parse().arguments)
}
