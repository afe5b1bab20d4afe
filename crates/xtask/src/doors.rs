//! Checks that the public interface of a component's library is no larger than the program needs, so that the compiler
//! can find dead code behind it.
//!
//! - A public module of a component must be one that the program names: a command line, or the agent of a plugin.
//! - What tests and benchmarks need is in a hidden `for_tests`, item by item, and production code never names that.

use crate::words::{is_production, production};
use std::path::Path;

/// The line in a manifest that marks a crate as a component.
const COMPONENT: &str = "layer = 4";

/// The sources of the program that starts components.
const PROGRAM: &str = "crates/tortie/src/";

/// The module with the items for tests.
const FOR_TESTS: &str = "for_tests";

/// The crate that only measures the work of components.
const MEASURES: &str = "crates/cost/";

/// Reports interfaces that are too wide.
pub(crate) fn check(root: &Path, files: &[String]) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let program: String =
        files.iter().filter(|name| name.starts_with(PROGRAM)).map(|name| read(name)).collect();
    let mut problems = Vec::new();
    for manifest in files.iter().filter(|name| name.starts_with("crates/") && name.ends_with("/Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        if !read(manifest).lines().any(|line| line == COMPONENT) {
            continue;
        }
        let component = folder.trim_start_matches("crates/").replace('-', "_");
        let library = format!("{folder}/src/lib.rs");
        problems.extend(wide(&library, &component, &read(&library), &program));
    }
    for name in files.iter().filter(|name| is_production(name) && !name.starts_with(MEASURES)) {
        let text = read(name);
        for (number, _) in production(&text).filter(|(_, line)| line.contains(&format!("{FOR_TESTS}::"))) {
            problems.push(format!("{name}:{number}: `{FOR_TESTS}` is for tests and benchmarks"));
        }
    }
    problems
}

/// The public modules of a component that the program does not name.
fn wide(library: &str, component: &str, text: &str, program: &str) -> Vec<String> {
    let module =
        |line: &str| Some(line.strip_prefix("pub mod ")?.trim_end_matches([';', '{', ' ']).to_owned());
    let modules = production(text).filter_map(|(number, line)| Some((number, module(line)?)));
    let wide = modules
        .filter(|(_, module)| module != FOR_TESTS && !program.contains(&format!("{component}::{module}::")));
    wide.map(|(number, module)| {
        format!(
            "{library}:{number}: the program does not name `{module}`: make it private; what tests need goes into `{FOR_TESTS}`"
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_the_program_does_not_name_are_found() {
        let library =
            "pub mod cli;\npub mod inner;\nmod own;\npub mod for_tests {\n    pub use crate::own::Own;\n}\n";
        let found = wide("lib.rs", "agent", library, "fn main() { agent::cli::main() }");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("lib.rs:2: the program does not name `inner`"), "{found:?}");
    }
}
