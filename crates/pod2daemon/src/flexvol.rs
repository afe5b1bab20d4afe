//! The FlexVolume driver `nodeagent/uds`: `calico component flexvol`, and `uds` as the kubelet calls it.
//!
//! - [`answer`]: one call of the kubelet, answered in JSON on standard output. Standard error stays empty, as the kubelet reads
//!   both as one; what is to be said otherwise goes to syslog.
//! - `install`: the driver put in place on the host; `script`: the same by the flags of the script that older images have.
//!
//! FlexVolume is deprecated in Kubernetes, and the CSI driver does the same; clusters of old still have it.

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

/// Who speaks in syslog.
const SYSLOG: &str = "FlexVolNodeAgent";

/// Be the FlexVolume driver nodeagent/uds for one call of the kubelet, or install it.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Say what the driver can do.
    Init,
    /// Make a volume.
    Mount {
        /// Where the pod finds it.
        #[arg(value_name = "DIR")]
        target: PathBuf,
        /// What the kubelet says about the pod, in JSON.
        options: String,
        /// What newer kubelets may add.
        #[arg(hide = true, num_args = 0..)]
        more: Vec<String>,
    },
    /// Take a volume away.
    Unmount {
        /// Where the pod found it.
        #[arg(value_name = "DIR")]
        target: PathBuf,
        /// What newer kubelets may add.
        #[arg(hide = true, num_args = 0..)]
        more: Vec<String>,
    },
    /// Print the version of the driver.
    Version,
    /// Copy this program to the host as the driver.
    Install {
        /// The file, in the folder in which the kubelet looks; its name must be uds.
        #[arg(long, value_name = "FILE")]
        target: PathBuf,
    },
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// The command line of the driver alone.
#[derive(Debug, Parser)]
#[command(name = "uds", disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// Runs one command.
///
/// # Errors
/// When the driver cannot be installed. The kubelet gets its errors in JSON.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    run(&arguments.command)
}

/// Answers the kubelet, which calls the driver by its name: with these words, of which the first is that name.
pub fn answer_kubelet(words: &[OsString]) -> ExitCode {
    let outcome = match Line::try_parse_from(words) {
        Ok(line) => run(&line.command),
        // A call that was not foreseen, or not like this.
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

/// One call, with the host's configuration and syslog.
fn on_the_host(words: &[String]) -> anyhow::Result<ExitCode> {
    let log = Log::start(LevelFilter::OFF);
    let configuration = Configuration::read(&SystemEnvironment as &dyn Environment);
    // Without a syslog it is silent: the answer says what went wrong.
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
