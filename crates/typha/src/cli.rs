//! The command line: `calico-typha`.

use crate::run;
use anyhow::Result;
use clap::Args;
use daemon::log::{LevelFilter, Log};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run Typha: follow the datastore once for many nodes.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Configuration file to load, if it exists.
    #[arg(short = 'c', long, default_value = "/etc/calico/typha.cfg")]
    pub config_file: PathBuf,
}

/// Runs Typha until a signal ends it. After a requested shutdown the exit code is 1, like Calico's.
///
/// # Errors
/// Those of [`run::run`].
pub fn main(arguments: &Arguments, version: &str) -> Result<ExitCode> {
    telemetry::memory::join_small_pieces();
    let log = Log::start(LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        run::run(&arguments.config_file, version, &log, &shutdown).await
    })?;
    Ok(ExitCode::from(1))
}
