//! Runs other programs of this machine: they are found on the `PATH` of the surroundings and get a deadline.

use crate::context::Context;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// How long a program that only reports something may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a program printed, on both streams together, and whether it succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The output; the reason if the program could not be run.
    pub output: Vec<u8>,
    /// Whether it ran and succeeded.
    pub succeeded: bool,
}

/// Finds and runs programs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    path: OsString,
}

impl Programs {
    #[must_use]
    pub(crate) fn of(context: &Context) -> Self {
        Self { path: context.surroundings.environment.variable("PATH").unwrap_or_default() }
    }

    /// The path of a program.
    #[must_use]
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let mut files = std::env::split_paths(&self.path).map(|folder| folder.join(name));
        files.find(|file| file.is_file())
    }

    /// A command that is killed when it is dropped.
    ///
    /// # Errors
    /// When there is no such program.
    pub(crate) fn command(&self, name: &str) -> Result<tokio::process::Command, String> {
        let Some(file) = self.find(name) else {
            return Err(format!("exec: \"{name}\": executable file not found in $PATH"));
        };
        let mut command = tokio::process::Command::new(file);
        command.stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }

    /// Runs a program and returns its report.
    pub(crate) async fn run(&self, name: &str, arguments: &[impl AsRef<OsStr>]) -> Report {
        let failed = |reason: String| Report { output: reason.into_bytes(), succeeded: false };
        let mut command = match self.command(name) {
            Ok(command) => command,
            Err(reason) => return failed(reason),
        };
        match tokio::time::timeout(PATIENCE, command.args(arguments).output()).await {
            Ok(Ok(output)) => {
                let succeeded = output.status.success();
                Report { output: [output.stdout, output.stderr].concat(), succeeded }
            }
            Ok(Err(error)) => failed(error.to_string()),
            Err(_) => failed(format!("no result within {} s", PATIENCE.as_secs())),
        }
    }

    /// Runs a command line whose words contain no spaces.
    pub(crate) async fn run_line(&self, line: &str) -> Report {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [name, arguments @ ..] => self.run(name, arguments).await,
            [] => Report { output: b"no command to execute".to_vec(), succeeded: false },
        }
    }
}
