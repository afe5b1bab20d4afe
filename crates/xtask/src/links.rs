//! Checks that links between documents lead somewhere, and that every plot is shown on some page.

use std::collections::BTreeSet;
use std::path::Path;

/// The folder of plots.
const PLOTS: &str = "docs/plots/";

/// Finds relative links of Markdown files whose target does not exist, and plots that no page shows.
pub(crate) fn check(root: &Path, files: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut shown = BTreeSet::new();
    for name in files.iter().filter(|name| name.ends_with(".md")) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        let folder = root.join(name);
        let folder = folder.parent().unwrap_or(root);
        for (line, target) in links(&text) {
            shown.extend(target.rsplit_once("plots/").map(|(_, plot)| plot.to_owned()));
            if !folder.join(target).exists() {
                problems.push(format!("{name}:{line}: the link to {target} leads nowhere"));
            }
        }
    }
    problems.extend(unseen(root, files, &shown));
    problems
}

fn unseen(root: &Path, files: &[String], shown: &BTreeSet<String>) -> Vec<String> {
    let plots = files.iter().filter_map(|name| Some((name, name.strip_prefix(PLOTS)?)));
    plots
        .filter(|(name, plot)| !shown.contains(*plot) && root.join(name).exists())
        .map(|(name, _)| format!("{name}: no page shows this plot"))
        .collect()
}

/// The targets of links to files, with their lines. URLs, and places within the same file, are left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        for rest in line.split("](").skip(1).filter(|_| !is_code) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number + 1, file));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{links, unseen};
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn a_plot_that_no_page_shows_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files =
            ["docs/plots/felix.svg", "docs/plots/typha.svg", "docs/plots/removed.svg"].map(str::to_owned);
        let shown = BTreeSet::from(["felix.svg".to_owned()]);
        assert_eq!(unseen(&root, &files, &shown), ["docs/plots/typha.svg: no page shows this plot"]);
    }

    #[test]
    fn only_links_to_files_are_checked() {
        let text = "See [a](docs/a.md#top) and [b](https://example.org/b).\n[c](#here)\n```\n[d](d.md)\n```\n[e](../e.md)";
        assert_eq!(links(text), [(1, "docs/a.md"), (6, "../e.md")]);
    }
}
