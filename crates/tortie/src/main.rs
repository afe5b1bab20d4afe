//! `tortie`: one program, many names. The name it is started by, or the first argument, selects the component.
//!
//! Only dispatch lives here: [`names`] decides, the components do. A name that belongs to a component which is not built
//! yet is refused with a sentence that says so, never with silence or a stub that pretends.

mod names;
mod node;
mod reference;

use ::node::cli::NodeCommand;
use anyhow::{Result, bail};
use calicoctl::context::Surroundings;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use names::Entry;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// What `calico-ipam -h` prints.
const IPAM_HELP: &str = "calico-ipam is Calico's IPAM plugin. The CNI plugin calls it with CNI_COMMAND and a network \
                         configuration on standard input.\n\nUsage: calico-ipam [FLAG]\n\n  -v         print the version\n  \
                         -upgrade   bring addresses of host-local into Calico's IPAM, if there are any\n  \
                         -h         print this\n";

/// Calico's networking and network security as one binary.
#[derive(Parser)]
#[command(name = "tortie", version, about)]
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
    /// Start this machine's node and keep its parts running, or run one of its commands.
    Node {
        #[command(subcommand)]
        command: Option<NodeCommand>,
    },
    /// The CNI plugins and their installer.
    Cni {
        #[command(subcommand)]
        command: CniCommand,
    },
    /// The policy agent.
    Felix {
        /// Felix's own flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// The Kubernetes controllers.
    KubeControllers(KubeControllersArguments),
    /// A cluster of network namespaces on this machine.
    Lab(Box<lab::Arguments>),
    /// Run one component, as manifests name them.
    Component {
        #[command(subcommand)]
        component: Component,
    },
    /// Ask a component over HTTP whether it is healthy.
    Health(HealthArguments),
    /// Print the version.
    Version,
    /// Print a page of the reference.
    #[command(hide = true)]
    Reference {
        /// Which one.
        page: reference::Page,
    },
}

#[derive(Subcommand)]
enum Component {
    /// Commands of the node.
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// The CNI plugins and their installer.
    Cni {
        #[command(subcommand)]
        command: CniCommand,
    },
    /// The policy agent.
    Felix {
        /// Felix's own flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// The Kubernetes controllers.
    KubeControllers(KubeControllersArguments),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Subcommand)]
enum CniCommand {
    /// Put the plugins and their configuration in place on the host.
    Install,
    /// Be the CNI plugin.
    Plugin {
        /// The plugin's own flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// Be the IPAM plugin.
    Ipam {
        /// The plugin's own flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct KubeControllersArguments {
    #[command(flatten)]
    run: kube_controllers::cli::Arguments,
    #[command(subcommand)]
    command: Option<KubeControllersCommand>,
}

#[derive(Subcommand)]
enum KubeControllersCommand {
    /// Check the status file of running controllers.
    KubeControllersHealth(kube_controllers::cli::CheckArguments),
}

#[derive(Args)]
struct HealthArguments {
    /// Host to check.
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Port to check.
    #[arg(long)]
    port: u16,
    /// Check type: readiness or liveness.
    #[arg(long = "type", default_value = "readiness", value_parser = ["readiness", "liveness"])]
    check: String,
    /// Request timeout.
    #[arg(long, default_value = "5s", value_parser = |text: &str| ::api::scalars::Duration::from(text).parse())]
    timeout: Duration,
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

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let outcome = match names::choose(&arguments, std::env::var_os("CNI_COMMAND").as_ref()) {
        Entry::Ctl(arguments) => return calicoctl::run(&arguments, Surroundings::of_process()),
        Entry::Plugin => return ExitCode::from(cni::run_in_process(cni::Program::Plugin)),
        Entry::IpamPlugin => return ExitCode::from(cni::run_in_process(cni::Program::Ipam)),
        Entry::Installer => install(),
        Entry::Node => node::run(NodeCommand::Run),
        Entry::Felix => return run_felix(Vec::new()),
        Entry::CheckStatus => return kube_controllers::cli::check_status(&arguments, &version()),
        Entry::Version => print(&format!("{}\n", calicoctl::version::client_version())),
        Entry::IpamHelp => print(IPAM_HELP),
        Entry::OldNode(flags) => node::run_old(&flags),
        Entry::Tree(arguments) => run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to report to when standard error is gone.
            let _ = writeln!(std::io::stderr(), "tortie: {}", causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[OsString]) -> Result<ExitCode> {
    match Arguments::parse_from(arguments).command {
        Command::Datastore(arguments) => kvstore::cli::run(*arguments).map(|()| ExitCode::SUCCESS),
        Command::Crds { group } => {
            let text = match group {
                CrdGroup::V1 => api::crds::to_yaml(),
                CrdGroup::V3 => api::crds::to_yaml_v3(),
            };
            print(&text)
        }
        // Taken before the arguments are parsed; here for the help text.
        Command::Ctl => bail!("calicoctl was not started"),
        Command::Node { command } => node::run(command.unwrap_or(NodeCommand::Run)),
        Command::Component { component: Component::Node { command } } => node::run(command),
        Command::Cni { command } | Command::Component { component: Component::Cni { command } } => {
            cni(&command)
        }
        Command::Felix { flags } | Command::Component { component: Component::Felix { flags } } => {
            Ok(run_felix(flags))
        }
        Command::Lab(arguments) => lab::run(*arguments),
        Command::KubeControllers(arguments)
        | Command::Component { component: Component::KubeControllers(arguments) } => {
            match arguments.command {
                Some(KubeControllersCommand::KubeControllersHealth(arguments)) => {
                    Ok(kube_controllers::cli::check(&arguments, &version()))
                }
                None => kube_controllers::cli::main(&arguments.run),
            }
        }
        Command::Component { component: Component::Other(words) } => {
            let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            bail!("component {name} is not part of this version yet")
        }
        Command::Health(arguments) => health(&arguments),
        Command::Version => print(&format!("{}\n", version())),
        Command::Reference { page } => print(&reference::write(page, Arguments::command())),
    }
}

/// An error with all its causes, each once: many name their cause themselves.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn version() -> String {
    format!("tortie {}", env!("CARGO_PKG_VERSION"))
}

fn run_felix(flags: Vec<OsString>) -> ExitCode {
    // Under `tortie node` it ends with its supervisor.
    if let Err(error) = ::node::supervise::end_with_supervisor() {
        // Nobody would end it, and it would stand in the way of the next one.
        let _ = writeln!(std::io::stderr(), "felix: cannot follow its supervisor: {error}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<OsString> = std::iter::once(OsString::from("felix")).chain(flags).collect();
    felix::cli::main(&arguments)
}

fn cni(command: &CniCommand) -> Result<ExitCode> {
    use std::io::Read as _;
    let (program, flags) = match command {
        CniCommand::Install => return install(),
        CniCommand::Plugin { flags } => (cni::Program::Plugin, flags),
        CniCommand::Ipam { flags } => (cni::Program::Ipam, flags),
    };
    let flags: Vec<String> = flags.iter().map(|flag| flag.to_string_lossy().into_owned()).collect();
    let stdin = || {
        let mut input = Vec::new();
        // A broken standard input reads as an empty configuration, which is told as such.
        let _ = std::io::stdin().read_to_end(&mut input);
        input
    };
    let outcome = match program {
        cni::Program::Plugin => cni::run_plugin(&variables(), &flags, stdin),
        cni::Program::Ipam => cni::run_ipam(&variables(), &flags, stdin),
    };
    std::io::stderr().write_all(outcome.stderr.as_bytes())?;
    std::io::stdout().write_all(&outcome.stdout)?;
    Ok(ExitCode::from(outcome.exit))
}

/// The variables that are text.
pub(crate) fn variables() -> cni::Environment {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

fn install() -> Result<ExitCode> {
    ::node::logging::begin_at(tracing::Level::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(cni_install::run(&client::config::SystemEnvironment, Path::new("/")))?;
    Ok(ExitCode::SUCCESS)
}

fn health(arguments: &HealthArguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let probe = ::node::health::probe(&arguments.host, arguments.port, &arguments.check, arguments.timeout);
    match runtime.block_on(probe) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(reason) => bail!("health check failed: {reason}"),
    }
}

/// Prints; a reader that went away (`tortie crds | head`) is no error.
fn print(text: &str) -> Result<ExitCode> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::causes;
    use anyhow::Context as _;

    /// An error that names its cause, as most of ours do.
    #[derive(Debug)]
    struct Named(std::io::Error);

    impl std::fmt::Display for Named {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "cannot listen: {}", self.0)
        }
    }

    impl std::error::Error for Named {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn each_cause_is_printed_once() {
        let refused = || std::io::Error::other("in use");
        assert_eq!(causes(&anyhow::Error::new(Named(refused()))), "cannot listen: in use");
        let wrapped = Err::<(), _>(Named(refused())).context("serving health").expect_err("an error");
        assert_eq!(causes(&wrapped), "serving health: cannot listen: in use");
    }
}
