//! Runs every benchmark and records what they printed in `docs/benchmarks.md`.
//!
//! Each benchmark is a program that prints a table with its floor or its peer measured in the same run, and writes the
//! same rows, as Markdown, into the folder named by `TORTIE_BENCH_OUT`. Benchmarks that start a separate process
//! measure the program that users run: `make build` builds it first, and `TORTIE_BENCH_PROGRAM` names it; set that
//! variable to measure another program. No number is judged here.

mod compare;
mod figures;
mod statistics;

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The benchmarks: crate, bench name, heading.
const BENCHES: [(&str, &str, &str); 21] = [
    ("kvstore", "store", "Embedded store against etcd"),
    ("datastore", "list", "Listing and decoding policies"),
    ("calicoctl", "ctl", "calicoctl"),
    ("selector", "selector", "Selectors"),
    ("ipam", "ipam", "Address management"),
    ("cni", "cni", "CNI plugins"),
    ("follow", "feed", "Feeds"),
    ("calc", "calc", "Calculation graph: policy"),
    ("calc", "network", "Calculation graph: routes"),
    ("rib", "rib", "BGP: routing tables"),
    ("speaker", "speaker", "BGP: the speaker"),
    ("netfilter", "nftables", "nftables driver"),
    ("felix", "felix", "Felix"),
    ("bpf-services", "services", "eBPF: services"),
    ("bpf-conntrack", "sweep", "eBPF: sweep of connections"),
    ("cost", "node", "A node"),
    ("typha", "typha", "Typha"),
    ("goldmane", "goldmane", "Goldmane"),
    ("apiserver", "apiserver", "API server"),
    ("kube-controllers", "controllers", "kube-controllers"),
    ("kube-controllers", "gc", "kube-controllers: addresses of a deleted node"),
];

/// The variable that names the program to measure.
const PROGRAM: &str = "TORTIE_BENCH_PROGRAM";

/// Builds the program that users run.
fn release(root: &Path) -> Result<PathBuf> {
    let status =
        Command::new("make").arg("build").current_dir(root).status().context("running make build")?;
    if !status.success() {
        bail!("make build failed");
    }
    Ok(root.join("dist/tortie"))
}

/// The section of the page that another command writes (`make e2e E2E=figures`, by hand): it is kept.
const KEPT: &str = "\n## A real cluster\n";

/// Runs all benchmarks and records them, or runs those of the named crates without recording. `compare BASE [CRATE...]`
/// runs them alternating with those of another commit; `scale` writes the page about large clusters.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    match arguments {
        ["compare", base, only @ ..] => {
            known(only)?;
            let wanted: Vec<_> =
                BENCHES.into_iter().filter(|(name, ..)| only.is_empty() || only.contains(name)).collect();
            compare::run(root, base, &wanted)
        }
        ["compare"] => bail!("compare with what? make bench compare BASE, where BASE is a commit"),
        ["scale"] => scale(root),
        only => measure(root, only),
    }
}

/// Refuses crates that have no benchmark.
fn known(only: &[&str]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|name| !BENCHES.iter().any(|(package, ..)| package == *name)) {
        let known: BTreeSet<&str> = BENCHES.iter().map(|(package, ..)| *package).collect();
        bail!("no benchmark belongs to {unknown:?}; crates with benchmarks are {known:?}");
    }
    Ok(())
}

/// The line of `docs/scale.md` that the measured tables follow.
const MEASURED: &str = "<!-- measured: written by make bench scale -->\n";

/// Simulates clusters of up to 5,000 nodes, and writes their cost into `docs/scale.md`.
fn scale(root: &Path) -> Result<()> {
    let out = root.join("target/bench-results");
    std::fs::create_dir_all(&out)?;
    let mut command = crate::cargo();
    command.args(["bench", "--locked", "-p", "cost", "--bench", "scale"]);
    let status = command.env("TORTIE_BENCH_OUT", &out).current_dir(root).status()?;
    if !status.success() {
        bail!("the benchmark failed");
    }
    let path = root.join("docs/scale.md");
    let page = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (words, _) = page.split_once(MEASURED).context("docs/scale.md has no place for the tables")?;
    let tables = std::fs::read_to_string(out.join("scale.md")).context("the benchmark left no tables")?;
    for picture in ["scale-memory.svg", "scale-work.svg"] {
        std::fs::copy(out.join(picture), root.join("docs/plots").join(picture))
            .with_context(|| format!("the benchmark left no {picture}"))?;
    }
    crate::write_whole(&path, format!("{words}{MEASURED}\n{}\n", tables.trim()).as_bytes())?;
    println!("bench: recorded in docs/scale.md");
    Ok(())
}

fn measure(root: &Path, only: &[&str]) -> Result<()> {
    known(only)?;
    let out = root.join("target/bench-results");
    std::fs::create_dir_all(&out)?;
    let mut page = String::from(
        "# Benchmarks\n\nWritten by `make bench`. Ratios within one run are what counts: each row has its floor or its peer measured \
         beside it, on the same machine, in the same minutes. Processes are the program of `make build`; what is measured inside \
         of a benchmark is optimised likewise, but linked without further optimisation.\n",
    );
    let program = match std::env::var_os(PROGRAM) {
        Some(program) => std::path::absolute(program)?,
        None => release(root)?,
    };
    // One build for all: separate builds would compile the shared dependencies once per package and its features.
    let wanted = BENCHES.iter().filter(|(package, ..)| only.is_empty() || only.contains(package));
    let mut command = crate::cargo();
    command.args(["bench", "--locked"]);
    for (package, bench, _) in wanted {
        command.args(["-p", package, "--bench", bench]);
    }
    let status = command
        .env("TORTIE_BENCH_OUT", &out)
        .env(PROGRAM, program)
        .env("KVSTORE_BENCH_REPORT", out.join("store.md"))
        .current_dir(root)
        .status()
        .context("running the benchmarks")?;
    if !status.success() {
        bail!("a benchmark failed");
    }
    if !only.is_empty() {
        return Ok(());
    }
    for (package, bench, heading) in BENCHES {
        let result = out.join(format!("{bench}.md"));
        let rows = std::fs::read_to_string(&result)
            .with_context(|| format!("the benchmark {bench} of {package} left no {}", result.display()))?;
        write!(page, "\n## {heading}\n\n{}\n", rows.trim())?;
    }
    std::fs::create_dir_all(root.join("docs"))?;
    let path = root.join("docs/benchmarks.md");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((_, kept)) = before.split_once(KEPT) {
        let kept = kept.split("\n## ").next().unwrap_or_default();
        writeln!(page, "{KEPT}{}", kept.trim_end())?;
    }
    std::fs::write(&path, page)?;
    plots(root)?;
    println!("bench: recorded in docs/benchmarks.md");
    Ok(())
}

/// Draws each section of the benchmarks page and inserts the pictures below the headings.
pub(crate) fn plots(root: &Path) -> Result<()> {
    let path = root.join("docs/benchmarks.md");
    let page = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let folder = root.join("docs/plots");
    std::fs::create_dir_all(&folder)?;
    let mut sections = page.split("\n## ");
    let mut drawn = sections.next().unwrap_or_default().to_owned();
    for section in sections {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        // Remove the picture of an earlier run first.
        let body: String = body
            .lines()
            .filter(|line| !line.starts_with("!["))
            .fold(String::new(), |text, line| text + line + "\n");
        let body = body.trim();
        write!(drawn, "\n## {heading}\n\n")?;
        if let Some(picture) = crate::plots::section(heading, body) {
            let name: String = heading
                .to_lowercase()
                .split(|letter: char| !letter.is_ascii_alphanumeric())
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join("-");
            std::fs::write(folder.join(format!("{name}.svg")), picture)?;
            write!(drawn, "![{heading}: ratios](plots/{name}.svg)\n\n")?;
        }
        writeln!(drawn, "{body}")?;
    }
    std::fs::write(&path, drawn)?;
    Ok(())
}
