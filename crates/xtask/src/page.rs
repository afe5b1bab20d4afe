//! The page of `whisker` is bundled by tools that nothing else needs, and checked in: it is compared if the tools are
//! available.

use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::Command;

/// The script that builds the bundle.
const SCRIPT: &str = "scripts/page.sh";

/// The problems of the bundle.
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
