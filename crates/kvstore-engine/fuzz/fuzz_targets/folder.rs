//! A folder for one input, removed with it.

use std::path::{Path, PathBuf};

pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("kvstore-fuzz-{}", std::process::id()));
        // Left behind by an earlier input that ended the process.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
