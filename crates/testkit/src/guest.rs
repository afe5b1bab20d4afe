//! A whole machine for tests that need a kernel with features that this machine's may lack: IP in IP, WireGuard, dummy
//! devices.
//!
//! QEMU boots one of Debian's kernels, unpacked in a cache outside the checkout by `scripts/guest-kernel.sh`, with an
//! in-memory file system: busybox, the kernel's network modules, the programs that a test names with their libraries,
//! and the test program itself. Inside, the guest runs the very test that requested the machine:
//!
//! ```no_run
//! testkit::guest::Guest::new("guest::ipip").program("ip").run(|| {
//!     // here the test is root on a machine of its own
//! });
//! ```
//!
//! The emulated processor needs no rights and no hardware; it is some twenty times slower than the real one, so tests
//! in a guest wait for conditions and never for a fixed time. Nothing is left behind: everything is in one temporary
//! folder, and QEMU ends with the test. A guest has no network and no disk.

mod archive;
mod kernel;
mod machine;

use crate::{Folder, kubernetes_program, program};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The variable that is set for a test inside the guest.
const INSIDE: &str = "TORTIE_GUEST_INSIDE";
/// No test takes this long, even among others; a test that hangs ends here.
const TIMEOUT: Duration = Duration::from_secs(1800);
const MEMORY_MIB: u32 = 3072;
/// The default kernel.
const USUAL: &str = "6.1";

/// A machine to run a test in.
#[derive(Debug)]
pub struct Guest {
    test: String,
    kernel: &'static str,
    programs: Vec<String>,
    binaries: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Guest {
    /// A machine for the test of this name, as the test program lists it (`module::function`).
    #[must_use]
    pub fn new(test: &str) -> Self {
        Self {
            test: test.to_owned(),
            kernel: USUAL,
            programs: Vec::new(),
            binaries: Vec::new(),
            folders: Vec::new(),
        }
    }

    /// Boots Linux of this series (`5.10`) instead of the default. If set-up could not get one, the test prints that
    /// and is skipped: a suite of Debian may have disappeared from a mirror.
    #[must_use]
    pub fn kernel(mut self, series: &'static str) -> Self {
        self.kernel = series;
        self
    }

    /// Adds a program of the host, by name, with its libraries.
    #[must_use]
    pub fn program(mut self, name: &str) -> Self {
        self.programs.push(name.to_owned());
        self
    }

    /// Adds an executable at the same path, stripped of debug information, with its libraries.
    #[must_use]
    pub fn binary(mut self, path: &str) -> Self {
        self.binaries.push(PathBuf::from(path));
        self
    }

    /// Adds a folder of the host, with the libraries that its files need.
    #[must_use]
    pub fn folder(mut self, path: &str) -> Self {
        self.folders.push(PathBuf::from(path));
        self
    }

    /// In the guest: runs `test`. Outside: boots the machine, has it run the same test, and fails if that fails.
    ///
    /// # Panics
    /// When the test fails, or the machine cannot be started.
    pub fn run(self, test: impl FnOnce()) {
        if std::env::var_os(INSIDE).is_some() {
            return test();
        }
        if self.kernel != USUAL
            && let Some(reason) = kernel::missing(self.kernel)
        {
            eprintln!("{}: NOT RUN: set-up found no Linux {}: {}", self.test, self.kernel, reason.trim());
            return;
        }
        match self.boot() {
            Ok(machine::Ending { code: Some(0), output, .. }) => {
                eprint!("{output}");
                assert!(
                    output.contains("1 passed"),
                    "no test named {} ran in the guest:\n{output}",
                    self.test
                );
            }
            Ok(ending) => panic!(
                "{} in the guest: exit code {:?}\n---- output\n{}\n---- end of the console\n{}",
                self.test,
                ending.code,
                ending.output,
                ending.console_tail()
            ),
            Err(error) => panic!("{}: no guest of Linux {} to run in: {error:#}", self.test, self.kernel),
        }
    }

    fn boot(&self) -> Result<machine::Ending> {
        let folder = Folder::new("guest")?;
        let kernel = kernel::Kernel::find(self.kernel)?;
        let mut archive = archive::Archive::default();
        kernel.add_modules(&mut archive)?;
        let mut libraries = BTreeSet::new();
        let myself = std::env::current_exe().context("finding the test program")?;
        for (number, binary) in self.binaries.iter().chain([&myself]).enumerate() {
            libraries.extend(libraries_of(binary)?);
            let stripped = folder.path().join(format!("stripped-{number}"));
            archive.add_file(binary, &strip(binary, &stripped)?)?;
        }
        for name in &self.programs {
            let path = match name.as_str() {
                "kube-apiserver" | "kubectl" => kubernetes_program(name)?,
                _ => program(name, "install its Debian package (`make setup` does)")?,
            };
            libraries.extend(libraries_of(&path)?);
            // Programs like `iptables` are links whose name selects the function.
            archive.add_file(&Path::new("/usr/sbin").join(name), &path)?;
        }
        // The shell of busybox would prefer its own programs to those that a test names.
        let shell = std::fs::canonicalize("/bin/sh").context("finding the shell")?;
        libraries.extend(libraries_of(&shell)?);
        archive.add_file(Path::new("/bin/sh"), &shell)?;
        for wanted in &self.folders {
            for entry in std::fs::read_dir(wanted).with_context(|| wanted.display().to_string())? {
                let path = entry?.path();
                libraries.extend(libraries_of(&path).unwrap_or_default());
                archive.add_file(&path, &path)?;
            }
        }
        for library in libraries {
            archive.add_file(&library, &library)?;
        }
        let busybox = program("busybox", "install Debian's busybox-static (`make setup` does)")?;
        archive.add_file(Path::new("/bin/busybox"), &busybox)?;
        archive.add_bytes(Path::new("/init"), init(&myself, &self.test)?.as_bytes(), true);
        let image = folder.path().join("initramfs");
        std::fs::write(&image, archive.finish()).context("writing the guest's file system")?;
        machine::run(kernel.image(), &image, MEMORY_MIB, folder.path(), TIMEOUT)
    }
}

/// The guest's init script: mounts file systems, installs busybox, loads modules, runs the test, and ends.
fn init(test_program: &Path, test: &str) -> Result<String> {
    let test_program = test_program.to_str().context("the test program's path is not text")?;
    if [test_program, test].iter().any(|text| text.contains('\'')) {
        bail!("a quote in the name of a test");
    }
    Ok(format!(
        "#!/bin/busybox sh
# All of it is in memory: nothing is mounted over folders in which the test's own files may be.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp RUST_BACKTRACE=1 {INSIDE}=1
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /root /etc /sbin /usr/sbin /usr/bin /var/lib /var/log
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox ln -s /run /var/run
# What is there already stays.
/bin/busybox --install -s /bin 2>/dev/null
# Where the kernel asks for a module: the names of busybox are links, and this one is looked for here.
ln -s /bin/busybox /sbin/modprobe
echo /sbin/modprobe > /proc/sys/kernel/modprobe
hostname guest
ifconfig lo 127.0.0.1 up
'{test_program}' --exact '{test}' --nocapture --test-threads 1 > /dev/ttyS1 2>&1
echo \"{} $?\" > /dev/ttyS1
sync
reboot -f
",
        machine::END
    ))
}

/// Strips the file of debug information; returns the file itself if that is impossible.
fn strip(binary: &Path, to: &Path) -> Result<PathBuf> {
    let outcome = Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(binary).status();
    match outcome {
        Ok(status) if status.success() => Ok(to.to_owned()),
        // The file is merely larger.
        _ => Ok(binary.to_owned()),
    }
}

/// The shared libraries of an executable, and the loader; empty if it is static.
///
/// # Errors
/// When one of them is missing on this machine.
pub fn libraries_of(path: &Path) -> Result<BTreeSet<PathBuf>> {
    let ldd = program("ldd", "install Debian's libc-bin")?;
    let output = Command::new(ldd).arg(path).output().with_context(|| format!("ldd {}", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}: {}", path.display(), missing.trim());
    }
    Ok(read_ldd(&text))
}

/// Lines are `name => /path (address)`, `/path (address)`, or something without a file.
fn read_ldd(text: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let end = line.rsplit(" => ").next()?.trim();
        let path = end.split(" (").next()?.trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::{Guest, init, read_ldd};
    use std::path::Path;

    #[test]
    fn output_of_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t\
                    /lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found: Vec<_> = read_ldd(text).into_iter().collect();
        assert_eq!(
            found,
            [Path::new("/lib/x86_64-linux-gnu/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
        assert!(read_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn names_with_quotes_are_refused() {
        assert!(init(Path::new("/a"), "b'; poweroff").is_err());
        assert!(init(Path::new("/a'"), "b").is_err());
    }

    /// The guest is a different machine: another kernel, as root, with the programs of this test and its own modules.
    #[test]
    fn a_test_runs_in_a_machine_of_its_own() {
        Guest::new("guest::tests::a_test_runs_in_a_machine_of_its_own").program("ip").run(|| {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
            assert_eq!(name.trim(), "guest");
            let made = std::process::Command::new("ip")
                .args(["link", "add", "wg0", "type", "wireguard"])
                .status()
                .expect("ip");
            assert!(made.success(), "a WireGuard device");
        });
    }
}
