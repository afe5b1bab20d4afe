//! The status file for probes: `{"Readiness":{"Startup":{"Ready":true,"Reason":""}}}`, and the program that reads it
//! (`check-status`, `calico component kube-controllers-health`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The default path of the file.
pub(crate) const DEFAULT_FILE: &str = "/status/status.json";

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// The parts by name.
    #[serde(rename = "Readiness", default)]
    pub parts: BTreeMap<String, Condition>,
}

/// The state of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Condition {
    /// Whether it is ready.
    pub ready: bool,
    /// Why it is not ready; empty if it is.
    pub reason: String,
}

impl Readiness {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or parsed.
    pub fn read(path: &Path) -> io::Result<Self> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
    }

    /// Whether all parts are ready; false if there are none, because then nothing has started yet.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.parts.is_empty() && self.parts.values().all(|condition| condition.ready)
    }

    /// Why it is not ready.
    #[must_use]
    pub fn reasons(&self) -> String {
        let unready = self.parts.values().filter(|condition| !condition.ready);
        unready.map(|condition| condition.reason.as_str()).collect::<Vec<_>>().join("; ")
    }
}

/// Returns a probe's output, and whether it succeeds.
#[must_use]
pub fn check(path: &Path) -> (String, bool) {
    match Readiness::read(path) {
        Ok(readiness) if readiness.is_ready() => ("Ready".to_owned(), true),
        Ok(readiness) => (readiness.reasons(), false),
        Err(error) => (format!("Failed to read status file {}: {error}", path.display()), false),
    }
}

/// The writer of the file. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StatusFile {
    path: Arc<PathBuf>,
    readiness: Arc<Mutex<Readiness>>,
}

impl StatusFile {
    /// A file at this path; it is first written when a part reports its state.
    #[must_use]
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: Arc::new(path), readiness: Arc::default() }
    }

    /// Sets the state of a part. The file is only written if this changes something.
    pub(crate) fn set(&self, part: &str, ready: bool, reason: impl Into<String>) {
        let condition = Condition { ready, reason: reason.into() };
        let mut readiness = self.readiness.lock().unwrap_or_else(PoisonError::into_inner);
        if readiness.parts.get(part) == Some(&condition) {
            return;
        }
        readiness.parts.insert(part.to_owned(), condition);
        if let Err(error) = write(&self.path, &readiness) {
            tracing::warn!(%error, file = %self.path.display(), "cannot write the status file");
        }
    }

    /// Whether all parts are ready.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.lock().unwrap_or_else(PoisonError::into_inner).is_ready()
    }
}

/// Probes read the file at any time, so it must always be whole.
fn write(path: &Path, readiness: &Readiness) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    daemon::files::write(path, &serde_json::to_vec(readiness)?, 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_calicos_format() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status").join("status.json");
        assert!(!check(&path).1);
        let file = StatusFile::new(path.clone());
        file.set("Startup", true, "");
        file.set("KubeAPIServer", false, "Error reaching apiserver");
        assert_eq!(
            std::fs::read_to_string(&path).expect("the file"),
            r#"{"Readiness":{"KubeAPIServer":{"Ready":false,"Reason":"Error reaching apiserver"},"Startup":{"Ready":true,"Reason":""}}}"#
        );
        assert_eq!(check(&path), ("Error reaching apiserver".to_owned(), false));
        file.set("KubeAPIServer", true, "");
        assert_eq!(check(&path), ("Ready".to_owned(), true));
        assert!(file.is_ready());
    }

    #[test]
    fn a_file_without_parts_is_not_ready() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status.json");
        std::fs::write(&path, r#"{"Readiness":{}}"#).expect("writing");
        assert_eq!(check(&path), (String::new(), false));
        std::fs::write(&path, "{").expect("writing");
        assert!(check(&path).0.starts_with("Failed to read status file"));
    }
}
