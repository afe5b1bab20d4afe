//! A control group per node, under which its kubelet puts pods, so that two kubelets can share a machine and everything
//! can be removed at the end. Works with version 1 of control groups (a folder per controller) and with version 2.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/fs/cgroup";

/// The control groups of one node. They are removed on drop; no process may be left in them by then.
#[derive(Debug)]
pub(crate) struct ControlGroups {
    name: String,
    folders: Vec<PathBuf>,
}

impl ControlGroups {
    /// Creates them under every controller.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut groups = Self { name: name.to_owned(), folders: Vec::new() };
        for root in hierarchies()? {
            let folder = root.join(name);
            std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
            groups.folders.push(folder.clone());
            // A new group has no processors and no memory nodes until some are assigned.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(value) = std::fs::read(root.join(file)) {
                    std::fs::write(folder.join(file), value)
                        .with_context(|| format!("setting {file} of {}", folder.display()))?;
                }
            }
        }
        Ok(groups)
    }

    /// The group in the version 2 hierarchy beside those of version 1, if this machine has both: programs attached
    /// there affect everything below.
    pub(crate) fn unified(&self) -> Option<PathBuf> {
        self.folders.iter().find(|folder| folder.starts_with(Path::new(ROOT).join("unified"))).cloned()
    }

    /// The path that a kubelet uses as its root.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        // Killed processes leave their groups a moment later.
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            self.folders.iter().for_each(|folder| remove(folder));
            if !self.folders.iter().any(|folder| folder.exists()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The parent folders of groups: each controller's, or the only one.
fn hierarchies() -> Result<Vec<PathBuf>> {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return Ok(vec![PathBuf::from(ROOT)]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(ROOT).with_context(|| format!("reading {ROOT}"))? {
        let path = entry?.path();
        // Links beside the folders ("cpu" for "cpu,cpuacct") lead to the same place.
        if path.join("cgroup.procs").exists() && !path.is_symlink() {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes a group and those below, children first.
fn remove(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    // A group that still contains a process stays; it does no harm.
    let _ = std::fs::remove_dir(folder);
}
