//! Checks licences and known vulnerabilities of our dependencies without a network.
//!
//! Licences come from `cargo metadata` and must be on a short list that is compatible with Apache-2.0. Vulnerabilities
//! come from a copy of the RustSec advisory database, if `TORTIE_ADVISORY_DB` names one: it cannot be part of this
//! repository, so without a copy the check reports that they were not checked. Refuses crates from anywhere except the
//! registry and this workspace.

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Licences that may be linked into an Apache-2.0 program without obligations beyond naming them.
const LICENCES: [&str; 10] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "ISC",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "Zlib",
    "Unicode-3.0",
    "CDLA-Permissive-2.0",
];

/// Advisories that were examined and do not affect this program, each with the reason.
const EXAMINED: [(&str, &str); 1] = [(
    "RUSTSEC-2023-0071",
    "rsa: private operations can be timed over a network. key-cert-provisioner signs one request inside its pod, and answers no requests",
)];

/// The variable that names a copy of the advisory database.
const DATABASE: &str = "TORTIE_ADVISORY_DB";

/// Checks everything and reports all problems at once.
pub(crate) fn run(root: &Path) -> Result<()> {
    let metadata = metadata(root)?;
    let mut problems = licences(&metadata)?;
    match std::env::var_os(DATABASE) {
        Some(database) => problems.extend(advisories(&metadata, &PathBuf::from(database))?),
        None => println!(
            "dependencies: advisories were not checked: {DATABASE} names no copy of the RustSec database"
        ),
    }
    for problem in &problems {
        println!("dependencies: {problem}");
    }
    if !problems.is_empty() {
        bail!("dependencies: {} problem(s)", problems.len());
    }
    println!("dependencies: {} packages, no problems", packages(&metadata)?.len());
    Ok(())
}

/// Packages with a licence that is not on the list, or from an unexpected source; one sentence each.
pub(crate) fn check_licences(root: &Path) -> Result<Vec<String>> {
    licences(&metadata(root)?)
}

pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let output = crate::cargo()
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading cargo metadata")
}

fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata["packages"].as_array().context("cargo metadata lists no packages")
}

fn licences(metadata: &Value) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in packages(metadata)? {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_allowed(licence) {
            problems.push(format!("{name}: licence {licence:?} is not on the list"));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| !source.starts_with("registry+")) {
            problems.push(format!("{name}: comes from {}", source.unwrap_or_default()));
        }
    }
    Ok(problems)
}

/// Whether licences of the list satisfy a licence expression. `/` is an old way to write OR.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let mut alternatives = expression.split(" OR ").map(str::trim);
    if expression.contains(" AND ") {
        // "(A OR B) AND C": every part must be satisfied, each by any of its alternatives.
        return expression.split(" AND ").all(is_allowed);
    }
    alternatives.any(|licence| LICENCES.contains(&licence))
}

fn advisories(metadata: &Value, database: &Path) -> Result<Vec<String>> {
    if !database.join("crates").is_dir() {
        bail!("{} is not a copy of the RustSec database: it has no folder crates", database.display());
    }
    let mut problems = Vec::new();
    // Crates of this workspace share names with unrelated crates in the registry.
    for package in packages(metadata)?.iter().filter(|package| package["source"].is_string()) {
        let name = package["name"].as_str().unwrap_or_default();
        let version: Version = package["version"].as_str().unwrap_or_default().parse()?;
        let Ok(files) = std::fs::read_dir(database.join("crates").join(name)) else { continue };
        for file in files {
            let text = std::fs::read_to_string(file?.path())?;
            let advisory = Advisory::read(&text).with_context(|| format!("an advisory of {name}"))?;
            let is_examined = EXAMINED.iter().any(|(id, _)| *id == advisory.id);
            if advisory.concerns(&version) && !is_examined {
                problems.push(format!("{name} {version}: {} ({})", advisory.id, advisory.kind));
            }
        }
    }
    Ok(problems)
}

/// The relevant fields of an advisory.
#[derive(Debug, Default)]
struct Advisory {
    id: String,
    kind: String,
    is_withdrawn: bool,
    unconcerned: Vec<VersionReq>,
}

impl Advisory {
    /// Reads the head of an advisory: TOML in a fenced block, of which a few keys are needed.
    fn read(text: &str) -> Result<Self> {
        let head = text.split("```").nth(1).context("no fenced block")?;
        let mut advisory = Self { kind: "vulnerability".to_owned(), ..Self::default() };
        // Lists may span several lines: join them first.
        let mut lines: Vec<String> = Vec::new();
        for line in head.lines() {
            match lines.last_mut() {
                Some(open) if open.contains('[') && !open.contains(']') => open.push_str(line),
                _ => lines.push(line.to_owned()),
            }
        }
        for (key, value) in lines.iter().filter_map(|line| line.split_once('=')) {
            match key.trim() {
                "id" => advisory.id = value.trim().trim_matches('"').to_owned(),
                "informational" => advisory.kind = value.trim().trim_matches('"').to_owned(),
                "withdrawn" => advisory.is_withdrawn = true,
                "patched" | "unaffected" => advisory.unconcerned.extend(requirements(value)?),
                _ => {}
            }
        }
        Ok(advisory)
    }

    fn concerns(&self, version: &Version) -> bool {
        !self.is_withdrawn && !self.unconcerned.iter().any(|range| range.matches(version))
    }
}

/// The version ranges of a list such as `[">= 1.2.3", "^0.5"]`.
fn requirements(list: &str) -> Result<Vec<VersionReq>> {
    let quoted = list.split('"').skip(1).step_by(2);
    quoted.map(|range| VersionReq::parse(range).with_context(|| format!("version range {range:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::{Advisory, is_allowed};

    #[test]
    fn licence_expressions_are_evaluated() {
        for allowed in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(MIT OR GPL-2.0) AND BSD-3-Clause",
            "Apache-2.0 / MIT",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "MPL-2.0"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn an_advisory_affects_versions_outside_its_ranges() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2020-0071\"\npackage = \"time\"\n[versions]\npatched = [\n  \">= 0.2.23\",\n]\nunaffected = [\"=0.2.0\"]\n```\n# Title\n";
        let advisory = Advisory::read(text).expect("readable");
        assert_eq!(advisory.id, "RUSTSEC-2020-0071");
        let concerns = |version: &str| advisory.concerns(&version.parse().expect("a version"));
        assert!(concerns("0.2.1"));
        assert!(!concerns("0.2.0"));
        assert!(!concerns("0.3.0"));
    }

    #[test]
    fn a_withdrawn_advisory_affects_no_version() {
        let text =
            "```toml\n[advisory]\nid = \"R\"\nwithdrawn = \"2022-01-01\"\n[versions]\npatched = []\n```\n";
        assert!(!Advisory::read(text).expect("readable").concerns(&"1.0.0".parse().expect("a version")));
    }
}
