//! The node's commands: `component node NAME` of today's manifests, and the flags of the older `calico-node`.
//!
//! Both are parsed to the same [`NodeCommand`]; the commands are carried out elsewhere. Unknown flags are rejected: a
//! probe that silently checks nothing would be worse than one that fails.

mod old;

pub use old::{OldCommand, OldError, help as old_help, parse as parse_old};

use crate::context::Context;
use crate::health::{self, Checks};
use crate::services::{self, Service};
use crate::{address_monitor, condition, flows, hostpath, privileged, shutdown, startup, status, supervise};
use crate::{token_monitor, tunnel};
use clap::{Args, Subcommand};
use daemon::Shutdown;
use daemon::exit::print;
use daemon::log::Log;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// A command of the node.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum NodeCommand {
    /// Start the node and keep all its parts running.
    Run,
    /// Carry out the steps that need a privileged container: mount the file systems that BPF needs.
    Init {
        /// Log failures, but continue and succeed.
        #[arg(long)]
        best_effort: bool,
    },
    /// Register this node in the datastore, with its addresses, pools and settings.
    Startup {
        /// Also mark the node's network as available.
        #[arg(long)]
        complete_startup: bool,
    },
    /// Report to the cluster that this node is shutting down.
    Shutdown,
    /// Run everything except Felix and BGP: condition, tunnel addresses, status, addresses, CNI token and agent.
    NodeServices,
    /// Run under this name and do nothing, for tools that look for such a process; the speaker answers for it.
    #[command(hide = true)]
    Bird6,
    /// Keep the node's addresses in the datastore up to date.
    MonitorAddresses,
    /// Assign addresses to the node's tunnel devices.
    AllocateTunnelAddrs {
        /// Run once and exit.
        #[arg(long)]
        run_once: bool,
    },
    /// Keep the CNI plugin's kubeconfig fresh.
    MonitorToken,
    /// Mark the node's network as available when it is ready.
    CompleteStartup,
    /// Create the folders of a node that does not run as root.
    HostpathInit,
    /// Check that parts of the node are alive or ready.
    Health(HealthArgs),
    /// Report or show the node's BGP status.
    Status {
        /// Report or show.
        #[command(subcommand)]
        command: StatusCommand,
    },
    /// Print kernel state, without helper programs.
    Dump {
        /// What to print.
        what: DumpWhat,
    },
    /// Inspect the maps of the eBPF dataplane: conntrack, nat, routes, counters and more; see `node bpf -- --help`.
    Bpf {
        /// The command of calico-bpf with its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show the node's flows as they arrive (needs FlowLogsLocalReporter).
    Flows {
        /// How many flows to show; negative to follow.
        #[arg(long, short = 'n', allow_negative_numbers = true)]
        num: i64,
    },
    /// Print the version.
    Version,
}

/// The kernel state to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DumpWhat {
    /// Devices.
    Link,
    /// Addresses.
    Addr,
    /// IPv4 routes of all tables.
    Route,
    /// IPv6 routes of all tables.
    Route6,
    /// Rules of policy routing.
    Rule,
    /// Neighbours and forwarding tables.
    Neigh,
    /// Queueing disciplines.
    Qdisc,
    /// IP sets with their members.
    Ipset,
    /// Tables of nftables, with chains, sets and the comments of rules.
    Nft,
    /// The table of connections.
    Conntrack,
    /// The logs of the CNI plugin.
    CniLogs,
}

/// The parts to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct HealthArgs {
    /// Run felix liveness checks.
    #[arg(long)]
    pub felix_live: bool,
    /// Run felix readiness checks.
    #[arg(long)]
    pub felix_ready: bool,
    /// Run BIRD liveness checks.
    #[arg(long)]
    pub bird_live: bool,
    /// Run BIRD readiness checks.
    #[arg(long)]
    pub bird_ready: bool,
    /// Run BIRD6 liveness checks.
    #[arg(long)]
    pub bird6_live: bool,
    /// Run BIRD6 readiness checks.
    #[arg(long)]
    pub bird6_ready: bool,
    /// How long after a start all BGP sessions are required.
    #[arg(long, value_parser = duration, default_value = "30s")]
    pub threshold_time: Duration,
}

/// What to do with the BGP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum StatusCommand {
    /// Answer the cluster's CalicoNodeStatus resources.
    Report,
    /// Print the status.
    Show,
}

/// Parses a duration as Go writes it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    api::scalars::Duration::from(text).parse()
}

/// Creates the services of other components.
pub type OtherServices<'a> = Box<dyn FnOnce(&Context) -> Vec<Service> + 'a>;

/// What the program provides for the node's commands.
pub struct Surroundings<'a> {
    /// The version of Calico that this program implements, for the datastore.
    pub calico_version: &'a str,
    /// The version to print.
    pub version: &'a str,
    /// The names of the components in this program.
    pub components: &'a [&'a str],
    /// Services of other components for `node-services`.
    pub services: OtherServices<'a>,
}

/// Why a command failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Runs a command of this process.
///
/// # Errors
/// When the command fails.
pub fn run(command: NodeCommand, surroundings: Surroundings<'_>) -> Result<ExitCode, Failure> {
    if command == NodeCommand::Version {
        return Ok(print(&format!("{}\n", surroundings.version))?);
    }
    if let NodeCommand::Bpf { arguments } = &command {
        return look_at_maps(arguments, surroundings.version);
    }
    if let NodeCommand::Flows { num } = command {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(show_flows(num));
    }
    if let NodeCommand::Dump { what } = command {
        return Ok(print(&crate::dump::dump(what, std::path::Path::new("/"))?)?);
    }
    if matches!(command, NodeCommand::NodeServices | NodeCommand::Bird6) {
        supervise::end_with_supervisor()?;
    }
    if command == NodeCommand::Bird6 {
        // Runs until a signal ends it.
        loop {
            std::thread::park();
        }
    }
    let context = match Context::of_process(surroundings.calico_version) {
        Ok(context) => context,
        // People see only what a probe prints.
        Err(error) if matches!(command, NodeCommand::Health(_)) => return unhealthy(&[error.to_string()]),
        Err(error) => return Err(error.into()),
    };
    let _log = Log::start(context.settings.log_level);
    match command {
        NodeCommand::Run => {
            supervise::run(&context, surroundings.components)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Init { best_effort } => match privileged::run(&context, best_effort) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                tracing::error!(%error, "not initialised");
                Ok(ExitCode::from(error.exit_code))
            }
        },
        NodeCommand::HostpathInit => {
            hostpath::run(&context)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::NodeServices => {
            // These small tasks mostly wait. With several threads, each packet that arrives would wake several of them.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let others = (surroundings.services)(&context);
                services::run(&context, others).await
            })?;
            Ok(ExitCode::SUCCESS)
        }
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run_one(command, &context))
        }
    }
}

async fn run_one(command: NodeCommand, context: &Context) -> Result<ExitCode, Failure> {
    // These end on their own or by a signal, which may interrupt them anywhere.
    let never = Shutdown::never();
    match command {
        NodeCommand::Startup { complete_startup } => {
            startup::run(context).await?;
            if complete_startup {
                condition::mark_available(context).await?;
            }
        }
        NodeCommand::Shutdown => shutdown::run(context).await?,
        NodeCommand::MonitorAddresses => address_monitor::run(context, never).await?,
        NodeCommand::AllocateTunnelAddrs { run_once: true } => tunnel::run_once(context).await?,
        NodeCommand::AllocateTunnelAddrs { run_once: false } => tunnel::run(context, never).await?,
        NodeCommand::MonitorToken => token_monitor::run(context, never).await?,
        NodeCommand::CompleteStartup => condition::manage(context, condition::READY_PATIENCE, never).await?,
        NodeCommand::Health(args) => {
            let checks = Checks {
                felix_live: args.felix_live,
                felix_ready: args.felix_ready,
                bird_live: args.bird_live,
                bird6_live: args.bird6_live,
                bird_ready: args.bird_ready,
                bird6_ready: args.bird6_ready,
            };
            if let Err(wrong) = health::check(context, checks, args.threshold_time).await {
                return unhealthy(&wrong);
            }
        }
        NodeCommand::Status { command: StatusCommand::Report } => status::run(context, never).await?,
        NodeCommand::Status { command: StatusCommand::Show } => {
            return Ok(print(&status::show(context).await)?);
        }
        // Handled above: it must not run in a single-threaded runtime.
        NodeCommand::Run
        | NodeCommand::Init { .. }
        | NodeCommand::NodeServices
        | NodeCommand::Bird6
        | NodeCommand::HostpathInit
        | NodeCommand::Dump { .. }
        | NodeCommand::Bpf { .. }
        | NodeCommand::Flows { .. }
        | NodeCommand::Version => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command of `calico-bpf`. Usage is printed to standard error, or to standard output if requested.
fn look_at_maps(arguments: &[String], version: &str) -> Result<ExitCode, Failure> {
    let words = std::iter::once("calico-bpf").chain(arguments.iter().map(String::as_str));
    let arguments = match <bpf_cli::Arguments as clap::Parser>::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            error.print()?;
            return Ok(if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    };
    let mut maps = bpf_cli::Pinned::of_machine();
    bpf_cli::run(&arguments, version, &mut maps, &mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// Shows flows up to the requested number, or until a signal.
async fn show_flows(count: i64) -> Result<ExitCode, Failure> {
    let shutdown = daemon::signals::shutdown()?;
    let socket = std::path::Path::new(::flows::local::SOCKET);
    flows::show(socket, count, &mut std::io::stdout(), shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the problems where probes look for them: on standard output.
fn unhealthy(wrong: &[String]) -> Result<ExitCode, Failure> {
    print(&format!("{}\n", wrong.join("\n")))?;
    Ok(ExitCode::FAILURE)
}
