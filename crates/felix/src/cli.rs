//! Felix's command line: its few arguments, its log, and the process around it.

use crate::run::{Ended, run};
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The policy agent.
#[derive(Clone, Debug, Parser)]
#[command(name = "felix", disable_version_flag = true)]
pub struct Arguments {
    /// The configuration file.
    #[arg(short = 'c', long, default_value = "/etc/calico/felix.cfg")]
    pub config_file: PathBuf,
}

/// Runs Felix with these arguments (the first is the program's name) until it ends.
#[must_use]
pub fn main(arguments: &[OsString]) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // If the terminal is gone, there is nowhere left to report to.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    telemetry::memory::share_one_heap();
    telemetry::memory::join_small_pieces();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Feeds, probes and reports; the main work is done in separate threads.
        .worker_threads(1)
        .max_blocking_threads(4)
        .enable_all()
        .build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(run(&arguments));
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(Ended::Signal) => ExitCode::SUCCESS,
        Ok(Ended::Restart) => ExitCode::from(daemon::exit::RESTART),
        Err(error) => daemon::exit::fail("felix", &*error),
    }
}
