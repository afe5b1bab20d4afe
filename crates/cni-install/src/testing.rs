//! Variables from a table, for tests.

use client::config::Environment;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, OsString>);

impl Variables {
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        Self(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect())
    }
}

impl Environment for Variables {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).cloned()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}
