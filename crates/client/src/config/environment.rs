//! Settings from environment variables, bare or with Calico's prefix, read from an injected source.

use super::parameters::{PARAMETERS, Parameter};
use super::{Mistake, Settings};
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The prefix that is looked up first.
const PREFIX: &str = "CALICO_";

/// What a configuration may be read from. Tests use a map; programs use [`SystemEnvironment`].
pub trait Environment {
    /// The value of a variable, when it is set (even to nothing).
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The text of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_file(&self, path: &Path) -> io::Result<String>;

    /// Whether there is something at this path.
    fn exists(&self, path: &Path) -> bool;
}

/// The variables and files of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

/// Reads every parameter that has a variable. A variable that is set to nothing counts as not set, except that the
/// prefixed one, once set, hides the bare one.
pub(super) fn read(environment: &dyn Environment) -> Result<Settings, Vec<Mistake>> {
    let mut settings = Settings::default();
    let mut mistakes = Vec::new();
    for parameter in PARAMETERS {
        let Some((name, value)) = lookup(parameter, environment) else { continue };
        let outcome = match value.into_string() {
            Ok(text) if text.is_empty() => Ok(()),
            Ok(text) => (parameter.set)(&mut settings, &text),
            Err(_) => Err("holds bytes that are not UTF-8".to_owned()),
        };
        if let Err(message) = outcome {
            mistakes.push(Mistake { place: name, message, excerpt: String::new() });
        }
    }
    if mistakes.is_empty() { Ok(settings) } else { Err(mistakes) }
}

fn lookup(parameter: &Parameter, environment: &dyn Environment) -> Option<(String, OsString)> {
    let names = parameter.variables();
    names.into_iter().find_map(|name| environment.variable(&name).map(|value| (name, value)))
}

impl Parameter {
    /// The variables that set this parameter, in the order they are looked up.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let Some(name) = self.variable else { return Vec::new() };
        let prefixed = format!("{PREFIX}{name}");
        if self.prefixed_only { vec![prefixed] } else { vec![prefixed, name.to_owned()] }
    }
}
