//! The compiled programs under `bpf/objects`: built by `cargo xtask bpf`, checked in like other generated files, and
//! compared by tidy with the hash of their sources.
//!
//! So a build of the product needs no clang; a test recompiles and compares. Debug information is removed here: clang
//! writes it together with the type information that loaders need, and Debian's clang package has no program that
//! separates the two. Does not install a compiler.

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "bpf";
const FACTS: &str = "objects/BUILT";
/// The second version of the instruction set is supported by every kernel since 4.14. Paths in line information are
/// relative.
const FLAGS: &str = "-target bpf -O2 -g -mcpu=v2 -nostdinc -fdebug-compilation-dir=. \
                     -Wall -Wextra -Werror -Wno-unused-parameter";
/// Objects, with the source and flags of each.
const OBJECTS: [(&str, &str, &str); 6] = [
    ("tc_v4.o", "tc.c", "-DFAMILY=4"),
    ("tc_v6.o", "tc.c", "-DFAMILY=6"),
    ("xdp_v4.o", "xdp.c", "-DFAMILY=4"),
    ("xdp_v6.o", "xdp.c", "-DFAMILY=6"),
    ("connect_v4.o", "connect.c", "-DFAMILY=4"),
    ("connect_v6.o", "connect.c", "-DFAMILY=6"),
];
/// Sections that only debuggers and linkers read.
const DROPPED: [&str; 3] = [".debug", ".rel.debug", ".llvm_addrsig"];

/// Compiles everything.
pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    let compiler = version()?;
    let mut facts = format!(
        "# Written by `cargo xtask bpf`; tidy compares.\ncompiler {compiler}\nflags {FLAGS}\nsources {}\n",
        sources(root)?
    );
    let output = tempfile::tempdir()?;
    for (object, source, family) in OBJECTS {
        let path = output.path().join(object);
        let built = Command::new("clang")
            .args(FLAGS.split(' '))
            .args([family, "-c", source, "-o"])
            .arg(&path)
            .current_dir(&folder)
            .output()
            .context("running clang")?;
        if !built.status.success() {
            bail!("compiling {source}: {}", String::from_utf8_lossy(&built.stderr));
        }
        let bytes = without_debug(&std::fs::read(&path)?).with_context(|| object.to_owned())?;
        writeln!(facts, "object {object} {}", hex(&Sha256::digest(&bytes)))?;
        crate::write_whole(&folder.join("objects").join(object), &bytes)?;
        println!("bpf: {object}: {} bytes", bytes.len());
    }
    crate::write_whole(&folder.join(FACTS), facts.as_bytes())
}

/// Mismatches, one sentence each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(FOLDER);
    let facts =
        std::fs::read_to_string(folder.join(FACTS)).with_context(|| format!("reading {FOLDER}/{FACTS}"))?;
    let mut problems = Vec::new();
    for expected in [format!("flags {FLAGS}"), format!("sources {}", sources(root)?)] {
        if !facts.lines().any(|line| line == expected) {
            problems.push(format!("{FOLDER}/{FACTS} has no line '{expected}': run `cargo xtask bpf`"));
        }
    }
    for (object, _, _) in OBJECTS {
        let bytes = std::fs::read(folder.join("objects").join(object)).with_context(|| object.to_owned())?;
        let expected = format!("object {object} {}", hex(&Sha256::digest(&bytes)));
        if !facts.lines().any(|line| line == expected) {
            problems
                .push(format!("{FOLDER}/objects/{object} is not what {FACTS} says: run `cargo xtask bpf`"));
        }
    }
    Ok(problems)
}

/// The first line of the compiler's version output.
fn version() -> Result<String> {
    let answer = Command::new("clang")
        .arg("--version")
        .output()
        .context("running clang (`make setup` installs it)")?;
    Ok(String::from_utf8_lossy(&answer.stdout).lines().next().unwrap_or_default().to_owned())
}

/// A hash of the names and contents of all sources.
fn sources(root: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join(FOLDER)).with_context(|| format!("reading {FOLDER}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".c") || name.ends_with(".h") {
            names.push(name);
        }
    }
    names.sort();
    let mut hash = Sha256::new();
    for name in names {
        let text = std::fs::read(root.join(FOLDER).join(&name))?;
        hash.update(format!("{name} {}\n", text.len()));
        hash.update(&text);
    }
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A 64-bit ELF file without the contents of debug sections. Their entries stay, empty, so that the section numbers
/// that others refer to do not change.
fn without_debug(file: &[u8]) -> Result<Vec<u8>> {
    let at = |place: usize, length: usize| -> Result<u64> {
        let bytes = file.get(place..place + length).context("the file is cut short")?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let index = |number: u64| usize::try_from(number).context("a number is too large");
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "no ELF file of 64 bits");
    let (table, count, names) = (index(at(0x28, 8)?)?, index(at(0x3c, 2)?)?, index(at(0x3e, 2)?)?);
    let header = |section: usize| table + section * 64;
    let names = index(at(header(names) + 24, 8)?)?;
    let mut output = file.get(..64).context("the file is cut short")?.to_vec();
    let mut headers = Vec::new();
    for section in 0..count {
        let place = header(section);
        let mut entry = file.get(place..place + 64).context("the file is cut short")?.to_vec();
        let name = file.get(names + index(at(place, 4)?)?..).context("a name is missing")?;
        let name =
            String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let (offset, size) = (index(at(place + 24, 8)?)?, index(at(place + 32, 8)?)?);
        if DROPPED.iter().any(|dropped| name.starts_with(dropped)) {
            entry[4..].fill(0);
        } else if at(place + 4, 4)? != 0 {
            output.resize(output.len().next_multiple_of(16), 0);
            entry[24..32].copy_from_slice(&(output.len() as u64).to_le_bytes());
            output.extend(file.get(offset..offset + size).context("a section is cut short")?);
        }
        headers.extend(entry);
    }
    output.resize(output.len().next_multiple_of(16), 0);
    let table = output.len() as u64;
    output[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    output.extend(headers);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::without_debug;

    #[test]
    fn junk_is_refused() {
        assert!(without_debug(b"").is_err());
        assert!(without_debug(b"\x7fELF\x02\x01").is_err());
        let mut cut = vec![0; 64];
        cut[..6].copy_from_slice(b"\x7fELF\x02\x01");
        cut[0x3c] = 1;
        assert!(without_debug(&cut[..63]).is_err());
        // A table of sections beyond the end of the file.
        cut[0x28] = 0xff;
        assert!(without_debug(&cut).is_err());
    }
}
