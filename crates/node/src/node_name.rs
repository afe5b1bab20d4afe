//! The node's name: from `NODENAME`, else the file of the last start, else `HOSTNAME`, else the system's own name.

use crate::environment::Settings;
use std::io;
use std::path::{Path, PathBuf};

/// The source of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `NODENAME`.
    Variable,
    /// The file of the last start.
    File,
    /// `HOSTNAME`.
    Hostname,
    /// The system.
    System,
}

/// Why no name was found.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The file exists but cannot be read.
    #[error("cannot read the node's name from {}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No source has a name.
    #[error("the node's name is not set: set NODENAME")]
    Nothing,
}

/// Chooses the name and its source. `file` is the contents of the file, `system` the system's name.
///
/// # Errors
/// When no source has a name.
pub(crate) fn choose(
    settings: &Settings,
    file: Option<&str>,
    system: &str,
) -> Result<(String, Origin), NameError> {
    let system = system.trim().to_lowercase();
    [
        (settings.nodename.as_str(), Origin::Variable),
        (file.unwrap_or_default().trim(), Origin::File),
        (settings.hostname.as_str(), Origin::Hostname),
        (system.as_str(), Origin::System),
    ]
    .into_iter()
    .find(|(name, _)| !name.is_empty())
    .map(|(name, origin)| (name.to_owned(), origin))
    .ok_or(NameError::Nothing)
}

/// Chooses the name, reading the file.
///
/// # Errors
/// When the file cannot be read, or no source has a name.
pub(crate) fn determine(settings: &Settings, file: &Path, system: &str) -> Result<String, NameError> {
    let contents = match std::fs::read_to_string(file) {
        Ok(contents) => Some(contents),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(NameError::Read { path: file.to_owned(), source }),
    };
    let (name, origin) = choose(settings, contents.as_deref(), system)?;
    if origin == Origin::System {
        tracing::warn!(
            name,
            "the node's name is the system's: set NODENAME so that it cannot change by itself"
        );
    } else {
        tracing::info!(name, ?origin, "the node's name");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn names_are_taken_in_order_of_precedence() {
        for (variables, file, system, expected) in [
            (vec![("NODENAME", " Given "), ("HOSTNAME", "h")], Some("f"), "s", ("Given", Origin::Variable)),
            (vec![("NODENAME", "  "), ("HOSTNAME", "h")], Some("Kept\n"), "s", ("Kept", Origin::File)),
            (vec![("HOSTNAME", " Host ")], Some(""), "s", ("host", Origin::Hostname)),
            (vec![("HOSTNAME", "Host")], None, "s", ("host", Origin::Hostname)),
            (vec![], None, "System.Example", ("system.example", Origin::System)),
        ] {
            let settings = Settings::read(&Variables::new(variables.clone())).expect("usable variables");
            let (name, origin) = choose(&settings, file, system).expect("a name");
            assert_eq!((name.as_str(), origin), expected, "{variables:?}");
        }
        let settings = Settings::read(&Variables::default()).expect("usable variables");
        assert!(matches!(choose(&settings, None, " "), Err(NameError::Nothing)));
    }
}
