//! A table of measured figures, printed for users and stored as Markdown.
//!
//! Every row contains the figure that it is compared with, measured in the same run: a number alone says little on a
//! shared machine. Goals are printed, never asserted.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The program that a benchmark measures as a separate process: the one named by `TORTIE_BENCH_PROGRAM`, which is what
/// users run, as built by `make build`. Otherwise the benchmark's own program, which contains less but is linked
/// differently.
///
/// # Errors
/// When this process's own program cannot be found.
pub fn measured_program() -> std::io::Result<PathBuf> {
    std::env::var_os("TORTIE_BENCH_PROGRAM").map_or_else(std::env::current_exe, std::path::absolute)
}

/// Rows of measured figures.
#[derive(Clone, Debug)]
pub struct Report {
    name: &'static str,
    rows: Vec<[String; 5]>,
    notes: Vec<String>,
}

impl Report {
    /// An empty report; `name` is the name of its file.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a row: the subject, our figure, the figure it is compared with, the ratio, the goal.
    pub fn row(&mut self, what: &str, ours: &str, compared_with: &str, ratio: &str, goal: &str) {
        self.rows.push([what, ours, compared_with, ratio, goal].map(str::to_owned));
    }

    /// Adds a sentence below the table.
    pub fn note(&mut self, sentence: impl Into<String>) {
        self.notes.push(sentence.into());
    }

    /// The table as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| figure | ours | compared with | ratio | goal |\n| --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }

    /// Writes the table into the folder named by `TORTIE_BENCH_OUT`, if it is set.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn record(&self) -> Result<()> {
        let Some(folder) = std::env::var_os("TORTIE_BENCH_OUT") else { return Ok(()) };
        let file = Path::new(&folder).join(format!("{}.md", self.name));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&file, self.markdown()).with_context(|| format!("writing {}", file.display()))
    }
}

/// The median; 0 for an empty list.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Report, median};

    #[test]
    fn a_report_is_a_table_with_notes() {
        let mut report = Report::new("example");
        report.row("puts/s", "20", "etcd: 10", "2.0", "at least 2");
        report.note("Two rounds.");
        assert!(
            report.markdown().ends_with("| puts/s | 20 | etcd: 10 | 2.0 | at least 2 |\n\nTwo rounds.\n")
        );
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
