//! The sources of settings: variables and files, of this process or from a table. Only this module, and the edges that
//! tidy lists, read the process's own variables.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// A source of variables and files. Programs use [`SystemEnvironment`]; [`Variables`] replaces the variables.
pub trait Environment {
    /// The value of a variable if it is set, even if empty.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// Reads a text file.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_file(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    /// Whether this path exists.
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    /// The value of a variable if it is set and not empty.
    fn filled(&self, name: &str) -> Option<OsString> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// The text of a variable if it is set, not empty and valid UTF-8.
    fn text(&self, name: &str) -> Option<String> {
        self.filled(name)?.into_string().ok()
    }

    /// Finds a program on the search path.
    fn find_program(&self, name: &str) -> Option<PathBuf> {
        let path = self.variable("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
    }
}

/// The variables and files of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnvironment;

impl SystemEnvironment {
    /// All variables whose names are UTF-8.
    pub fn variables(self) -> impl Iterator<Item = (String, OsString)> {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
    }

    /// All variables whose names and values are UTF-8.
    pub fn texts(self) -> impl Iterator<Item = (String, String)> {
        self.variables().filter_map(|(name, value)| Some((name, value.into_string().ok()?)))
    }
}

impl Environment for SystemEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

/// Variables from a table. Files are the machine's, unless a table of files is given.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    variables: BTreeMap<String, OsString>,
    /// `None` stands for the machine's files; a file whose text is `None` cannot be read.
    files: Option<BTreeMap<PathBuf, Option<String>>>,
    hidden: BTreeSet<PathBuf>,
}

impl Variables {
    /// Starts with these variables and the machine's files.
    pub fn new<N: Into<String>, V: Into<OsString>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        Self::default().with(variables)
    }

    /// Adds variables; a later value replaces an earlier one.
    #[must_use]
    pub fn with<N: Into<String>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.variables.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Replaces the machine's files: only these exist.
    #[must_use]
    pub fn with_files<P: Into<PathBuf>, T: Into<String>>(
        mut self,
        files: impl IntoIterator<Item = (P, T)>,
    ) -> Self {
        let files = files.into_iter().map(|(path, text)| (path.into(), Some(text.into())));
        self.files.get_or_insert_default().extend(files);
        self
    }

    /// Adds a file that exists but cannot be read, and hides the machine's files.
    #[must_use]
    pub fn with_unreadable_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.get_or_insert_default().insert(path.into(), None);
        self
    }

    /// Hides one of the machine's files.
    #[must_use]
    pub fn without_file(mut self, path: &Path) -> Self {
        self.hidden.insert(path.to_owned());
        self
    }
}

impl Environment for Variables {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        match &self.files {
            _ if self.hidden.contains(path) => Err(io::ErrorKind::NotFound.into()),
            Some(files) => match files.get(path) {
                Some(Some(text)) => Ok(text.clone()),
                Some(None) => Err(io::ErrorKind::PermissionDenied.into()),
                None => Err(io::ErrorKind::NotFound.into()),
            },
            None => std::fs::read_to_string(path),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        !self.hidden.contains(path)
            && self.files.as_ref().map_or_else(|| path.exists(), |files| files.contains_key(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_variables_and_optionally_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().join("real");
        std::fs::write(&real, "machine").expect("writing");
        let table = Variables::new([("A", "1"), ("B", "")]).with([("A", "2")]);
        assert_eq!(table.variable("A"), Some("2".into()));
        assert_eq!((table.variable("B"), table.variable("PATH")), (Some("".into()), None));
        assert_eq!(table.read_file(&real).expect("a file"), "machine");
        let hidden = table.clone().without_file(&real);
        assert!(!hidden.exists(&real) && hidden.read_file(&real).is_err());
        let given = table.with_files([("/etc/x", "given")]);
        assert!(!given.exists(&real) && given.exists(Path::new("/etc/x")));
        assert_eq!(given.read_file(Path::new("/etc/x")).expect("a file"), "given");
        assert!(given.read_file(&real).is_err());
        let secret = given.with_unreadable_file("/etc/y");
        let error = secret.read_file(Path::new("/etc/y")).expect_err("unreadable");
        assert!(secret.exists(Path::new("/etc/y")) && error.kind() == io::ErrorKind::PermissionDenied);
    }
}
