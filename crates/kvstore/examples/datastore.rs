//! `tortie datastore` on its own, for this crate's tests and benchmarks to start and kill.

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: kvstore::cli::Arguments,
}

fn main() -> anyhow::Result<()> {
    kvstore::cli::run(Cli::parse().arguments)
}
