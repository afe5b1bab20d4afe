//! The command line: `kube-controllers`, and the probe that reads its status file.

use crate::leader::LeaderSettings;
use crate::run::{Options, Surroundings, run};
use crate::status::{self, DEFAULT_FILE};
use anyhow::Result;
use clap::{Args, Parser};
use daemon::log::{LevelFilter, Log};
use daemon::{Environment as _, SystemEnvironment};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the Calico Kubernetes controllers.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// File to write status information to.
    #[arg(long, default_value = DEFAULT_FILE)]
    pub status_file: PathBuf,
    /// Port to serve HTTP health checks on (0 to disable).
    #[arg(long, default_value_t = 0)]
    pub health_port: u16,
    /// Work only while holding a Lease, so that several instances can run and one of them works.
    #[arg(long)]
    pub leader_elect: bool,
    /// Namespace of the Lease.
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_namespace: String,
    /// Name of the Lease.
    #[arg(long, default_value = "calico-kube-controllers")]
    pub leader_elect_name: String,
}

/// Check the status file of the controllers.
#[derive(Clone, Debug, Parser)]
#[command(name = "check-status", disable_version_flag = true)]
pub struct CheckArguments {
    /// Display version.
    #[arg(short = 'v', long)]
    pub version: bool,
    /// File to read with status information.
    #[arg(short = 'f', long, alias = "status-file", default_value = DEFAULT_FILE)]
    pub file: PathBuf,
    /// Check readiness.
    #[arg(short = 'r', long)]
    pub ready: bool,
    /// Check liveness.
    #[arg(short = 'l', long)]
    pub live: bool,
}

/// Runs the controllers until a signal ends them.
///
/// # Errors
/// As [`run`].
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let log = Log::start(LevelFilter::INFO);
    let surroundings = Surroundings {
        environment: Box::new(SystemEnvironment),
        set_log_level: Box::new(move |level| log.set_screen(level.filter())),
    };
    // One thread is enough: the work consists of waiting for answers, and each further thread would keep memory of its
    // own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        run(options(arguments), surroundings, shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn options(arguments: &Arguments) -> Options {
    let identity = || {
        let host = SystemEnvironment.text("HOSTNAME").unwrap_or_else(|| "kube-controllers".to_owned());
        format!("{host}_{}", uuid::Uuid::new_v4())
    };
    Options {
        status_file: arguments.status_file.clone(),
        health_port: arguments.health_port,
        leader: arguments.leader_elect.then(|| LeaderSettings {
            namespace: arguments.leader_elect_namespace.clone(),
            name: arguments.leader_elect_name.clone(),
            identity: identity(),
        }),
    }
}

/// Runs the probe by its own command line: `check-status -l`, `-r`, `-f FILE`, `-v`.
#[must_use]
pub fn check_status(arguments: &[OsString], version: &str) -> ExitCode {
    match CheckArguments::try_parse_from(arguments) {
        Ok(arguments) => check(&arguments, version),
        Err(error) => {
            let _ = error.print();
            ExitCode::FAILURE
        }
    }
}

/// Runs the probe.
#[must_use]
pub fn check(arguments: &CheckArguments, version: &str) -> ExitCode {
    let (text, is_good) = if arguments.version {
        (version.to_owned(), true)
    } else if arguments.ready || arguments.live {
        status::check(&arguments.file)
    } else {
        ("No command specified to check-status".to_owned(), false)
    };
    // If the output cannot be written, the probe still has its exit code.
    let _ = writeln!(std::io::stdout(), "{text}");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_commands_of_both_generations_are_accepted() {
        for line in ["check-status -l", "check-status -r -f /x", "check-status --ready", "check-status -v"] {
            assert!(CheckArguments::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(CheckArguments::try_parse_from(["check-status", "--what"]).is_err());
    }
}
