//! Settings of a component, declared once: a row of [`settings!`] holds the field, how its text is read, its name, its
//! default and its line in the reference. Adding a setting takes one row and its use.
//!
//! - [`document!`]: settings in a JSON document.
//! - [`parameters!`]: settings from a file or variables, kept in existing structs.
//! - [`kinds`]: how texts are read. A component may add its own kinds.
//! - [`ClientAuth`], [`DatastoreType`]: choices that several components offer.
//! - [`Row`]: one setting, for reference pages and checks.
//! - [`Mistakes`]: all mistakes at once, each with the setting's name and the remedy.
//!
//! Does no IO: texts come from a function that looks names up.

mod client_auth;
mod datastore_type;
mod document;
pub mod kinds;
mod macros;
mod page;
mod parameters;

pub use client_auth::ClientAuth;
pub use datastore_type::DatastoreType;
pub use document::{Content, Described, Document, Field, document_page};
pub use kinds::{Kind, Trouble};
pub use page::page;
pub use parameters::{Holds, Parameter, parameters_page};

use std::fmt;

/// One setting, as the reference shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name of the variable or field.
    pub name: &'static str,
    /// The text that is read if nothing is set; empty for none.
    pub default: &'static str,
    /// The field of a resource that the variable overrides; empty for none.
    pub beats: &'static str,
    /// What it means.
    pub doc: &'static str,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The setting's name.
    pub name: &'static str,
    /// The text it is set to.
    pub value: String,
    /// What is wrong, and what to do about it.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.name, self.value, self.reason)
    }
}

/// All settings that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "environment variable {only}"),
            several => {
                write!(f, "{} environment variables cannot be used:", several.len())?;
                several.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
            }
        }
    }
}

impl std::error::Error for Mistakes {}

/// The problems found while reading settings.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Settings that cannot be used.
    pub mistakes: Mistakes,
    /// Settings whose text was replaced by their default; for the log.
    pub warnings: Vec<Mistake>,
}

impl Reading {
    /// Reads one setting. `found` is its text if it is set, even if empty; `Err` if it is not UTF-8.
    pub fn value<K: Kind>(&mut self, kind: &K, row: &Row, found: Option<Result<String, String>>) -> K::Value {
        let found = match found {
            Some(Err(value)) => {
                let reason = "contains bytes that are not UTF-8: write it again as plain text".to_owned();
                self.mistakes.0.push(Mistake { name: row.name, value, reason });
                None
            }
            Some(Ok(text)) => Some(text),
            None => None,
        };
        let trouble = match kind.read(found.as_deref(), row.default) {
            Ok(value) => return value,
            Err(trouble) => trouble,
        };
        let value = found.unwrap_or_default();
        match trouble {
            Trouble::Mistake(reason) => self.mistakes.0.push(Mistake { name: row.name, value, reason }),
            Trouble::Ignored(reason) => self.warnings.push(Mistake { name: row.name, value, reason }),
        }
        // The row's own default can always be read; a test of every table ensures it.
        kind.read(None, row.default).unwrap_or_else(|_| kind.nothing())
    }
}

/// Converts an environment's value to a setting's text, which may not be UTF-8.
#[must_use]
pub fn utf8(value: Option<std::ffi::OsString>) -> Option<Result<String, String>> {
    value.map(|value| value.into_string().map_err(|bytes| bytes.to_string_lossy().into_owned()))
}
