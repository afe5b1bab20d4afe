//! Commands from the guides, so that the bed runs what users are told to run. A page without the requested command is
//! an error.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The folder of the guides, relative to the folder that `make` runs in.
const FOLDER: &str = "docs";

/// The command lines of a page with this beginning, in order.
pub(crate) fn lines(page: &str, beginning: &str) -> Result<Vec<String>> {
    let path = Path::new(FOLDER).join(page);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let found = commands(&text, beginning);
    ensure!(!found.is_empty(), "{} has no command that begins with {beginning:?}", path.display());
    Ok(found)
}

/// Lines inside code blocks, without comments.
fn commands(text: &str, beginning: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_inside = !is_inside;
        } else if is_inside && line.starts_with(beginning) {
            found.push(line.split("  #").next().unwrap_or(line).trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn only_blocks_count() {
        let text = "tortie a\n```sh\ntortie b --c    # why\nother\n```\ntortie d\n```sh run\ntortie e\n```\n";
        assert_eq!(commands(text, "tortie "), ["tortie b --c", "tortie e"]);
        assert!(commands(text, "helm").is_empty());
    }
}
