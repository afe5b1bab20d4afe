//! The output of a plugin: standard output for the runtime, standard error for users, an exit code.

use crate::error::{CniError, Result};

/// The outcome of one run of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The output for the runtime.
    pub stdout: Vec<u8>,
    /// The output for users.
    pub stderr: String,
    /// 0 for success.
    pub exit: u8,
}

impl Outcome {
    /// The outcome of a call; a failure is printed in the configuration's version.
    #[must_use]
    pub fn of(result: Result<Vec<u8>>, cni_version: &str) -> Self {
        match result {
            Ok(stdout) => Self { stdout, ..Self::default() },
            Err(mut error) => {
                if error.cni_version.is_empty() {
                    cni_version.clone_into(&mut error.cni_version);
                }
                Self { stdout: CniError::to_json(&error), exit: 1, ..Self::default() }
            }
        }
    }
}
