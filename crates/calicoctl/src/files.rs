//! The objects of users' files: files, directories, or standard input.
//!
//! All files are read before anything is written, and all their mistakes are reported together: an unknown field must
//! not surface after half of the objects have been written.

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::kinds;
use api::document::{self, Checks, Diagnostics, Document, read};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Where objects come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FileFlags {
    /// A file of resources in YAML or JSON; - for standard input, a directory for all .yaml, .yml and .json files in it.
    /// May be given several times.
    #[arg(long, short = 'f', value_name = "FILENAME", value_hint = clap::ValueHint::AnyPath)]
    pub filename: Vec<PathBuf>,
    /// Also look for files in subdirectories of those given with -f.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Accept files and directories that contain no resources.
    #[arg(long)]
    pub skip_empty: bool,
}

impl FileFlags {
    /// The objects, in the order they were found. Empty only with `--skip-empty`. Only their structure decides whether
    /// they can be read; if it has mistakes, `reported` selects which further mistakes are shown beside them.
    ///
    /// # Errors
    /// When a file cannot be read, holds mistakes, or holds nothing.
    pub(crate) fn documents(&self, context: &mut Context, reported: Checks) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        let mut mistakes = Vec::new();
        let mut texts = Vec::new();
        for file in self.files()? {
            let (name, bytes) = contents(context, &file)?;
            let found = read(&name, &bytes, Checks::Structure);
            texts.push((name.clone(), bytes));
            match found {
                Ok(found) if found.is_empty() && !self.skip_empty => {
                    return Err(Failure::new(format!("no resources specified in file {name}")));
                }
                Ok(found) => documents.extend(found),
                Err(found) => mistakes.push(found),
            }
        }
        if !mistakes.is_empty() {
            if reported == Checks::Everything {
                let all =
                    texts.iter().filter_map(|(name, bytes)| read(name, bytes, Checks::Everything).err());
                mistakes = all.collect();
            }
            return Err(failure(&mistakes));
        }
        for document in &documents {
            managed(document)?;
        }
        for warnings in document::warnings(&documents) {
            context.warn(&format!("{warnings}\n"));
        }
        Ok(documents)
    }

    /// Whether any file is given.
    #[must_use]
    pub(crate) fn is_given(&self) -> bool {
        !self.filename.is_empty()
    }

    /// The files that all paths expand to, each once, in the order of the paths.
    fn files(&self) -> Result<Vec<PathBuf>> {
        if !self.is_given() {
            return Err(Failure::new(
                "no resources specified: name a file, a directory or - (stdin) with -f",
            ));
        }
        let mut all: Vec<PathBuf> = Vec::new();
        let mut seen = BTreeSet::new();
        for path in &self.filename {
            let found = files(path, self.recursive)?;
            if found.is_empty() && !self.skip_empty {
                return Err(Failure::new(format!("no resources specified in directory {}", path.display())));
            }
            // A file that is given together with its directory counts once.
            all.extend(found.into_iter().filter(|file| seen.insert(file.clone())));
        }
        Ok(all)
    }

    /// The texts of the files, each with its name, for commands that read more than current objects.
    ///
    /// # Errors
    /// When a file cannot be read or is not text, or no file is named.
    pub(crate) fn texts(&self, context: &mut Context) -> Result<Vec<(String, String)>> {
        let mut texts = Vec::new();
        for file in self.files()? {
            let (name, bytes) = contents(context, &file)?;
            let text = String::from_utf8(bytes)
                .map_err(|_| Failure::new(format!("failed to execute command: {name} is not UTF-8 text")))?;
            texts.push((name, text));
        }
        Ok(texts)
    }
}

/// Refuses kinds that users cannot write.
fn managed(document: &Document) -> Result<()> {
    let kind = document.kind();
    if kinds::entry_of(kind).is_some() {
        return Ok(());
    }
    let version = api::kind::API_VERSION;
    Err(Failure::new(format!(
        "failed to execute command: unknown resource type ({kind}) and/or version ({version}): objects of this kind are \
         managed by Calico itself"
    )))
}

/// The mistakes of all files, after the line that Calico's tool would print.
fn failure(mistakes: &[Diagnostics]) -> Failure {
    const UNKNOWN: &str = "unknown field `";
    let unknown = mistakes.iter().flat_map(Diagnostics::as_slice).find_map(|diagnostic| {
        let rest = diagnostic.message.strip_prefix(UNKNOWN)?;
        rest.split('`').next()
    });
    let mut text = match unknown {
        Some(field) => format!("field in document is not recognized or is in the wrong location: {field}"),
        None => "failed to execute command: the input has mistakes".to_owned(),
    };
    for found in mistakes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n\n{found}");
    }
    Failure::new(text)
}

/// The files that a path expands to, ordered by name.
fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    if path == Path::new("-") || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    walk(path, recursive, &mut found)?;
    Ok(found)
}

fn walk(directory: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<()> {
    let unreadable = |error: std::io::Error| cannot_open(directory, &error);
    let mut entries = std::fs::read_dir(directory)
        .map_err(unreadable)?
        .map(|entry| entry.map(|entry| (entry.file_name(), entry)))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(unreadable)?;
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (_, entry) in entries {
        let path = entry.path();
        // Links to directories are not followed, so that cycles of links end.
        if entry.file_type().map_err(unreadable)?.is_dir() {
            if recursive {
                walk(&path, recursive, found)?;
            }
            continue;
        }
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        if matches!(extension.as_deref(), Some("yaml" | "yml" | "json")) {
            found.push(path);
        }
    }
    Ok(())
}

/// The bytes of a file, and its name for messages.
fn contents(context: &mut Context, path: &Path) -> Result<(String, Vec<u8>)> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        context.surroundings.stdin.read_to_end(&mut bytes)?;
        return Ok(("stdin".to_owned(), bytes));
    }
    match std::fs::read(path) {
        Ok(bytes) => Ok((path.display().to_string(), bytes)),
        Err(error) => {
            let message = cannot_open(path, &error);
            Err(Failure::new(format!("failed to execute command: {message}")))
        }
    }
}

/// A failure to open a file, worded like Calico's tool.
#[must_use]
pub(crate) fn cannot_open(path: &Path, error: &std::io::Error) -> Failure {
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or(&reason).to_lowercase();
    Failure::new(format!("open {}: {reason}", path.display()))
}
