//! Checks that programs which tests run are on the list that the set-up installs.
//!
//! A used machine hides a missing install step: the program happens to be installed. So every program that code starts
//! by a literal name is in `scripts/programs.txt` with its package. Shell scripts inside tests are not checked: a bare
//! root (`make fresh`) finds what those lack.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

/// The code that precedes the name of a program.
const CALLS: [&str; 3] = ["Command::new(\"", " program(\"", ".command(\""];

/// Programs in these files that are not on the list, one sentence each.
pub(crate) fn check(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let path = root.join("scripts/programs.txt");
    let list = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let known = listed(&list);
    let sources =
        files.iter().filter(|name| name.ends_with(".rs") && !name.starts_with("crates/tortie/src/"));
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
    use super::{listed, started};

    #[test]
    fn programs_are_found_in_code_and_in_the_list() {
        let text = "Command::new(\"ip\").arg(\"x\"); let nft = program(\"nft\", \"install it\")?; host.command(\"sh\")";
        assert_eq!(started(text).into_iter().collect::<Vec<_>>(), ["ip", "nft", "sh"]);
        assert_eq!(
            listed("# ip a\nip iproute2\n\nsh  essential\n").into_iter().collect::<Vec<_>>(),
            ["ip", "sh"]
        );
    }
}
