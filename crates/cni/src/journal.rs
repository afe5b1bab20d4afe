//! Releases that could not be carried out because the datastore was away: kept on disk, carried out later.
//!
//! One file per attachment, written whole and synced before DEL says that it is done. It holds what the runtime said, so
//! that carrying it out is the same DEL again, without the wiring. The next plugin that reaches the datastore does it,
//! and so does the agent. A release names the container, so one that comes late never touches what a newer container of
//! the same pod has.

use crate::request::{Command, Environment, Request, is_passed, is_secret};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The form of the files.
const FORM: u32 = 1;
/// What file names end with; anything else in the folder is not ours.
const ENDING: &str = ".release.json";

/// One release that is due.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    form: u32,
    environment: Environment,
    configuration: serde_json::Value,
}

/// The folder of releases that are due.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// The journal in this folder, which need not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Keeps a DEL for later. When this returns, it survives the end of the process and of the machine.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record(&self, request: &Request) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // Secrets are not written to disk once more; whoever carries it out has its own.
        let wanted = |name: &str| is_passed(name) && !is_secret(name);
        let mut environment: Environment = request
            .environment
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        environment.insert("CNI_COMMAND".to_owned(), Command::Del.as_str().to_owned());
        let entry = Entry { form: FORM, environment, configuration: request.document.clone() };
        write_whole(&self.file_of(request), &serde_json::to_vec(&entry)?)
    }

    /// Whether a release of this attachment is due.
    #[must_use]
    pub fn holds(&self, request: &Request) -> bool {
        self.file_of(request).exists()
    }

    /// Strikes the release of this attachment.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn strike(&self, request: &Request) -> io::Result<()> {
        match std::fs::remove_file(self.file_of(request)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The releases that are due, oldest name first, at most so many. What cannot be read is told and left.
    #[must_use]
    pub fn due(&self, at_most: usize) -> Vec<Request> {
        let Ok(folder) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut files: Vec<PathBuf> = folder
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.to_str().is_some_and(|path| path.ends_with(ENDING)))
            .collect();
        files.sort();
        files.into_iter().filter_map(|file| read(&file)).take(at_most).collect()
    }

    /// Names of networks, containers and interfaces have no slash, so the file is always in the folder.
    fn file_of(&self, request: &Request) -> PathBuf {
        let name = format!("{}+{}+{}{ENDING}", request.conf.name, request.container_id, request.ifname);
        self.folder.join(name)
    }
}

fn read(file: &Path) -> Option<Request> {
    let outcome = std::fs::read(file).map_err(|error| error.to_string()).and_then(|text| {
        let entry: Entry = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if entry.form != FORM {
            return Err(format!("form {} is of another version", entry.form));
        }
        let configuration = entry.configuration.to_string();
        Request::read(&entry.environment, configuration.as_bytes()).map_err(|error| error.to_string())
    });
    match outcome {
        Ok(request) => Some(request),
        Err(error) => {
            tracing::error!(%error, file = %file.display(), "a release that is due cannot be read; it stays");
            None
        }
    }
}

/// Writes a file so that it is there whole or not at all, also after a loss of power. Only root can read it.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut output = File::options().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
        output.write_all(bytes)?;
        output.sync_all()?;
        std::fs::rename(&draft, file)?;
        File::open(folder)?.sync_all()
    };
    write().inspect_err(|_| {
        // A draft that stays is overwritten or harmless.
        let _ = std::fs::remove_file(&draft);
    })
}

#[cfg(test)]
mod tests {
    use super::Journal;
    use crate::request::{Command, Environment, Request};
    use std::os::unix::fs::PermissionsExt as _;

    fn request(id: &str) -> Request {
        let environment: Environment = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", "/x"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("HOME", "/root"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        Request::read(&environment, br#"{"name":"net","cniVersion":"1.0.0","x":1}"#).unwrap()
    }

    #[test]
    fn what_is_recorded_is_due_until_it_is_struck() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(&folder.path().join("pending"));
        assert!(journal.due(10).is_empty());
        journal.record(&request("c2")).unwrap();
        journal.record(&request("c1")).unwrap();
        journal.record(&request("c1")).unwrap();
        let due = journal.due(10);
        assert_eq!(due.iter().map(|it| it.container_id.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!((due[0].command, due[0].document["x"].as_i64()), (Command::Del, Some(1)));
        assert!(!due[0].environment.contains_key("HOME"));
        assert_eq!(journal.due(1).len(), 1);
        assert!(journal.holds(&request("c1")));
        journal.strike(&request("c1")).unwrap();
        journal.strike(&request("c1")).unwrap();
        assert_eq!(journal.due(10).len(), 1);
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let pending = folder.path().join("pending");
        assert_eq!(mode(&pending), 0o700);
        let file = std::fs::read_dir(&pending).unwrap().next().unwrap().unwrap().path();
        assert_eq!(mode(&file), 0o600);
        std::fs::write(pending.join("bad.release.json"), "{").unwrap();
        assert_eq!(journal.due(10).len(), 1);
    }
}
