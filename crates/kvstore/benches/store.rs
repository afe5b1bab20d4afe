//! Placeholder.
#![expect(missing_docs, reason = "a program")]
fn main() -> anyhow::Result<()> {
    use clap::Parser as _;
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: kvstore::cli::Arguments,
    }
    kvstore::cli::run(Cli::parse_from(std::env::args().skip(1)).args)
}
