//! Repository chores that developers and CI run in the same way.
//!
//! `cargo xtask tidy` checks rules that no compiler knows; `generate` writes the generated files; `bpf` compiles the
//! programs of the eBPF dataplane; `test` runs all tests and prints one count; `bench` runs all benchmarks and records
//! them; `plots` redraws the recorded figures; `dependencies` checks licences and advisories; `image` writes container
//! images, `deb` a Debian package. None of them installs anything: `make setup` does.

#![expect(clippy::print_stdout, reason = "a command line program that talks to people")]

mod bench;
mod bpf;
mod deb;
mod dependencies;
mod deploy;
mod doors;
mod environment;
mod generate;
mod image;
mod layers;
mod links;
mod metrics_page;
mod page;
mod plots;
mod programs;
mod quotes;
mod surface;
mod test;
mod tidy;
mod words;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = repository_root()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&root),
        ["generate"] => generate::run(&root),
        ["bpf"] => bpf::run(&root),
        ["test", rest @ ..] => test::run(&root, rest),
        ["bench", rest @ ..] => bench::run(&root, rest),
        ["dependencies"] => dependencies::run(&root),
        ["plots"] => bench::plots(&root),
        ["image", rest @ ..] => image::run(&root, rest),
        ["deb", rest @ ..] => deb::run(&root, rest),
        other => {
            bail!(
                "unknown chore {other:?}; known are: tidy, generate, bpf, test, bench, plots, dependencies, image, deb"
            )
        }
    }
}

/// Cargo, to be run on the workspace. `cargo xtask` sets variables about its own package; build scripts of dependencies
/// that read them would run again, and everything that depends on them would be built twice.
fn cargo() -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Writes a file atomically: a reader sees either the old or the new one.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.with_context(|| format!("writing {}", path.display()))
}

/// The folder of the workspace's Cargo.toml.
fn repository_root() -> Result<PathBuf> {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest.ancestors().nth(2).context("xtask lives two folders below the root")?.to_owned())
}
