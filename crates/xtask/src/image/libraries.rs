//! Prepares a program that was built for tests: removes what only a debugger needs, and finds the libraries that it
//! needs.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Files by path.
pub(super) type Files = Vec<(String, Vec<u8>)>;

/// The program's bytes without symbols, and its libraries by path.
pub(super) fn stripped(program: &Path) -> Result<(Vec<u8>, Files)> {
    let beside = program.with_extension(format!("stripped-{}", std::process::id()));
    let status =
        Command::new("strip").arg("-o").arg(&beside).arg(program).status().context("running strip")?;
    ensure!(status.success(), "strip {} ended with {status}", program.display());
    let bytes = std::fs::read(&beside);
    std::fs::remove_file(&beside)?;
    Ok((bytes?, of(program)?))
}

/// A library's path in a layer, where `/lib` and `/lib64` are links into `/usr`.
pub(super) fn in_layer(path: &str) -> String {
    let path = path.trim_start_matches('/');
    if path.starts_with("lib") { format!("usr/{path}") } else { path.to_owned() }
}

/// The libraries of a program by path.
pub(super) fn of(program: &Path) -> Result<Files> {
    let output = Command::new("ldd").arg(program).output().context("running ldd")?;
    // A program without a loader needs no libraries; ldd then fails.
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut libraries = Files::new();
    for path in paths(&listed) {
        let bytes = std::fs::read(path).with_context(|| format!("reading the library {path}"))?;
        libraries.push((path.to_owned(), bytes));
    }
    Ok(libraries)
}

/// The absolute paths in ldd's output.
fn paths(listed: &str) -> Vec<&str> {
    listed
        .lines()
        .filter_map(|line| {
            let place = line.split_once("=>").map_or(line, |(_, place)| place);
            place.split_whitespace().next().filter(|path| path.starts_with('/'))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_of_libraries_and_of_the_loader() {
        let listed = "\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n\tstatically linked\n";
        assert_eq!(super::paths(listed), ["/lib/x/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
