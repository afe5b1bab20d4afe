//! The package read back, by our own eyes and by Debian's program; and its units, by systemd's where it is.

use super::{FILES, archive, package};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    crate::repository_root().unwrap()
}

fn written() -> Vec<u8> {
    let files: Vec<(&str, Vec<u8>)> =
        FILES.iter().map(|(from, to)| (*to, std::fs::read(root().join(from)).unwrap())).collect();
    package(b"program", &files, "1.2.3").unwrap()
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
fn members_stand_at_even_places_behind_headers_of_sixty_characters() {
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

/// Every line of a unit is one that systemd knows, and every program that it starts is in the package.
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
