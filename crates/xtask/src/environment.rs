//! Checks that the process's variables are read at its edges only: `daemon::SystemEnvironment`, and the places listed
//! here.

use crate::words;
use std::path::Path;

/// The places that may read variables, and why.
const EDGES: [(&str, &str); 3] = [
    ("crates/daemon/src/", "it is the edge"),
    ("crates/cni-protocol/src/process.rs", "a plugin's whole input; its layer is below the daemon's"),
    ("crates/cni/src/fault.rs", "for tests: absent from a release"),
];

/// Finds code that reads variables anywhere else.
pub(crate) fn check(root: &Path, files: &[String]) -> Vec<String> {
    let inner = files
        .iter()
        .filter(|name| words::is_production(name) && !EDGES.iter().any(|(edge, _)| name.starts_with(edge)));
    let found = inner.flat_map(|name| {
        let text = std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let lines: Vec<usize> =
            words::production(&text).filter(|(_, line)| reads(line)).map(|(number, _)| number).collect();
        lines.into_iter().map(move |number| {
            format!(
                "{name}:{number}: variables are read at the edge: take them from daemon::Environment, or from a row of \
                 settings"
            )
        })
    });
    found.collect()
}

fn reads(line: &str) -> bool {
    !line.trim_start().starts_with("//") && line.contains(concat!("env", "::var"))
}

#[cfg(test)]
mod tests {
    use super::reads;

    #[test]
    fn variables_are_found_in_code_and_not_in_comments() {
        for (line, expected) in [
            ("    let path = std::env::var_os(\"PATH\");", true),
            ("    for (name, value) in env::vars() {", true),
            ("    // std::env::var is for edges", false),
            ("    let own = std::env::current_exe();", false),
        ] {
            assert_eq!(reads(line), expected, "{line}");
        }
    }
}
