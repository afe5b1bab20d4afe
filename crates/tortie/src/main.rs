//! `tortie`: one program with many names. The name it is started by, or the first argument, selects the component.
//!
//! This file only dispatches: [`names`] decides, the components do the work. A name of a component that is not built
//! yet is refused with an explanation; there are no stubs that pretend to work.

mod help;
#[cfg(test)]
mod installed;
mod names;
mod node;
mod reference;

use ::node::cli::NodeCommand;
use anyhow::{Result, bail};
use calicoctl::Surroundings;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use daemon::{Environment as _, SystemEnvironment};
use names::Entry;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The output of `calico-ipam -h`.
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
    /// Show who talked to whom, and which policy allowed or denied it, like `calicoctl flows`.
    Flows,
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
    /// The native BGP speaker: sessions, routes in the kernel, answers at BIRD's sockets.
    Bgp(BgpArguments),
    /// BIRD as the BGP backend: writes its configuration and runs its processes.
    Confd(confd::cli::Arguments),
    /// The Kubernetes controllers.
    KubeControllers(KubeControllersArguments),
    /// The fan-out between the datastore and the agents of many nodes.
    Typha(typha::cli::Arguments),
    /// The aggregator of flow logs: an hour of them, on Calico's API.
    Goldmane(goldmane::cli::Arguments),
    /// The page that shows flows, and the API of Calico's whisker-backend.
    Whisker(whisker::cli::Arguments),
    /// The API server: projectcalico.org/v3 for kubectl.
    Apiserver(Box<apiserver::cli::Arguments>),
    /// The admission webhooks of clusters without the API server.
    Webhooks(apiserver::webhooks::Arguments),
    /// A cluster of network namespaces on this machine.
    Lab(Box<lab::Arguments>),
    /// Print the objects that install Tortie on Kubernetes, like one of Calico's manifests.
    Manifests(operate::cli::ManifestsArguments),
    /// Install Tortie on a cluster.
    Install(Box<operate::cli::InstallArguments>),
    /// Upgrade an installation to this version.
    Upgrade(operate::cli::UpgradeArguments),
    /// Remove an installation; Calico's data is kept unless requested otherwise.
    Uninstall(operate::cli::UninstallArguments),
    /// Show what runs on a cluster and what is wrong with it.
    Status(operate::cli::StatusArguments),
    /// Find problems, on a cluster or on this machine, and suggest remedies.
    Doctor(operate::cli::DoctorArguments),
    /// Make pods connect to each other on a cluster, under policies, and check the results.
    Connectivity {
        #[command(subcommand)]
        command: operate::cli::ConnectivityCommand,
    },
    /// One end of a connection, for tests from inside pods.
    #[command(hide = true)]
    Probe {
        #[command(subcommand)]
        command: operate::probe::ProbeCommand,
    },
    /// Replace a running Calico by Tortie, or the reverse.
    Migrate {
        #[command(subcommand)]
        command: Migration,
    },
    /// Run one component, by its name in manifests.
    Component {
        #[command(subcommand)]
        component: Component,
    },
    /// Query the health of a component over HTTP.
    Health(HealthArguments),
    /// Print the version.
    Version,
    /// Print a script that completes commands and flags in a shell.
    #[command(after_help = "Examples:\n  source <(tortie completion bash)\n  tortie completion fish > \
                            ~/.config/fish/completions/tortie.fish")]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages for every command.
    Man {
        /// The directory to write the pages to [default: print the page of tortie itself].
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Print a page of the reference.
    #[command(hide = true)]
    Reference {
        /// The page to print.
        page: reference::Page,
    },
}

#[derive(Subcommand)]
enum Migration {
    #[command(flatten)]
    Operate(operate::cli::MigrateCommand),
    /// Move Calico's objects between the two groups of custom resource definitions, in either direction.
    Crds(apiserver::migration::Arguments),
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
    /// The native BGP speaker: sessions, routes in the kernel, answers at BIRD's sockets.
    Bgp(BgpArguments),
    /// BIRD as the BGP backend: writes its configuration and runs its processes.
    Confd(confd::cli::Arguments),
    /// The Kubernetes controllers.
    KubeControllers(KubeControllersArguments),
    /// The fan-out between the datastore and the agents of many nodes.
    Typha(typha::cli::Arguments),
    /// The aggregator of flow logs: an hour of them, on Calico's API.
    Goldmane(goldmane::cli::Arguments),
    /// The page that shows flows, and the API of Calico's whisker-backend.
    WhiskerBackend(whisker::cli::Arguments),
    /// The API server: projectcalico.org/v3 for kubectl.
    Apiserver(Box<apiserver::cli::Arguments>),
    /// The admission webhooks of clusters without the API server.
    Webhooks(apiserver::webhooks::Arguments),
    Csi(pod2daemon::csi::Arguments),
    NodeDriverRegistrar(pod2daemon::registrar::Arguments),
    Flexvol(pod2daemon::flexvol::Arguments),
    KeyCertProvisioner(key_cert_provisioner::cli::Arguments),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Subcommand)]
enum CniCommand {
    /// Install the plugins and their configuration on the host.
    Install,
    /// Run as the CNI plugin.
    Plugin {
        /// The plugin's own flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// Run as the IPAM plugin.
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
struct BgpArguments {
    /// The folder of the control sockets, like BIRD's
    #[arg(long, value_name = "DIR", default_value = "/var/run/calico")]
    run_dir: PathBuf,
}

#[derive(Args)]
struct HealthArguments {
    /// Host to check.
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Port to check.
    #[arg(long, required_unless_present_any = ["ready", "live"])]
    port: Option<u16>,
    /// Check whether Goldmane is ready, on the port in HEALTH_PORT, like probes of images up to Calico v3.32.
    #[arg(long, conflicts_with_all = ["port", "check", "live"])]
    ready: bool,
    /// Check in the same way whether Goldmane is alive.
    #[arg(long, conflicts_with_all = ["port", "check"])]
    live: bool,
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
    daemon::panics::without_traces();
    daemon::panics::end_process();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let outcome = match names::choose(&arguments, SystemEnvironment.variable("CNI_COMMAND").as_ref()) {
        Entry::Ctl(arguments) => return calicoctl::run(&arguments, Surroundings::of_process()),
        Entry::Plugin => return ExitCode::from(cni::run_in_process(cni::Program::Plugin)),
        Entry::IpamPlugin => return ExitCode::from(cni::run_in_process(cni::Program::Ipam)),
        Entry::ReferencePlugin(plugin) => return ExitCode::from(cni_plugins::run_in_process(plugin)),
        Entry::Installer => install(),
        Entry::Node => node::run(NodeCommand::Run),
        Entry::Felix => return run_felix(Vec::new()),
        Entry::CheckStatus => return kube_controllers::cli::check_status(&arguments, &version()),
        Entry::Version => print(&format!("{}\n", calicoctl::client_version())),
        Entry::IpamHelp => print(IPAM_HELP),
        Entry::FlexVolume(arguments) => return pod2daemon::flexvol::answer_kubelet(&arguments),
        Entry::FlexVolumeScript(arguments) => return pod2daemon::flexvol::install_by_script(&arguments),
        Entry::OldNode(flags) => node::run_old(&flags),
        Entry::Tree(arguments) => run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => daemon::exit::fail("tortie", &*error),
    }
}

fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Ok(help::answer(&error)),
    };
    match arguments.command {
        Command::Datastore(arguments) => kvstore::cli::run(*arguments).map(|()| ExitCode::SUCCESS),
        Command::Crds { group } => {
            let text = match group {
                CrdGroup::V1 => api::crds::to_yaml(),
                CrdGroup::V3 => api::crds::to_yaml_v3(),
            };
            print(&text)
        }
        // Handled before the arguments are parsed; listed here for the help text.
        Command::Ctl | Command::Flows => bail!("calicoctl was not started"),
        Command::Node { command } => node::run(command.unwrap_or(NodeCommand::Run)),
        Command::Component { component: Component::Node { command } } => node::run(command),
        Command::Cni { command } | Command::Component { component: Component::Cni { command } } => {
            cni(&command)
        }
        Command::Felix { flags } | Command::Component { component: Component::Felix { flags } } => {
            Ok(run_felix(flags))
        }
        Command::Typha(arguments) | Command::Component { component: Component::Typha(arguments) } => {
            typha::cli::main(&arguments, &version())
        }
        Command::Goldmane(arguments) | Command::Component { component: Component::Goldmane(arguments) } => {
            goldmane::cli::main(&arguments)
        }
        Command::Whisker(arguments)
        | Command::Component { component: Component::WhiskerBackend(arguments) } => {
            whisker::cli::main(&arguments)
        }
        Command::Apiserver(arguments) | Command::Component { component: Component::Apiserver(arguments) } => {
            apiserver::cli::main(&arguments)
        }
        Command::Webhooks(arguments) | Command::Component { component: Component::Webhooks(arguments) } => {
            apiserver::webhooks::main(&arguments, &version())
        }
        Command::Bgp(arguments) | Command::Component { component: Component::Bgp(arguments) } => {
            run_bgp(&arguments)
        }
        Command::Confd(arguments) | Command::Component { component: Component::Confd(arguments) } => {
            run_confd(&arguments)
        }
        Command::Lab(arguments) => lab::run(*arguments),
        Command::Manifests(arguments) => print(&operate::cli::manifests_text(&arguments)?),
        Command::Install(arguments) => operate::cli::run_install(&arguments),
        Command::Upgrade(arguments) => operate::cli::run_upgrade(&arguments),
        Command::Uninstall(arguments) => operate::cli::run_uninstall(&arguments),
        Command::Status(arguments) => operate::cli::run_status(&arguments),
        Command::Doctor(arguments) => operate::cli::run_doctor(&arguments),
        Command::Connectivity { command } => operate::cli::run_connectivity(&command),
        Command::Probe { command } => operate::probe::run(&command),
        Command::Migrate { command: Migration::Operate(command) } => operate::cli::run_migrate(&command),
        Command::Migrate { command: Migration::Crds(arguments) } => apiserver::migration::main(&arguments),
        Command::KubeControllers(arguments)
        | Command::Component { component: Component::KubeControllers(arguments) } => {
            match arguments.command {
                Some(KubeControllersCommand::KubeControllersHealth(arguments)) => {
                    Ok(kube_controllers::cli::check(&arguments, &version()))
                }
                None => kube_controllers::cli::main(&arguments.run),
            }
        }
        Command::Component { component: Component::Csi(arguments) } => pod2daemon::csi::main(&arguments),
        Command::Component { component: Component::NodeDriverRegistrar(arguments) } => {
            pod2daemon::registrar::main(&arguments, &version())
        }
        Command::Component { component: Component::Flexvol(arguments) } => {
            pod2daemon::flexvol::main(&arguments)
        }
        Command::Component { component: Component::KeyCertProvisioner(arguments) } => {
            key_cert_provisioner::cli::main(&arguments)
        }
        Command::Component { component: Component::Other(words) } => {
            let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            bail!("component {name} is not part of this version yet")
        }
        Command::Health(arguments) => health(&arguments),
        Command::Version => print(&format!("{}\n", version())),
        Command::Completion { shell } => print(&help::completion(Arguments::command(), shell)),
        Command::Man { directory } => print(&help::manual(Arguments::command(), directory.as_deref())?),
        Command::Reference { page } => print(&reference::write(page, Arguments::command())),
    }
}

fn version() -> String {
    format!("tortie {}", env!("CARGO_PKG_VERSION"))
}

fn run_felix(flags: Vec<OsString>) -> ExitCode {
    // Under `tortie node` it ends with its supervisor.
    if let Err(error) = ::node::end_with_supervisor() {
        // It would never be ended, and would obstruct the next instance.
        let _ = writeln!(std::io::stderr(), "felix: cannot follow its supervisor: {error}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<OsString> = std::iter::once(OsString::from("felix")).chain(flags).collect();
    felix::cli::main(&arguments)
}

fn run_bgp(arguments: &BgpArguments) -> Result<ExitCode> {
    // Under `tortie node` it ends with its supervisor.
    ::node::end_with_supervisor()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        speaker::run(&arguments.run_dir, &SystemEnvironment, shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn run_confd(arguments: &confd::cli::Arguments) -> Result<ExitCode> {
    // Under `tortie node` it ends with its supervisor, and so does the BIRD that it has started.
    ::node::end_with_supervisor()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        confd::run(arguments, &SystemEnvironment, shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
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
        // A broken standard input counts as an empty configuration, which is reported as such.
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

/// The environment variables that are valid text.
pub(crate) fn variables() -> cni::Environment {
    SystemEnvironment.texts().collect()
}

fn install() -> Result<ExitCode> {
    let _log = daemon::log::Log::start(daemon::log::LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(cni_install::run(&SystemEnvironment, Path::new("/")))?;
    Ok(ExitCode::SUCCESS)
}

fn health(arguments: &HealthArguments) -> Result<ExitCode> {
    let (port, check) = match arguments.port {
        Some(port) => (port, arguments.check.as_str()),
        None => {
            let settings = goldmane::Settings::read(&SystemEnvironment)?;
            if !settings.health_enabled {
                return Ok(ExitCode::SUCCESS);
            }
            (settings.health_port, if arguments.live { "liveness" } else { "readiness" })
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let probe = ::node::probe(&arguments.host, port, check, arguments.timeout);
    match runtime.block_on(probe) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(reason) => bail!("health check failed: {reason}"),
    }
}

/// Prints text. A reader that went away does not fail the command.
fn print(text: &str) -> Result<ExitCode> {
    Ok(daemon::exit::print(text)?)
}
