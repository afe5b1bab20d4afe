//! Temporary folders that are removed when dropped, or by the next run if their creator was killed.

use anyhow::{Context, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Once};

/// A folder that exists as long as this value.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

static COUNTER: AtomicU32 = AtomicU32::new(0);
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| std::env::temp_dir().join("tortie-testkit"));

impl Folder {
    /// A new, empty folder that only its owner can enter.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new(purpose: &str) -> Result<Self> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = ROOT.join(format!("{}-{number}-{purpose}", std::process::id()));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("making the folder {}", path.display()))?;
        Ok(Self { path })
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the sweep of the next run.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes folders whose creator is gone. Names start with the creator's process id.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(&*ROOT) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) =
            name.to_str().and_then(|name| name.split('-').next()).and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
