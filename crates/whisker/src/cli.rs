//! The command line: `tortie whisker`, `calico component whisker-backend`.

use anyhow::Result;
use clap::Args;
use daemon::SystemEnvironment;
use daemon::log::{LevelFilter, Log};
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve the page that shows flows, and the API of Calico's whisker-backend.
#[derive(Clone, Debug, Default, Args)]
pub struct Arguments {
    /// The address to listen on, instead of HOST and PORT.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The address of Goldmane, instead of GOLDMANE_HOST.
    #[arg(long, value_name = "HOST:PORT")]
    pub goldmane: Option<String>,
    /// Show made-up flows, to try the page without a cluster.
    #[arg(long, conflicts_with = "goldmane")]
    pub demo: bool,
    /// Serve the page from this folder, for working on the page.
    #[arg(long, value_name = "DIR")]
    pub page_dir: Option<PathBuf>,
}

/// Runs the server until a signal ends it.
///
/// # Errors
/// When the server cannot start.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let log = Log::start(LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        crate::run::run(arguments, &SystemEnvironment, &log, shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}
