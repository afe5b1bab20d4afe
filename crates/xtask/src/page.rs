//! The page of `whisker` is bundled by tools that nothing else needs, and checked in: compared where the tools are there.

use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::Command;

/// The script that bundles.
const SCRIPT: &str = "scripts/page.sh";

/// What is wrong with the bundle.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let output = Command::new(root.join(SCRIPT))
        .arg("--check")
        .current_dir(root)
        .output()
        .with_context(|| format!("running {SCRIPT}"))?;
    if output.status.success() {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        return Ok(Vec::new());
    }
    let problems = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(vec![format!("{SCRIPT} --check: {problems}")])
}
