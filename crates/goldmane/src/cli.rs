//! The command line: `calico component goldmane`.

use crate::run::run;
use anyhow::Result;
use clap::Args;
use daemon::SystemEnvironment;
use daemon::log::{LevelFilter, Log};
use std::process::ExitCode;

/// Run Goldmane: collect the flows of all nodes and answer queries about them. Configured by environment variables
/// only.
#[derive(Clone, Debug, Args)]
pub struct Arguments {}

/// Runs until a signal ends it.
///
/// # Errors
/// As [`run`].
pub fn main(_: &Arguments) -> Result<ExitCode> {
    let log = Log::start(LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        run(&SystemEnvironment, |level| log.set_screen(level), shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}
