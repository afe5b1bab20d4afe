//! The helper programs: `iptables-save` and `iptables-restore` of one family and variant.

use super::backend::Backend;
use super::look::look;
use super::save::Saved;
use crate::driver::ApplyError;
use netlink::netfilter::nft;
use rules::tree::{IpVersion, Table};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The line that ends a transaction.
pub(super) const COMMIT: &str = "COMMIT";

/// How long `iptables-restore` waits for the lock that all iptables programs share.
const LOCK_SECONDS: u32 = 10;

/// The failure of a helper program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{program}: {reason}")]
pub struct CommandFailed {
    /// The name of the program.
    pub program: String,
    /// Its error output, or why it could not be started.
    pub reason: String,
    /// Its exit code; `None` where it could not be started or was killed.
    pub code: Option<i32>,
}

/// The exit code for failures unrelated to the input: no lock, no memory. The nft variant uses it for refused lines,
/// too, which its output then names.
const RESOURCE_PROBLEM: i32 = 4;
/// From here on, exit codes are those of shells and wrappers that could not run the program.
const NOT_RUN: i32 = 126;
/// Texts that mark a transient failure, whichever line it occurred at.
const PASSING: [&str; 11] = [
    "xtables lock",
    "emory allocation problem",
    "annot allocate memory",
    "out of memory",
    "temporarily unavailable",
    "Interrupted system call",
    "No buffer space available",
    "Too many open files",
    "Operation not permitted",
    "ermission denied",
    "timed out",
];

impl CommandFailed {
    /// Whether the failure has nothing to do with the input, so that the same input may be accepted later. Until then
    /// the kernel's state remains; rules are never suspected because of such a failure.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        let Some(code) = self.code.filter(|code| *code < NOT_RUN) else { return true };
        PASSING.iter().any(|words| self.reason.contains(words))
            || (code == RESOURCE_PROBLEM && self.line().is_none())
    }

    /// The line of its input that the program complained about, counted from one.
    pub(super) fn line(&self) -> Option<usize> {
        // "Error occurred at line: 21", "iptables-restore: line 21 failed", "line 5: RULE_APPEND failed".
        self.reason.match_indices("line").find_map(|(at, word)| {
            let rest = self.reason[at + word.len()..].trim_start_matches([':', ' ']);
            let digits = rest.len() - rest.trim_start_matches(|one: char| one.is_ascii_digit()).len();
            rest[..digits].parse().ok()
        })
    }
}

impl From<CommandFailed> for ApplyError {
    fn from(failed: CommandFailed) -> Self {
        Self::Program { program: failed.program, reason: failed.reason }
    }
}

/// The operations that the driver needs of the helper programs.
pub trait Commands: Send {
    /// Prints a table.
    ///
    /// # Errors
    /// When the program fails.
    fn save(&mut self, table: Table) -> Result<String, CommandFailed>;

    /// Reads the state of a table without the text of rules and without a program; `None` where only the program can.
    fn look(&mut self, _table: Table) -> Option<Saved> {
        None
    }

    /// Carries out one or more transactions, which are passed in pieces: the program processes the first pieces while
    /// the next are produced. Without any piece it is not started.
    ///
    /// # Errors
    /// When the program fails; transactions before the failed one are done.
    fn restore(&mut self, pieces: &mut dyn Iterator<Item = String>) -> Result<(), CommandFailed>;
}

/// The real programs.
#[derive(Debug)]
pub struct Programs {
    save: String,
    restore: String,
    lock: Option<Duration>,
    version: IpVersion,
    /// Whether the variant's rules can be read from the kernel's nftables.
    is_nft: bool,
    /// Opened at first use, in the network namespace of that time.
    client: Option<nft::Client>,
    commits: Arc<AtomicU64>,
}

impl Programs {
    /// The programs of this family and variant. `lock` is how often the lock is probed, if the program knows the lock.
    #[must_use]
    pub fn new(version: IpVersion, backend: Backend, lock: Option<Duration>) -> Self {
        let name = |action| backend.program(version, action, super::backend::is_installed);
        Self {
            save: name("save"),
            restore: name("restore"),
            lock,
            version,
            // The plain programs may be of either variant.
            is_nft: backend == Backend::Nft && backend.is_available(version),
            client: None,
            commits: Arc::default(),
        }
    }

    /// The number of nftables transactions carried out so far; keeps counting.
    #[must_use]
    pub fn commits(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.commits)
    }

    fn try_to_look(&mut self, table: Table) -> netlink::netfilter::Result<Option<Saved>> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(nft::Client::open()?),
        };
        look(client, self.version, table)
    }
}

impl Commands for Programs {
    fn save(&mut self, table: Table) -> Result<String, CommandFailed> {
        let mut command = Command::new(&self.save);
        command.args(["-t", table.as_str()]);
        let output = command.output().map_err(|error| not_started(&self.save, &error))?;
        if !output.status.success() {
            return Err(failed(&self.save, &output.status, &output.stderr));
        }
        String::from_utf8(output.stdout).map_err(|error| CommandFailed {
            program: self.save.clone(),
            reason: format!("its output is not text: {error}"),
            code: output.status.code(),
        })
    }

    fn look(&mut self, table: Table) -> Option<Saved> {
        if !self.is_nft {
            return None;
        }
        self.try_to_look(table).unwrap_or_else(|error| {
            tracing::debug!(%error, "nftables cannot be read; running the program instead");
            None
        })
    }

    fn restore(&mut self, pieces: &mut dyn Iterator<Item = String>) -> Result<(), CommandFailed> {
        let Some(first) = pieces.next() else { return Ok(()) };
        let mut command = Command::new(&self.restore);
        command.arg("--noflush");
        if let Some(interval) = self.lock {
            let interval = interval.as_micros().max(1).to_string();
            command.args(["--wait", &LOCK_SECONDS.to_string(), "--wait-interval", &interval]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| not_started(&self.restore, &error))?;
        let stdin = child.stdin.take();
        let mut commits = 0;
        // The program may write errors before it has read everything, so both ends are served at once.
        let output = std::thread::scope(|scope| {
            let listener = scope.spawn(move || child.wait_with_output());
            if let Some(mut stdin) = stdin {
                for piece in std::iter::once(first).chain(pieces) {
                    // A program that ended early reports the reason itself.
                    if stdin.write_all(piece.as_bytes()).is_err() {
                        break;
                    }
                    commits += piece.lines().filter(|line| *line == COMMIT).count();
                }
            }
            listener
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("the thread that reads its output panicked")))
        });
        let output = output.map_err(|error| not_started(&self.restore, &error))?;
        if output.status.success() {
            if self.is_nft {
                self.commits.fetch_add(u64::try_from(commits).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
            Ok(())
        } else {
            Err(failed(&self.restore, &output.status, &output.stderr))
        }
    }
}

fn not_started(program: &str, error: &std::io::Error) -> CommandFailed {
    let hint =
        if error.kind() == std::io::ErrorKind::NotFound { " (install the package iptables)" } else { "" };
    let reason = format!("cannot be run: {error}{hint}");
    CommandFailed { program: program.to_owned(), reason, code: None }
}

fn failed(program: &str, status: &std::process::ExitStatus, stderr: &[u8]) -> CommandFailed {
    let words = String::from_utf8_lossy(stderr);
    // The last line only refers to the help.
    let words: Vec<&str> =
        words.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Try `")).collect();
    CommandFailed {
        program: program.to_owned(),
        reason: format!("{status}: {}", words.join("; ")),
        code: status.code(),
    }
}

#[cfg(test)]
mod tests {
    use super::CommandFailed;

    #[test]
    fn line_numbers_are_found_in_errors() {
        let line = |reason: &str| {
            CommandFailed { program: String::new(), reason: reason.to_owned(), code: Some(1) }.line()
        };
        assert_eq!(line("Set x doesn't exist.; Error occurred at line: 21"), Some(21));
        assert_eq!(line("iptables-restore: line 7 failed"), Some(7));
        assert_eq!(
            line("v1.8.9 (nf_tables): ; line 5: RULE_APPEND failed (No such file): rule in chain X"),
            Some(5)
        );
        assert_eq!(line("offline; line 3 failed"), Some(3));
        assert_eq!(line("Another app is holding the lock"), None);
    }

    #[test]
    fn transient_failures_are_distinguished_from_refused_rules() {
        let passing = |code, reason: &str| {
            CommandFailed { program: String::new(), reason: reason.to_owned(), code }.is_passing()
        };
        for (code, reason) in [
            (None, "cannot be run: No such file or directory"),
            (None, "signal: 9 (SIGKILL): "),
            (Some(127), "sh: iptables-restore: not found"),
            (Some(4), ""),
            (
                Some(4),
                "Another app is currently holding the xtables lock. Perhaps you want to use the -w option?",
            ),
            (Some(4), "iptables-restore: Memory allocation problem."),
            (Some(1), "line 5: RULE_APPEND failed (Cannot allocate memory): rule in chain X"),
            (Some(4), "line 5: CHAIN_ADD failed (Resource temporarily unavailable): chain X"),
            (Some(4), "Fatal: can't open lock file /run/xtables.lock: Permission denied"),
        ] {
            assert!(passing(code, reason), "{reason}");
        }
        for (code, reason) in [
            (Some(2), "Set x doesn't exist.; Error occurred at line: 21"),
            (Some(1), "iptables-restore: line 7 failed"),
            (Some(4), "line 5: RULE_APPEND failed (No such file or directory): rule in chain X"),
        ] {
            assert!(!passing(code, reason), "{reason}");
        }
    }
}
