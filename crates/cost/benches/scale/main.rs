//! Clusters of up to 5,000 nodes on one machine: the real bytes, the real graph of one node, and time that only counts.
//!
//! Each size runs in a process of its own, so that its memory is its own. All nodes are alike, so one of them is measured;
//! what a Typha spends on a client more is measured by writing the same messages to a socket. Processor time is that of the one
//! thread that does the work: what runs beside it on the machine changes it little.
//!
//! With `TORTIE_BENCH_OUT=<folder>` the tables and pictures are written there; `make bench scale` puts them into
//! `docs/scale.md`.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod lines;
mod page;
mod run;

use anyhow::{Context as _, Result, ensure};
use run::Figures;
use testkit::heap;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// The variable that asks this program for one size.
const SIZE: &str = "TORTIE_SCALE_NODES";
/// The sizes, in nodes.
const SIZES: [usize; 6] = [50, 200, 500, 1000, 2500, 5000];

fn main() -> Result<()> {
    if let Ok(nodes) = std::env::var(SIZE) {
        let figures = run::run(nodes.parse().context("a number of nodes")?)?;
        println!("{}", serde_json::to_string(&figures.to_values())?);
        return Ok(());
    }
    let mut all = Vec::new();
    for nodes in SIZES {
        let output =
            std::process::Command::new(std::env::current_exe()?).env(SIZE, nodes.to_string()).output()?;
        ensure!(output.status.success(), "{nodes} nodes: {}", String::from_utf8_lossy(&output.stderr));
        let values: Vec<f64> = serde_json::from_slice(&output.stdout)?;
        all.push(Figures::from_values(nodes, &values).context("a figure is missing")?);
    }
    let page = page::page(&all);
    print!("{page}");
    if let Some(folder) = std::env::var_os("TORTIE_BENCH_OUT") {
        let folder = std::path::PathBuf::from(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("scale.md"), page)?;
        for (name, picture) in page::pictures(&all) {
            std::fs::write(folder.join(name), picture)?;
        }
    }
    Ok(())
}
