//! Runs two builds of the benchmarks in turns, to find what became slower or larger since another commit.
//!
//! The other commit is built in a work tree below `target/`. Both sides' programs then run in turn, in an order that
//! changes from round to round, so that other load on the machine affects both alike. A row is reported when its values
//! differ by more than chance and by more than a few per cent. Never fails because of a figure: a person reads the
//! table. Figures that must never grow are counted, not timed, by the tests of `cost`.

use super::figures::{Figure, figures};
use super::statistics::{Verdict, verdict};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often each side runs, unless `TORTIE_COMPARE_ROUNDS` says otherwise.
const ROUNDS: usize = 5;

/// A side: its programs, and their measurements.
struct Side {
    programs: Vec<(String, PathBuf)>,
    folder: PathBuf,
    measured: BTreeMap<(String, String), Vec<Figure>>,
}

/// Compares this tree with a commit, using the benchmarks of the named crates.
pub(crate) fn run(root: &Path, base: &str, benches: &[(&str, &str, &str)]) -> Result<()> {
    let rounds = match std::env::var("TORTIE_COMPARE_ROUNDS") {
        Ok(text) => text.parse().context("TORTIE_COMPARE_ROUNDS is not a number")?,
        Err(_) => ROUNDS,
    };
    let tree = work_tree(root, base)?;
    println!("compare: building {base}, then this tree");
    let mut sides = [
        Side::build(&tree, &root.join("target/compare/target"), benches)?,
        Side::build(root, &root.join("target"), benches)?,
    ];
    for round in 0..rounds {
        println!("compare: round {} of {rounds}", round + 1);
        let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for place in order {
            sides[place].measure()?;
        }
    }
    let [before, after] = sides;
    print!("{}", report(base, &before.measured, &after.measured));
    Ok(())
}

/// Checks the other commit out beside the build results.
fn work_tree(root: &Path, base: &str) -> Result<PathBuf> {
    let tree = root.join("target/compare/tree");
    let git = |arguments: &[&str]| -> Result<()> {
        let status = Command::new("git").args(arguments).current_dir(root).status().context("running git")?;
        if !status.success() {
            bail!("git {} failed", arguments.join(" "));
        }
        Ok(())
    };
    let place = tree.to_str().context("the path of this tree is not text")?;
    git(&["worktree", "prune"])?;
    if tree.exists() {
        git(&["worktree", "remove", "--force", place])?;
    }
    git(&["worktree", "add", "--quiet", "--detach", "--force", place, base])?;
    Ok(tree)
}

impl Side {
    /// Builds the benchmarks of a tree. A benchmark that the other commit does not have yet is left out, with a
    /// message.
    fn build(tree: &Path, target: &Path, benches: &[(&str, &str, &str)]) -> Result<Self> {
        let mut command = crate::cargo();
        command.args(["bench", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
        for (package, bench, _) in benches {
            if tree.join("crates").join(package).join("benches").exists() {
                command.args(["-p", package, "--bench", bench]);
            } else {
                println!("compare: {} has no benchmark {bench}", tree.display());
            }
        }
        let output = command
            .env("CARGO_TARGET_DIR", target)
            .current_dir(tree)
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("running cargo bench")?;
        if !output.status.success() {
            bail!("the benchmarks of {} do not build", tree.display());
        }
        let folder = target.join("compare-results");
        Ok(Self { programs: programs(&output.stdout), folder, measured: BTreeMap::new() })
    }

    /// Runs every benchmark once and keeps its figures.
    fn measure(&mut self) -> Result<()> {
        for (name, program) in &self.programs {
            let _ = std::fs::remove_dir_all(&self.folder);
            std::fs::create_dir_all(&self.folder)?;
            let output = Command::new(program)
                .arg("--bench")
                .env("TORTIE_BENCH_OUT", &self.folder)
                .env("KVSTORE_BENCH_REPORT", self.folder.join("store.md"))
                .output()
                .with_context(|| format!("running {}", program.display()))?;
            if !output.status.success() {
                bail!("the benchmark {name} failed: {}", String::from_utf8_lossy(&output.stderr));
            }
            for file in std::fs::read_dir(&self.folder)?.flatten() {
                let Ok(text) = std::fs::read_to_string(file.path()) else { continue };
                for (row, figure) in figures(&text) {
                    self.measured.entry((name.clone(), row)).or_default().push(figure);
                }
            }
        }
        Ok(())
    }
}

/// The benchmarks that cargo reports as built.
fn programs(messages: &[u8]) -> Vec<(String, PathBuf)> {
    let lines = messages.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|message| message["target"]["kind"][0] == "bench")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect()
}

fn report(
    base: &str,
    before: &BTreeMap<(String, String), Vec<Figure>>,
    after: &BTreeMap<(String, String), Vec<Figure>>,
) -> String {
    let mut text = format!(
        "\nThis tree against {base}; medians, and how likely chance alone would part them so far.\n\n"
    );
    let mut unchanged = 0;
    for ((bench, row), now) in after {
        let Some(then) = before.get(&(bench.clone(), row.clone())) else {
            let _ = writeln!(text, "new        {bench}: {row}");
            continue;
        };
        let values = |figures: &[Figure]| figures.iter().map(|figure| figure.value).collect::<Vec<_>>();
        let Some(unit) = now.first().map(|figure| &figure.unit) else { continue };
        let found = verdict(&values(then), &values(now), unit.more_is_better());
        let word = match found.verdict {
            Verdict::Same => {
                unchanged += 1;
                continue;
            }
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
        };
        let _ = writeln!(
            text,
            "{word:<10} {bench}: {row}: {:.3} to {:.3} {} ({:+.1} %, p = {:.3})",
            found.before,
            found.after,
            unit.name(),
            (found.after / found.before - 1.0) * 100.0,
            found.chance
        );
    }
    for (bench, row) in before.keys().filter(|key| !after.contains_key(*key)) {
        let _ = writeln!(text, "gone       {bench}: {row}");
    }
    let _ = writeln!(text, "{unchanged} row(s) did not change beyond chance.");
    text
}
