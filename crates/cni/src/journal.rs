//! Releases that could not be carried out because the datastore was unreachable: kept on disk, carried out later.
//!
//! There is one file per attachment, written as a whole and synced before DEL reports success. It contains the
//! runtime's request and the node's name, so that carrying it out is the same DEL again, without the wiring and without
//! addresses of other IPAM plugins, which need no datastore and are released at once. The next plugin that reaches the
//! datastore carries it out, and so does the agent ([`crate::agent`]). A release names the container, so a late one
//! never touches what a newer container of the same pod has.

use crate::request::{Command, Environment, Request, is_passed, is_secret};
use daemon::FolderWatch;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The version of the files' form.
const FORM: u32 = 1;
/// The suffix of the journal's files; anything else in the folder is not ours.
const ENDING: &str = ".release.json";

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    form: u32,
    environment: Environment,
    configuration: serde_json::Value,
    /// The node's name, which perhaps only a process on the host can find out.
    #[serde(default)]
    node: Option<String>,
}

/// A release that is due.
#[derive(Debug)]
pub(crate) struct Due {
    /// The DEL.
    pub request: Request,
    /// The node's name, if it was known.
    pub node: Option<String>,
}

/// A file of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueFile {
    path: PathBuf,
    container: String,
}

impl DueFile {
    /// The file at this path, if its name is that of a release.
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
        let container = name.split('+').nth(1).unwrap_or(name).to_owned();
        Some(Self { path, container })
    }

    /// The container's id.
    #[must_use]
    pub(crate) fn container(&self) -> &str {
        &self.container
    }
}

/// The folder of due releases.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// The journal in this folder, which need not exist yet.
    #[must_use]
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Keeps a DEL for later. On return it survives the end of the process and of the machine.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn record(&self, request: &Request, node: Option<&str>) -> io::Result<()> {
        self.make_folder()?;
        // Secrets are not written to disk again; the process that carries out the release has its own.
        let wanted = |name: &str| is_passed(name) && !is_secret(name);
        let mut environment: Environment = request
            .environment
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        environment.insert("CNI_COMMAND".to_owned(), Command::Del.as_str().to_owned());
        let node = node.map(str::to_owned);
        let entry = Entry { form: FORM, environment, configuration: request.document.clone(), node };
        daemon::files::write(&self.file_of(request), &serde_json::to_vec(&entry)?, 0o600)
    }

    /// Watches the folder from now on. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the folder cannot be created, or the kernel has no more watches.
    pub(crate) fn watch(&self) -> io::Result<FolderWatch> {
        self.make_folder()?;
        FolderWatch::new(&self.folder)
    }

    /// Removes the release of this attachment.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(crate) fn strike(&self, request: &Request) -> io::Result<()> {
        match std::fs::remove_file(self.file_of(request)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The due releases, in the order of their waiting times, longest first.
    #[must_use]
    pub(crate) fn files(&self) -> Vec<DueFile> {
        let Ok(folder) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut files: Vec<(Option<SystemTime>, DueFile)> = folder
            .flatten()
            .filter_map(|entry| {
                let since = entry.metadata().and_then(|it| it.modified()).ok();
                Some((since, DueFile::of(entry.path())?))
            })
            .collect();
        files.sort_by(|(a, one), (b, other)| (a, &one.path).cmp(&(b, &other.path)));
        files.into_iter().map(|(_, file)| file).collect()
    }

    /// The content of a file; `None` when it is gone. A file that cannot be read is logged and left.
    #[must_use]
    pub(crate) fn read(&self, file: &DueFile) -> Option<Due> {
        read(&file.path)
    }

    /// Moves a file behind the others.
    pub(crate) fn put_behind(&self, file: &DueFile) {
        let outcome =
            File::options().write(true).open(&file.path).and_then(|it| it.set_modified(SystemTime::now()));
        if let Err(error) = outcome {
            tracing::warn!(%error, file = %file.path.display(), "a failed release could not be moved to the end of the queue");
        }
    }

    fn make_folder(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }

    /// Names of networks, containers and interfaces contain no slash, so the file is always in the folder.
    fn file_of(&self, request: &Request) -> PathBuf {
        let name = format!("{}+{}+{}{ENDING}", request.conf.name, request.container_id, request.ifname);
        self.folder.join(name)
    }
}

fn read(file: &Path) -> Option<Due> {
    let text = match std::fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        outcome => outcome.map_err(|error| error.to_string()),
    };
    let outcome = text.and_then(|text| {
        let entry: Entry = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if entry.form != FORM {
            return Err(format!("form {} is of another version", entry.form));
        }
        let configuration = entry.configuration.to_string();
        let request =
            Request::read(&entry.environment, configuration.as_bytes()).map_err(|error| error.to_string())?;
        Ok(Due { request, node: entry.node })
    });
    match outcome {
        Ok(due) => Some(due),
        Err(error) => {
            tracing::error!(%error, file = %file.display(), "a pending release cannot be read and is left");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, DueFile, Journal};
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

    fn due(journal: &Journal) -> Vec<Due> {
        journal.files().iter().filter_map(|file| journal.read(file)).collect()
    }

    #[test]
    fn recorded_releases_are_due_until_removed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(&folder.path().join("pending"));
        assert!(journal.files().is_empty());
        journal.record(&request("c2"), Some("node-a")).unwrap();
        journal.record(&request("c1"), None).unwrap();
        journal.record(&request("c1"), None).unwrap();
        let found = due(&journal);
        assert_eq!(found.iter().map(|it| it.request.container_id.as_str()).collect::<Vec<_>>(), ["c2", "c1"]);
        assert_eq!(
            (found[0].request.command, found[0].request.document["x"].as_i64(), found[0].node.as_deref()),
            (Command::Del, Some(1), Some("node-a"))
        );
        assert!(!found[0].request.environment.contains_key("HOME"));
        journal.strike(&request("c1")).unwrap();
        journal.strike(&request("c1")).unwrap();
        assert_eq!(journal.files().iter().map(DueFile::container).collect::<Vec<_>>(), ["c2"]);
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let pending = folder.path().join("pending");
        assert_eq!(mode(&pending), 0o700);
        let file = std::fs::read_dir(&pending).unwrap().next().unwrap().unwrap().path();
        assert_eq!(mode(&file), 0o600);
        std::fs::write(pending.join("bad.release.json"), "{").unwrap();
        std::fs::write(pending.join("something-else"), "").unwrap();
        assert_eq!((journal.files().len(), due(&journal).len()), (2, 1));
    }

    #[test]
    fn failed_releases_move_behind_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(folder.path());
        for id in ["c1", "c2", "c3"] {
            journal.record(&request(id), None).unwrap();
        }
        let names = || journal.files().iter().map(|file| file.container().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(), ["c1", "c2", "c3"]);
        journal.put_behind(&journal.files()[0]);
        assert_eq!(names(), ["c2", "c3", "c1"]);
    }
}
