//! Installs programs in real folders.

use super::*;
use daemon::Variables;
use std::fs::Permissions;

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["image", "bin", "second"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let case = Self { folder };
        case.write("program", "tortie", 0o777);
        case.write("image/portmap", "portmap", 0o755);
        case.write("image/tuning", "tuning", 0o777);
        case.write("image/install", "install", 0o755);
        case.write("image/calico", "another calico", 0o755);
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).expect("writing");
        std::fs::set_permissions(self.path(name), Permissions::from_mode(mode)).expect("chmod");
    }

    fn install(&self, variables: &[(&str, &str)], folders: &[&str]) -> Result<(), ProgramError> {
        let settings =
            Settings::read(&Variables::new(variables.iter().copied()), "host").expect("usable variables");
        let folders: Vec<PathBuf> = folders.iter().map(|name| self.path(name)).collect();
        install(&settings, &self.path("program"), Some(&self.path("image")), &folders)
    }

    fn listed(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(folder))
            .expect("a folder")
            .map(|entry| {
                let entry = entry.expect("an entry");
                let mode = entry.metadata().expect("metadata").permissions().mode() & 0o7777;
                let text = std::fs::read_to_string(entry.path()).expect("text");
                format!("{} {mode:o} {text}", entry.file_name().to_string_lossy())
            })
            .collect();
        names.sort();
        names
    }
}

/// The contents of a folder after installing; the image in these tests has `portmap` and `tuning`.
const EVERYTHING: [&str; 7] = [
    "bandwidth 755 tortie",
    "calico 755 tortie",
    "calico-ipam 755 tortie",
    "host-local 755 tortie",
    "loopback 755 tortie",
    "portmap 755 portmap",
    "tuning 755 tuning",
];

#[test]
fn plugins_go_into_every_writeable_folder_with_narrow_modes() {
    let case = Case::new();
    case.install(&[], &["bin", "second", "missing"]).expect("an installation");
    assert_eq!(case.listed("bin"), EVERYTHING);
    assert_eq!(case.listed("second"), EVERYTHING);
    let number = |name: &str| std::fs::metadata(case.path("bin").join(name)).expect("a file").ino();
    assert_eq!(number("loopback"), number("calico"), "one file under several names");
}

#[test]
fn programs_can_be_skipped_or_kept() {
    let case = Case::new();
    case.write("bin/portmap", "the host's own", 0o755);
    case.write("bin/calico", "old", 0o755);
    let variables = [("SKIP_CNI_BINARIES", "tuning"), ("UPDATE_CNI_BINARIES", "false")];
    case.install(&variables, &["bin"]).expect("an installation");
    assert_eq!(
        case.listed("bin"),
        [
            "bandwidth 755 tortie",
            "calico 755 old",
            "calico-ipam 755 tortie",
            "host-local 755 tortie",
            "loopback 755 tortie",
            "portmap 755 the host's own",
        ]
    );
    case.install(&[], &["bin"]).expect("an installation");
    assert_eq!(case.listed("bin"), EVERYTHING);
}

#[test]
fn a_second_installation_touches_nothing() {
    let case = Case::new();
    case.install(&[], &["bin"]).expect("an installation");
    let before = std::fs::metadata(case.path("bin/calico")).expect("metadata");
    case.install(&[], &["bin"]).expect("an installation");
    let after = std::fs::metadata(case.path("bin/calico")).expect("metadata");
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    // A file of the same size with other contents is detected and replaced.
    case.write("bin/calico", "troite", 0o755);
    case.install(&[], &["bin"]).expect("an installation");
    assert!(case.listed("bin").contains(&"calico 755 tortie".to_owned()));
}

#[test]
fn a_host_without_writeable_folders_must_bring_the_plugins() {
    let case = Case::new();
    let error = case.install(&[], &["missing"]).expect_err("no folder").to_string();
    assert!(error.starts_with("found no writeable directory"), "{error}");
    // With updates disabled, the plugins must be there already.
    let error = case.install(&[("UPDATE_CNI_BINARIES", "false")], &["missing"]).expect_err("no plugins");
    assert!(matches!(error, ProgramError::NoFolder { .. }));
}
