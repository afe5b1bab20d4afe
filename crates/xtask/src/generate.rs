//! Files that are generated and committed, so that people can read them without building: written by
//! `cargo xtask generate`, compared by `cargo xtask tidy`.

use anyhow::{Context, Result};
use std::path::Path;

/// The generated files: path and contents.
fn files() -> Vec<(&'static str, String)> {
    vec![("deploy/crds.yaml", api::crds::to_yaml())]
}

/// Writes all generated files, each by rename.
pub(crate) fn run(root: &Path) -> Result<()> {
    for (name, text) in files() {
        let path = root.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, &text).with_context(|| format!("writing {name}"))?;
        std::fs::rename(&temporary, &path).with_context(|| format!("writing {name}"))?;
        println!("generate: {name}, {} lines", text.lines().count());
    }
    Ok(())
}

/// Generated files that are not what the code says.
pub(crate) fn stale(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (name, text) in files() {
        if std::fs::read_to_string(root.join(name)).unwrap_or_default() != text {
            problems.push(format!("{name} is not what the code generates: run `cargo xtask generate`"));
        }
    }
    Ok(problems)
}
