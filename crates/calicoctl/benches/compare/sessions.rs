//! The command lines: those of the golden transcripts, one session for each kind, and sessions of our own in `sessions.txt`.

use anyhow::{Context as _, Result};
use std::path::Path;

/// Command lines that run in sequence on one store.
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

/// All sessions, in a fixed order.
pub(crate) fn all() -> Result<Vec<Session>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut sessions = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let lines = text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect();
        sessions.push(Session { name, lines });
    }
    sessions.extend(parse(include_str!("sessions.txt")));
    Ok(sessions)
}

/// `# name` begins a session; other lines are commands.
fn parse(text: &str) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("# "), sessions.last_mut()) {
            (Some(name), _) => sessions.push(Session { name: name.to_owned(), lines: Vec::new() }),
            (None, Some(session)) => session.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    sessions
}

/// Whether a command changes nothing.
pub(crate) fn only_reads(line: &str) -> bool {
    ["calicoctl get ", "calicoctl ipam show", "calicoctl ipam check", "calicoctl validate "]
        .iter()
        .any(|start| line.starts_with(start))
}
