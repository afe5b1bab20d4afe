//! Lists our own crates for the log's filter, so that a new crate does not have to be listed by hand.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?;
    let crates = Path::new(&here).parent().ok_or(io::ErrorKind::NotFound)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(crates)? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().to_string_lossy().replace('-', "_"));
        }
    }
    names.sort();
    println!("cargo:rerun-if-changed={}", crates.display());
    println!("cargo:rustc-env=TORTIE_CRATES={}", names.join(","));
    Ok(())
}
