//! The FlexVolume driver `nodeagent/uds`: `calico component flexvol`, and `uds` as the kubelet calls it.
//!
//! - [`answer`]: one call of the kubelet, answered in JSON on standard output. Standard error stays empty, because the
//!   kubelet reads both as one stream; other messages are sent to syslog.
//! - `install`: installs the driver on the host; `script`: the same with the flags of the script in older images.
//!
//! FlexVolume is deprecated in Kubernetes, and the CSI driver replaces it; older clusters still use it.

mod calls;
mod install;
mod script;

pub use calls::answer;
use calls::{Answer, Configuration};
use clap::{Args, Parser, Subcommand};
use daemon::log::{LevelFilter, Log, Outlets};
use daemon::{Environment, SystemEnvironment};
pub use script::main as install_by_script;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The program's name in syslog.
const SYSLOG: &str = "FlexVolNodeAgent";

/// Act as the FlexVolume driver nodeagent/uds for one call of the kubelet, or install it.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Print the driver's capabilities.
    Init,
    /// Create a volume.
    Mount {
        /// The path of the volume in the pod's folder.
        #[arg(value_name = "DIR")]
        target: PathBuf,
        /// The kubelet's information about the pod, in JSON.
        options: String,
        /// Further arguments of newer kubelets.
        #[arg(hide = true, num_args = 0..)]
        more: Vec<String>,
    },
    /// Remove a volume.
    Unmount {
        /// The path of the volume in the pod's folder.
        #[arg(value_name = "DIR")]
        target: PathBuf,
        /// Further arguments of newer kubelets.
        #[arg(hide = true, num_args = 0..)]
        more: Vec<String>,
    },
    /// Print the version of the driver.
    Version,
    /// Install this program on the host as the driver.
    Install {
        /// The file, in the folder where the kubelet looks for drivers; its name must be uds.
        #[arg(long, value_name = "FILE")]
        target: PathBuf,
    },
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// The command line of the driver itself.
#[derive(Debug, Parser)]
#[command(name = "uds", disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// Runs one command.
///
/// # Errors
/// When the driver cannot be installed. Errors for the kubelet are printed as JSON.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    run(&arguments.command)
}

/// Answers the kubelet, which calls the driver by its name. The first of the words is that name.
pub fn answer_kubelet(words: &[OsString]) -> ExitCode {
    let outcome = match Line::try_parse_from(words) {
        Ok(line) => run(&line.command),
        // An unknown call, or one with unexpected arguments.
        Err(error) => {
            let reason = error.to_string();
            print(&Answer::not_supported(reason.lines().next().unwrap_or_default()))
        }
    };
    outcome.unwrap_or_else(|error| daemon::exit::fail("uds", &*error))
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Version => Ok(daemon::exit::print("Version is 0.1\n")?),
        Command::Install { target } => {
            let _log = Log::start(LevelFilter::INFO);
            install::install(target)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Init => on_the_host(&["init".to_owned()]),
        Command::Mount { target, options, .. } => {
            on_the_host(&["mount".to_owned(), target.display().to_string(), options.clone()])
        }
        Command::Unmount { target, .. } => on_the_host(&["unmount".to_owned(), target.display().to_string()]),
        Command::Other(words) => {
            on_the_host(&words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
        }
    }
}

/// Answers one call, with the host's configuration and syslog.
fn on_the_host(words: &[String]) -> anyhow::Result<ExitCode> {
    let log = Log::start(LevelFilter::OFF);
    let configuration = Configuration::read(&SystemEnvironment as &dyn Environment);
    // Without a syslog nothing is logged: the answer contains the error.
    let outlets =
        Outlets { screen: LevelFilter::OFF, file: None, syslog: Some((configuration.level, SYSLOG)) };
    let _ = log.set(&outlets);
    for problem in &configuration.problems {
        tracing::warn!("{problem}");
    }
    print(&answer(words, &configuration.homes, configuration.says_capabilities))
}

fn print(answer: &Answer) -> anyhow::Result<ExitCode> {
    daemon::exit::print(&format!("{answer}\n"))?;
    Ok(ExitCode::from(answer.code()))
}
