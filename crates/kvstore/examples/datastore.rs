//! `tortie datastore` by itself, for tests and benchmarks of this crate to start and kill.

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: kvstore::cli::Arguments,
}

fn main() -> anyhow::Result<()> {
    kvstore::cli::run(Cli::parse().arguments)
}
