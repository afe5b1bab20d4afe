//! Errors: what was attempted, the kernel's answer, and the end of the verifier's log.

use rustix::io::Errno;

/// The number of lines of the verifier's log in a message: the verdict is at the end.
const LAST_LINES: usize = 12;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// The attempted operation and its object.
        what: String,
        /// The kernel's answer.
        #[source]
        source: Errno,
    },
    /// The verifier refused a program.
    #[error("cannot load program {name}: {source}; the verifier's log:\n{log}")]
    Verifier {
        /// The program's name.
        name: String,
        /// The kernel's answer.
        #[source]
        source: Errno,
        /// The last lines of the log.
        log: String,
    },
    /// A map does not have the layout that its reader expects.
    #[error("map {name} has {found}, not {expected}")]
    Unfit {
        /// The map's name.
        name: String,
        /// The map's actual layout.
        found: String,
        /// The expected layout.
        expected: String,
    },
    /// An object file has content that the loader does not support.
    #[error("object {name}: {what}")]
    Object {
        /// The object's name.
        name: String,
        /// The fault.
        what: String,
    },
    /// A netlink request was refused.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
}

/// The result of every operation in this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kernel's error number, if the kernel refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } | Self::Verifier { source, .. } => Some(*source),
            _ => None,
        }
    }

    pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let what = what.into();
        move |source| Self::Refused { what, source }
    }
}

/// The last lines of a log that the kernel wrote into a buffer.
pub(crate) fn last_lines(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn a_log_is_cut_at_the_first_zero_and_shortened_to_its_end() {
        let long: String = (0..40).map(|line| format!("{line}\n")).collect();
        let mut bytes = long.into_bytes();
        bytes.extend([0, b'x', b'\n']);
        let shown = last_lines(&bytes);
        assert!(shown.starts_with("28\n") && shown.ends_with("\n39"), "{shown}");
        assert_eq!(last_lines(&[0; 4]), "");
    }
}
