//! What was attempted, what the kernel answered, and the verifier's last words.

use rustix::io::Errno;

/// Lines of the verifier's log that a message has: its verdict is at the end.
const LAST_LINES: usize = 12;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// What was attempted, on which object.
        what: String,
        /// The kernel's answer.
        #[source]
        source: Errno,
    },
    /// The verifier refused a program.
    #[error("cannot load program {name}: {source}; the verifier said:\n{log}")]
    Verifier {
        /// Which program.
        name: String,
        /// The kernel's answer.
        #[source]
        source: Errno,
        /// The last lines of the log.
        log: String,
    },
    /// A map is not what its reader expects.
    #[error("map {name} has {found}, not {expected}")]
    Unfit {
        /// Which map.
        name: String,
        /// What it has.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// An object is not what the loader understands.
    #[error("object {name}: {what}")]
    Object {
        /// Which object.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// The kernel's network side refused.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
}

/// The outcome of everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kernel's answer, if there was one.
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

/// The end of a log that the kernel wrote into a buffer.
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
    fn a_log_is_shown_from_its_end_and_up_to_the_first_zero() {
        let long: String = (0..40).map(|line| format!("{line}\n")).collect();
        let mut bytes = long.into_bytes();
        bytes.extend([0, b'x', b'\n']);
        let shown = last_lines(&bytes);
        assert!(shown.starts_with("28\n") && shown.ends_with("\n39"), "{shown}");
        assert_eq!(last_lines(&[0; 4]), "");
    }
}
