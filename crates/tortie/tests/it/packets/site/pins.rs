//! A BPF file system that is removed with its value.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Pins(PathBuf);

impl Pins {
    pub(super) fn mount(path: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&path)?;
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path).output();
        let mounted = mounted.context("mount, of Debian's mount")?;
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        ensure!(mounted.status.success(), "this kernel has no BPF file system: {why}");
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// All pins, including those in subfolders, but without the kernel's own files.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let (mut open, mut found) = (vec![self.0.clone()], Vec::new());
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => open.push(path),
                    path if path.extension().is_some_and(|end| end == "debug") => {}
                    path => found.push(path),
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
