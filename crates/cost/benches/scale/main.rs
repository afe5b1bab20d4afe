//! Clusters of up to 5,000 nodes on one machine: the real bytes, the real graph of one node, and simulated time.
//!
//! Typha and a node of each size run in separate processes, so that their memory is measured separately. All nodes are
//! alike, so one of them is measured; a Typha's cost per additional client is measured by writing the same messages to
//! a socket. Processor time is that of the one thread that does the work: other load on the machine changes it little.
//!
//! With `TORTIE_BENCH_OUT=<folder>` the tables and pictures are written there; `make bench scale` puts them into
//! `docs/scale.md`.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod lines;
mod page;
mod run;

use anyhow::{Context as _, Result, ensure};
use run::Figures;
use std::path::PathBuf;
use testkit::{Folder, heap};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// The variables that request one part of one size from this program.
const SIZE: &str = "TORTIE_SCALE_NODES";
const PART: &str = "TORTIE_SCALE_PART";
const FOLDER: &str = "TORTIE_SCALE_FOLDER";
/// The sizes, in nodes.
const SIZES: [usize; 6] = [50, 200, 500, 1000, 2500, 5000];

fn main() -> Result<()> {
    if let Ok(nodes) = std::env::var(SIZE) {
        let nodes = nodes.parse().context("a number of nodes")?;
        let folder = PathBuf::from(std::env::var_os(FOLDER).context("a folder")?);
        let figures = match std::env::var(PART).as_deref() {
            Ok("typha") => run::hub(nodes, &folder)?,
            _ => run::member(nodes, &folder)?,
        };
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(());
    }
    let folder = Folder::new("scale")?;
    let mut all = Vec::new();
    for nodes in SIZES {
        all.push(run::together(part("typha", nodes, &folder)?, part("node", nodes, &folder)?)?);
    }
    let page = page::page(&all);
    print!("{page}");
    if let Some(folder) = std::env::var_os("TORTIE_BENCH_OUT") {
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("scale.md"), page)?;
        for (name, picture) in page::pictures(&all) {
            std::fs::write(folder.join(name), picture)?;
        }
    }
    Ok(())
}

/// Runs one part in a separate process.
fn part(name: &str, nodes: usize, folder: &Folder) -> Result<Figures> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.env(SIZE, nodes.to_string()).env(PART, name).env(FOLDER, folder.path());
    let output = command.output()?;
    ensure!(output.status.success(), "{name}, {nodes} nodes: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("figures")
}
