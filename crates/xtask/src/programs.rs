//! Programs that tests run, held against the list that the set-up installs.
//!
//! A machine that has been used hides a missing install step: the program is there, and nobody knows why. So every program
//! that code starts by a literal name stands in `scripts/programs.txt` with its package. It refuses to look into shell
//! scripts inside tests: a bare root (`make fresh`) finds what those lack.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What comes before the name of a program in code.
const CALLS: [&str; 3] = ["Command::new(\"", " program(\"", ".command(\""];

/// Programs in these files that the set-up does not know, one sentence each.
pub(crate) fn check(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let path = root.join("scripts/programs.txt");
    let list = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let known = listed(&list);
    let sources = files.iter().filter(|name| name.ends_with(".rs") && !name.starts_with("crates/tortie/src/"));
    let mut problems = Vec::new();
    for name in sources {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        for program in started(&text) {
            if !known.contains(program) && !program.starts_with('/') {
                problems.push(format!("{name} runs '{program}', which scripts/programs.txt does not list"));
            }
        }
    }
    Ok(problems)
}

/// Prints every dependency that has a build script, one `name@version` per line: what may need a program to be built.
pub(crate) fn build_scripts(root: &Path) -> Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    for name in with_build_script(&metadata) {
        println!("{name}");
    }
    Ok(())
}

/// The packages of the dependency graph with a build script.
fn with_build_script(metadata: &Value) -> BTreeSet<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let used: BTreeSet<String> = list(&metadata["resolve"]["nodes"])
        .iter()
        .filter_map(|node| node["id"].as_str().map(str::to_owned))
        .collect();
    let has_script = |package: &&Value| {
        list(&package["targets"]).iter().any(|target| list(&target["kind"]).iter().any(|kind| kind == "custom-build"))
    };
    list(&metadata["packages"])
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)))
        .filter(has_script)
        .filter_map(|package| {
            Some(format!("{}@{}", package["name"].as_str()?, package["version"].as_str()?))
        })
        .collect()
}

fn listed(list: &str) -> BTreeSet<&str> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

fn started(text: &str) -> BTreeSet<&str> {
    CALLS
        .iter()
        .flat_map(|call| text.split(call).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|name| !name.is_empty() && !name.contains([' ', '{']))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{listed, started, with_build_script};
    use serde_json::json;

    #[test]
    fn programs_are_found_in_code_and_in_the_list() {
        let text = "Command::new(\"ip\").arg(\"x\"); let nft = program(\"nft\", \"install it\")?; host.command(\"sh\")";
        assert_eq!(started(text).into_iter().collect::<Vec<_>>(), ["ip", "nft", "sh"]);
        assert_eq!(listed("# ip a\nip iproute2\n\nsh  essential\n").into_iter().collect::<Vec<_>>(), ["ip", "sh"]);
    }

    #[test]
    fn only_packages_in_use_that_have_a_build_script_count() {
        let package = |id: &str, kind: &str| json!({"id": id, "name": id, "version": "1.0.0", "targets": [{"kind": [kind]}]});
        let metadata = json!({
            "resolve": {"nodes": [{"id": "a"}, {"id": "b"}]},
            "packages": [package("a", "custom-build"), package("b", "lib"), package("c", "custom-build")],
        });
        assert_eq!(with_build_script(&metadata).into_iter().collect::<Vec<_>>(), ["a@1.0.0"]);
    }
}
