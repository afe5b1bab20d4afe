//! Reads the package back, with our own code and with Debian's program; checks its units with systemd's, if available.

use super::{FILES, archive, package};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    crate::repository_root().unwrap()
}

fn written() -> Vec<u8> {
    let files: Vec<(&str, Vec<u8>)> =
        FILES.iter().map(|(from, to)| (*to, std::fs::read(root().join(from)).unwrap())).collect();
    package(b"program", &files, "1.2.3", oci::Architecture::Amd64).unwrap()
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(purpose: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tortie-xtask-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn members_follow_headers_of_sixty_characters_at_even_offsets() {
    let bytes = archive(&[("a", b"odd".to_vec()), ("b", b"even".to_vec())]);
    assert_eq!(bytes.len(), 8 + 60 + 4 + 60 + 4);
    assert_eq!(&bytes[..8], b"!<arch>\n");
    assert_eq!(&bytes[8 + 58..8 + 60], b"`\n");
    assert_eq!(&bytes[8 + 64..8 + 65], b"b");
}

#[test]
fn the_same_program_gives_the_same_package() {
    assert_eq!(written(), written());
}

/// dpkg-deb is in every Debian root.
#[test]
fn debians_own_program_unpacks_it() {
    let scratch = Scratch::new("deb");
    let file = scratch.0.join("tortie.deb");
    std::fs::write(&file, written()).unwrap();
    let unpacked = scratch.0.join("root");
    let output = Command::new("dpkg-deb").arg("--raw-extract").arg(&file).arg(&unpacked).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(unpacked.join("usr/bin/tortie")).unwrap(), b"program");
    assert_eq!(std::fs::read_link(unpacked.join("usr/bin/calico-felix")).unwrap(), Path::new("tortie"));
    let control = std::fs::read_to_string(unpacked.join("DEBIAN/control")).unwrap();
    assert!(control.contains("\nVersion: 1.2.3\n"), "{control}");
    for script in ["postinst", "prerm", "postrm"] {
        let output = Command::new("sh").arg("-n").arg(unpacked.join("DEBIAN").join(script)).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }
    let listed = std::fs::read_to_string(unpacked.join("DEBIAN/conffiles")).unwrap();
    for line in listed.lines() {
        assert!(unpacked.join(line.trim_start_matches('/')).is_file(), "{line}");
    }
}

/// Every line of a unit is known to systemd, and every program that it starts is in the package.
#[test]
fn units_start_what_the_package_has() {
    for (from, _) in FILES.iter().filter(|(from, _)| from.ends_with(".service")) {
        let text = std::fs::read_to_string(root().join(from)).unwrap();
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let program = start.split_whitespace().next().unwrap().trim_start_matches("/usr/bin/");
        assert!(program == "tortie" || super::LINKS.contains(&program), "{from}: {start}");
        assert!(text.contains("\nNoNewPrivileges=true\n"), "{from}");
    }
}

/// The sections of the rpm specification, by name, with macros expanded.
fn specification() -> std::collections::BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root().join("deploy/rpm/tortie.spec")).unwrap();
    let mut macros = vec![("buildroot".to_owned(), String::new()), ("_sourcedir".to_owned(), String::new())];
    let mut sections: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    let mut section = "preamble".to_owned();
    for line in text.lines() {
        if let Some((name, value)) = line.strip_prefix("%global ").and_then(|rest| rest.split_once(' ')) {
            macros.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let word = line.strip_prefix('%').unwrap_or_default();
        if ["description", "install", "post", "preun", "postun", "files"].contains(&word) {
            section = word.to_owned();
            continue;
        }
        let put_in = macros
            .iter()
            .fold(line.to_owned(), |line, (name, value)| line.replace(&format!("%{{{name}}}"), value));
        sections.entry(section.clone()).or_default().push(put_in);
    }
    sections
}

/// The rpm specification installs the same files to the same places as the Debian package, and lists them all. Without
/// rpmbuild, its `%install` is run by a shell, with an empty folder as the root.
#[test]
fn the_specification_for_rpm_has_the_same_files() {
    let sections = specification();
    let preamble = sections["preamble"].join("\n");
    assert!(preamble.contains(&format!("\nVersion:        {}\n", env!("CARGO_PKG_VERSION"))), "{preamble}");
    for scriptlet in ["install", "post", "preun", "postun"] {
        let script = sections[scriptlet].join("\n");
        assert!(!script.contains("%{"), "an undefined macro: {script}");
        let output = Command::new("sh").args(["-n", "-c", &script]).output().unwrap();
        assert!(output.status.success(), "{scriptlet}: {output:?}");
    }
    let scratch = Scratch::new("rpm");
    let (source, built) = (scratch.0.join("source"), scratch.0.join("built"));
    std::fs::create_dir_all(source.join("dist")).unwrap();
    std::fs::write(source.join("dist/tortie"), "program").unwrap();
    for name in ["deploy", "LICENSE"] {
        std::os::unix::fs::symlink(root().join(name), source.join(name)).unwrap();
    }
    let text = std::fs::read_to_string(root().join("deploy/rpm/tortie.spec")).unwrap();
    let units = sections["preun"].join(" ");
    let units: Vec<&str> = units.split_whitespace().filter(|word| word.ends_with(".service")).collect();
    let install = text.split("%install\n").nth(1).unwrap().split("\n%post\n").next().unwrap();
    let install = install
        .replace("%{_sourcedir}", &source.display().to_string())
        .replace("%{buildroot}", &built.display().to_string())
        .replace("%{units}", &units.join(" "));
    let output = Command::new("sh").args(["-e", "-c", &install]).output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let mut found = Vec::new();
    list(&built, &built, &mut found);
    found.sort();
    let mut expected: Vec<String> = FILES.iter().map(|(_, to)| format!("/{to}")).collect();
    expected.extend(super::LINKS.iter().map(|link| format!("/usr/bin/{link}")));
    expected.push("/usr/bin/tortie".to_owned());
    // Each family of distributions has its own place for licences.
    let licence = expected.iter_mut().find(|path| path.ends_with("/copyright")).unwrap();
    *licence = "/usr/share/licenses/tortie/LICENSE".to_owned();
    expected.sort();
    assert_eq!(found, expected);

    let listed: Vec<&str> =
        sections["files"].iter().filter_map(|line| line.split_whitespace().last()).collect();
    for path in &found {
        let is_listed = listed.iter().any(|pattern| match pattern.split_once('*') {
            Some((before, after)) => path.starts_with(before) && path.ends_with(after),
            None => path == pattern,
        });
        assert!(is_listed, "{path} is not among %files");
    }
    for unit in units {
        assert!(built.join("usr/lib/systemd/system").join(unit).is_file(), "{unit}");
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            list(root, &path, found);
        } else {
            found.push(format!("/{}", path.strip_prefix(root).unwrap().display()));
        }
    }
}
