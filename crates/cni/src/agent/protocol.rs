//! The protocol of the socket: one frame in each direction; a frame is JSON, preceded by its length in four bytes.
//!
//! The first frame names the protocol versions that its sender speaks, so that a plugin and an agent of different
//! versions either understand each other or report that they do not; the plugin then does the work itself. The pod's
//! network namespace is passed as an open descriptor, because the agent may not see the path.

use crate::request::Environment;
use crate::run::Program;
use cni_protocol::Outcome;
use serde::{Deserialize, Serialize};
use std::io;

/// The newest version of this protocol.
pub(crate) const NEWEST: u32 = 1;
/// The oldest version that is still understood.
pub(crate) const OLDEST: u32 = 1;

/// The longest frame. Configurations and results are a few kilobytes.
pub(crate) const MAX_FRAME: usize = 1024 * 1024;

/// A plugin's question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The oldest version that the plugin speaks.
    pub oldest: u32,
    /// The newest version that the plugin speaks.
    pub newest: u32,
    /// The plugin that was called.
    pub program: Program,
    /// Its environment variables, as far as they matter.
    pub environment: Environment,
    /// Its standard input.
    pub configuration: String,
    /// Whether the network namespace is passed along as a descriptor.
    pub has_namespace: bool,
}

/// The agent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// The call was carried out, successfully or not.
    Done {
        /// The output for the runtime.
        stdout: String,
        /// The exit code.
        exit: u8,
    },
    /// The agent cannot work yet; the plugin may ask again.
    NotReady {
        /// What the agent is waiting for.
        waiting_for: String,
    },
    /// The agent does not do this; the plugin must.
    NotMine {
        /// The reason, in one sentence.
        reason: String,
    },
    /// Plugin and agent have no version in common.
    OtherVersion {
        /// The oldest version that the agent speaks.
        oldest: u32,
        /// The newest version that the agent speaks.
        newest: u32,
    },
}

impl Question {
    /// Whether plugin and agent have a version in common.
    #[must_use]
    pub(crate) fn is_understood(&self) -> bool {
        self.oldest <= NEWEST && self.newest >= OLDEST
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        Self::Done { stdout: String::from_utf8_lossy(&outcome.stdout).into_owned(), exit: outcome.exit }
    }
}

/// A value as a frame.
///
/// # Errors
/// When the value is too long.
pub(crate) fn frame(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(value)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME).ok_or_else(too_long)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// The length that the first four bytes of a frame give.
///
/// # Errors
/// When it is too long: nothing of that size is read into memory.
pub(crate) fn body_length(header: [u8; 4]) -> io::Result<usize> {
    usize::try_from(u32::from_be_bytes(header))
        .ok()
        .filter(|length| *length <= MAX_FRAME)
        .ok_or_else(too_long)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame of more than 1 MiB")
}

#[cfg(test)]
mod tests {
    use super::{MAX_FRAME, NEWEST, Question, Reply, body_length, frame};
    use crate::run::Program;

    #[test]
    fn frames_carry_their_length() {
        let reply = Reply::Done { stdout: "x".into(), exit: 0 };
        let bytes = frame(&reply).unwrap();
        let length = body_length(bytes[..4].try_into().unwrap()).unwrap();
        assert_eq!(length, bytes.len() - 4);
        assert_eq!(serde_json::from_slice::<Reply>(&bytes[4..]).unwrap(), reply);
        assert!(body_length([0xff; 4]).is_err());
        assert!(frame(&"x".repeat(MAX_FRAME)).is_err());
    }

    #[test]
    fn versions_without_overlap_are_detected() {
        let question = |oldest, newest| Question {
            oldest,
            newest,
            program: Program::Plugin,
            environment: crate::request::Environment::new(),
            configuration: String::new(),
            has_namespace: false,
        };
        assert!(question(1, 1).is_understood() && question(1, 7).is_understood());
        assert!(!question(NEWEST + 1, NEWEST + 2).is_understood() && !question(0, 0).is_understood());
        // An unknown reply of a newer agent is an error, and so the plugin does the work itself.
        assert!(serde_json::from_str::<Reply>(r#"{"later":{}}"#).is_err());
    }
}
