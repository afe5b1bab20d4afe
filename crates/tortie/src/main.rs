//! `tortie`: one program, many names. The name it is started by, or the first argument, selects the component.
//!
//! Only dispatch lives here. A name that belongs to a component which is not built yet is refused with a sentence that
//! says so, never with silence or a stub that pretends.

use anyhow::{Result, bail};
use calicoctl::context::Surroundings;
use clap::{Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Calico's networking and network security as one binary.
#[derive(Parser)]
#[command(name = "tortie", version, about, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the embedded store: etcd's v3 API on one file.
    Datastore(Box<kvstore::cli::Arguments>),
    /// Print the custom resource definitions.
    Crds {
        /// The API group to print definitions for.
        #[arg(long, value_enum, default_value_t = CrdGroup::V1)]
        group: CrdGroup,
    },
    /// The command line tool, as `calicoctl`.
    Ctl,
    /// Print the version.
    Version,
}

#[derive(Clone, Copy, ValueEnum)]
enum CrdGroup {
    /// crd.projectcalico.org/v1, the classic group.
    #[value(name = "crd.projectcalico.org/v1")]
    V1,
    /// projectcalico.org/v3, for clusters without Calico's API server.
    #[value(name = "projectcalico.org/v3")]
    V3,
}

/// Names that start a component which this version does not have yet, and what that component is.
const MISSING: [(&str, &str); 3] =
    [("calico", "the CNI plugin"), ("calico-ipam", "the IPAM plugin"), ("calico-node", "the node agent")];

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments
        .first()
        .and_then(|path| Path::new(path).file_name()?.to_str())
        .unwrap_or("tortie")
        .to_owned();
    if name == "calicoctl" || name == "kubectl-calico" {
        return calicoctl::run(&arguments, Surroundings::of_process());
    }
    if arguments.get(1).is_some_and(|first| first == "ctl") {
        arguments.remove(0);
        return calicoctl::run(&arguments, Surroundings::of_process());
    }
    match run(&name, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to report to when standard error is gone.
            let _ = writeln!(std::io::stderr(), "tortie: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, arguments: &[OsString]) -> Result<()> {
    if let Some((link, what)) = MISSING.iter().find(|(link, _)| *link == name) {
        bail!("{link} ({what}) is not part of this version yet");
    }
    match Arguments::parse_from(arguments).command {
        Command::Datastore(arguments) => kvstore::cli::run(*arguments),
        Command::Crds { group } => {
            let text = match group {
                CrdGroup::V1 => api::crds::to_yaml(),
                CrdGroup::V3 => api::crds::to_yaml_v3(),
            };
            print(&text)
        }
        // Taken above, before the arguments are parsed; here for the help text.
        Command::Ctl => bail!("calicoctl was not started"),
        Command::Version => print(&format!("tortie {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

/// Prints; a reader that went away (`tortie crds | head`) is no error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
